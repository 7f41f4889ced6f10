import type { Failure } from '../helpers/known-failures.ts'

/**
 * Every known way in which software of this kind has failed, as far as it concerns a listener, and the tests that show the
 * right behaviour of ours. `R1`–`R11` are what a real Supabase Realtime was seen to do; the numbers with L (listener), P
 * (pidfile), W (WebSocket) and S (Supabase) are public bug reports of other projects; `E1`–`E14` were reproduced on an
 * earlier listener.
 */

function failure(id: string, what: string, ...names: string[]): Failure {
  return { id, what, tests: names.map((name) => ({ name })) }
}

const RECORDED_REFUSALS = 'refusal of a join'
const RECORDED_LATE_ERRORS = 'error after a join that was answered with ok, without ever having called itself connected'
const RECORDED_TOPIC_ENDS = 'end of a topic whose socket lives on'
const RECORDED_SOCKET_ENDS = 'end of a socket'
const RECORDED_HANDSHAKES = 'refusal of a WebSocket handshake'
const DEAD_POLLER = '"Subscribed" from a dead poller is believed by nobody: the inbox is compared'
const SILENT_DROPS = 'what Realtime drops in silence is found by the slow comparison'
const REJOINED = 'what Realtime has not told of makes the listener join anew, once for each time'
const HALF_OPEN =
  'swallows every packet of the connections that are open is noticed by the missing reply to a heartbeat'
const STORM = '200 listeners that lose their server at once do not come back at once, with no call'
const ANY_SIGNAL = 'is ended by any signal at any moment loses no message, and the next start says no line twice'
const FRESH_TICKET = 'a fresh ticket comes before the old one ends, on the same socket and without a gap'
const STOPPED = 'is stopped for longer than its ticket lives hears again as soon as it goes on'
const HEARTBEATS = 'heartbeats without an answer end the connection, whatever else arrives'
const STALLED_STDOUT = 'a reader that does not read costs no message and no lease beyond its time'
const FLOOD = '500 messages in a second are a few lines whose counts add up'
const ONCE = 'the same message told twice, by both kinds of event and by the inbox, is one line'
const SECOND = 'a second listener of the same agent ends with 2 and changes nothing'
const STAND_BY = 'it stands by, silent, and takes over when the other listener is killed'
const GAP = 'a message between the ok of a join and its "Subscribed" is not lost'
const NONSENSE = 'binary frames, fragments and nonsense leave the connection alone'
const HANDSHAKE_CASES =
  'N answers to the handshake: each opens or is refused with its reason, in one packet and in single bytes'

export const FAILURES: Failure[] = [
  failure('R1', 'token expiry closes the topic, socket and heartbeats live on', RECORDED_TOPIC_ENDS, FRESH_TICKET),
  failure(
    'R2',
    'a refused join or subscription is not heard',
    RECORDED_REFUSALS,
    RECORDED_LATE_ERRORS,
    'a join that is refused 5 s late is waited for and told',
  ),
  failure('R3', '"Subscribed" from a dead poller, or before the subscription lives', DEAD_POLLER, GAP),
  failure('R4', 'a restart of Postgres deafens topics for minutes without a word', SILENT_DROPS, REJOINED),
  failure(
    'R5',
    'rate limits: silent drop, closed topic, closed socket and 429',
    SILENT_DROPS,
    RECORDED_TOPIC_ENDS,
    RECORDED_REFUSALS,
    RECORDED_HANDSHAKES,
    'Retry-After of a refused WebSocket handshake is waited for, whatever the inbox tells meanwhile',
  ),
  failure('R6', '1012 to everybody at once, late errors', RECORDED_SOCKET_ENDS, STORM),
  failure('R7', 'idle for 60 s: 1000', RECORDED_SOCKET_ENDS, 'is busy all the time does not move a heartbeat'),
  failure(
    'R8',
    'a first join without the token hears nothing',
    'the socket is asked for with apikey and vsn, and each join carries the ticket',
  ),
  failure('R9', 'a cold tenant confirms 1 to 3 s late', DEAD_POLLER, GAP),
  { ...failure('R10', 'wal2json refused by a Postgres release', DEAD_POLLER), beyond: 'its cause is the database’s' },
  {
    id: 'R11',
    what: 'pg_ctl stop hangs on a walsender',
    tests: [],
    beyond: 'the operator’s: no listener is part of it',
  },

  {
    ...failure(
      'L1',
      'a persistent watch ends after half an hour',
      ANY_SIGNAL,
      'SIGINT and SIGTERM end with 0 and leave nothing behind',
    ),
    beyond: 'arming it again is the plugin’s',
  },
  failure(
    'L2',
    'killed at a turn boundary',
    ANY_SIGNAL,
    'is killed while it starts, over and over, leaves nothing that keeps the next from starting',
  ),
  failure(
    'L3',
    'a reader of stdout that stalls',
    STALLED_STDOUT,
    'nothing counts as announced while the reader does not read; afterwards one line tells all',
  ),
  {
    id: 'L4',
    what: '/clear kills the watch in silence',
    tests: [{ name: ANY_SIGNAL }],
    beyond: 'the notice is a hook’s; here: the lease ends',
  },
  failure(
    'L5',
    'stderr is read by nobody',
    'the final answers of the server, asked twice, each with its sentence',
    'meets an error of its own goes on with --auto, and by hand says so in its last line',
    'has a reader of stderr that is gone, or never reads, goes on',
  ),
  failure(
    'L6',
    'a line per message floods the session',
    FLOOD,
    'after ten lines in a row only one more comes per refill',
  ),
  {
    id: 'L7',
    what: '-p mode kills the watch',
    tests: [{ name: ANY_SIGNAL }],
    beyond: 'documentation; here: the lease is given back',
  },
  {
    id: 'L8',
    what: 'plugin monitors in object form do not start',
    tests: [],
    beyond: 'the plugin’s manifest and the doctor’s',
  },
  failure(
    'L9',
    'a crash is for ever',
    'meets an error of its own goes on with --auto, and by hand says so in its last line',
    'a listener that was killed by -9 is no obstacle to the next, which tells what is still new',
    STAND_BY,
  ),
  failure(
    'L10',
    'a secret in argv',
    'shows its token to nobody: not in argv, not in what it writes, not in an address',
  ),
  failure('L12', 'started twice, told twice', SECOND, STAND_BY),
  failure('L13', 'the start hook runs twice in a session', STAND_BY, SECOND),
  failure(
    'P14',
    'no session id: one is invented and never cleaned',
    'stands for the session that it is told of, or for a name of its own, never for another one',
  ),
  failure('P16', 'started without stdin', 'has no stdin, an empty one or a closed one is the same', SECOND),
  {
    id: 'P17',
    what: 'a pid of another pid table',
    tests: [],
    beyond: 'nothing here but Node writes or probes a pid, each time in its own table',
  },
  {
    ...failure('P18', 'an orphan moves the shared cursor', 'a listener whose parent is gone ends with 0'),
    beyond: 'there is no cursor: the inbox is the server’s',
  },
  failure(
    'P19',
    'the loser of a race deletes the winner’s files',
    'only the owner removes the file',
    'of twenty processes that start at once over a stale file exactly one wins',
    SECOND,
  ),
  failure(
    'P20',
    'a lock of a process that is gone',
    'a dead pid, a reused pid and a damaged file are stale',
    'a listener that was killed by -9 is no obstacle to the next, which tells what is still new',
  ),
  failure(
    'L21',
    'the server closes right after the handshake',
    'closes each connection cleanly right after the handshake is met with growing pauses, and nothing is missed',
  ),
  failure(
    'L22',
    'the temporary folder is purged',
    'loses its runtime folder makes it again, and a second listener still finds the first',
    'cannot have a runtime folder any more still hears',
  ),
  failure(
    'L24',
    'start-up eats the time of the first check',
    'a wake is one line, and what waited at the start is another',
    'an inbox call that fails is owed until it succeeds',
  ),
  {
    ...failure('L25', 'an insert that wakes nobody', SILENT_DROPS, 'a held wake arrives when it comes due'),
    beyond: 'one wake path: the server’s',
  },
  {
    ...failure('L27', 'a message in the last moment of a turn', ONCE),
    beyond: 'the check at the end of a turn is a hook’s',
  },
  failure(
    'L28',
    'told as delivered though it was not',
    'writes into a pipe whose reader has ended ends with 0 and gives the lease back',
    'nothing counts as announced while the reader does not read; afterwards one line tells all',
  ),
  failure(
    'L29',
    'half-open sockets',
    HALF_OPEN,
    'swallows everything for a while is waited for, handshakes and HTTP alike, without a heap of connections',
  ),
  failure(
    'L30',
    'reconnect storms',
    STORM,
    '200 back-off draws of each step differ and fill it, also behind a Retry-After',
  ),
  failure(
    'L32',
    'reported as reconnected though refused',
    RECORDED_REFUSALS,
    RECORDED_LATE_ERRORS,
    'a refused join is tried again with a fresh ticket, and the inbox is watched meanwhile',
  ),
  failure('L33', 'heartbeats stop in silence', HEARTBEATS, HALF_OPEN),

  failure('W34', 'fragments', NONSENSE, 'a message in three frames with a ping and a pong between them is one message'),
  failure(
    'W35',
    'a ping between fragments',
    NONSENSE,
    'a message in three frames with a ping and a pong between them is one message',
  ),
  failure(
    'W37',
    'a 101 in pieces, a frame behind it, headers without end',
    HANDSHAKE_CASES,
    'a good answer with a frame behind it opens wherever it is cut in two',
  ),
  failure(
    'W39',
    'reasons of a close that are no text or too long',
    'a close reason is cut to 123 bytes at a character',
  ),
  failure('W40', 'length in characters', 'a client frame is masked and carries bytes, not characters'),
  {
    ...failure(
      'W42',
      '2,000 headers',
      'answers a handshake with 2,000 headers and a page, as a strange proxy does, is tried again',
    ),
    beyond: 'what a server does with them is its own',
  },
  failure('W43', '1002 taken for the end', 'a close with 1002 is no end'),
  failure(
    'W44',
    'frames without bound, readers that never read',
    'brings a message of 3 MB loses none, and one over 16 MiB costs one connection',
    'a peer that pings without reading does not fill our memory',
  ),
  failure(
    'W45',
    'late callbacks, binary frames',
    NONSENSE,
    'a destroyed client calls nothing back, whatever still arrives',
  ),

  failure('S47', 'the topic ends with its token', FRESH_TICKET, RECORDED_TOPIC_ENDS),
  failure(
    'S48',
    'after a sleep it joins with the old token',
    STOPPED,
    'a sleep of the machine is noticed by the wall clock, once',
    'has its clock set forward or back goes on, and its ticket lives by its own clock',
  ),
  failure(
    'S49',
    'phx_error, then closed, in a loop',
    RECORDED_TOPIC_ENDS,
    'phx_error and phx_close of a topic are survived',
    'a refused join is tried again with a fresh ticket, and the inbox is watched meanwhile',
  ),
  failure('S50', 'traffic postpones heartbeats', 'is busy all the time does not move a heartbeat'),
  failure(
    'S52',
    'memory and handles of 1,000 reconnects',
    '1,000 reconnects leave memory, handles and warnings as they were',
  ),
  failure(
    'S53',
    'SUBSCRIBED before it is true',
    GAP,
    'a message that comes between the look into the inbox and the join is not lost',
  ),
  {
    ...failure('S54', 'SUBSCRIBED and no events under RLS', DEAD_POLLER),
    beyond: 'to name the policy is the doctor’s',
  },
  failure(
    'S55',
    'DELETE ignores filter and RLS',
    'updates, deletes, cut and unauthorised rows write no line; the inbox decides',
  ),
  failure('S56', 'rows of another role’s subscriber', 'a row of another namespace or for another agent writes no line'),
  failure(
    'S58',
    'messages without join_ref are dropped',
    'a join carries its own ref as join_ref, the config and the token',
  ),
  failure(
    'S59',
    'a malformed join is met with silence',
    RECORDED_REFUSALS,
    'a join that nobody answers is tried again',
  ),
  {
    ...failure('S61', 'no legacy secret', 'the final answers of the server, asked twice, each with its sentence'),
    beyond: 'signing is the server’s',
  },
  failure('S62', 'a missing partition swallows broadcasts', SILENT_DROPS),
  failure('S63', 'as L33', HEARTBEATS),

  failure('E1', 'join refused, phx_close, heartbeats answered', RECORDED_REFUSALS, RECORDED_TOPIC_ENDS),
  failure('E2', 'a sender’s name with a line in it', 'hostile names of senders cannot write a line'),
  failure('E3', 'the same row twice', ONCE),
  failure('E4', '500 inserts in a second', FLOOD),
  failure('E5', 'one message in two frames', NONSENSE),
  failure('E6', 'a binary frame', NONSENSE),
  failure(
    'E7',
    'a proxy’s 403 during a reconnect',
    'a token that is revoked while we listen ends us when the server says so in our own JSON',
    'a final answer that does not come twice is not final',
  ),
  failure(
    'E8',
    'a ticket call without an answer',
    'a ticket call that hangs, breaks, or is answered by something else is tried again',
    'accepts connections and never says a word holds nothing up',
    'answers byte by byte for ever meets a deadline',
  ),
  failure(
    'E9',
    'an upgrade without an answer',
    'a WebSocket upgrade that is never answered, or refused, is tried again',
  ),
  {
    id: 'E10',
    what: '"url": "https://…" cut at //',
    tests: [{ name: 'the entry gives base, origin and token' }],
    beyond: 'comments in JSON are the installer’s: .mcp.json has none',
  },
  {
    id: 'E11',
    what: 'strings with /* or , }',
    tests: [],
    beyond: 'the installer’s: the listener writes no configuration',
  },
  { id: 'E12', what: 'TOML sub-tables', tests: [], beyond: 'the installer’s: the listener reads no TOML' },
  failure('E13', 'EPERM and reused pids', 'EPERM means alive', 'a dead pid, a reused pid and a damaged file are stale'),
  failure(
    'E14',
    'an insert between the check and the join',
    'a message that comes between the look into the inbox and the join is not lost',
    GAP,
  ),
]

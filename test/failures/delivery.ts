import { failure } from '../helpers/known-failures.ts'

const NOT_READ =
  'waits while its receiver is gone: killed, its lease over, its server restarted, old mail deleted; then it is told'

/** Delivery, duplicates, read state. */
export const DELIVERY_FAILURES = [
  failure('D104', 'what was fetched counts as delivered, though the answer was lost on its way', {
    'mcp/connections.test.ts': ['whose client gave up before the answer came loses no message (N)'],
    'end-to-end/unread.test.ts': [
      'is shown again in full when the command that fetched it could not print it, by inbox and by wait',
    ],
    'mcp/catch-up.test.ts': ['who lost the answer sees in the next one what it showed, cut as it was'],
    'domain/inbox.test.ts': ['what was fetched within a minute is shown in full again, later as one line'],
  }),
  failure('D105', 'mail that waits is deleted with the process that it waits for', {
    'end-to-end/unread.test.ts': [NOT_READ],
    'domain/retention.test.ts': [
      'what was settled with everybody long ago is deleted; what is new, open, deferred or settled lately is not',
    ],
  }),
  failure('D106', 'a message counts as told before what tells it has been written', {
    'end-to-end/unread.test.ts': [
      'stays new when a hook told of it to a client that no longer reads, and the end of the turn tells of it',
      'counts as announced to nobody when the reader of the listener is gone',
    ],
  }),
  failure('D107', 'a list takes what it shows, and the next one hides it', {
    'domain/inbox.test.ts': [
      'a peek changes nothing, shows no new text, and counts due messages only',
      'what was fetched within a minute is shown in full again, later as one line',
    ],
    'http/routes/inbox.test.ts': ['GET shows who waits, oldest first, without text, and changes nothing'],
    'mcp/tools.test.ts': [
      'an inbox shows again what it showed a moment ago, lists the rest in one line each, and forgets what is done',
    ],
  }),
  failure('D108', 'the count says one thing and the inbox another, and a hook tells of nothing for ever', {
    'domain/inbox-counts.test.ts': [
      'what is counted is what is listed and what is shown, in every state, and nothing is counted for ever',
    ],
    'scripts/hook-listener.test.ts': [
      'a turn: a person types, a message comes, a tool tells, the end is held up once, and what is read is gone',
    ],
  }),
  failure('D109', 'an agent that was made anew finds an empty inbox, and its old one is lost in silence', {
    'end-to-end/identity.test.ts': [
      'does not begin anew: who was deleted is told so, never of an empty inbox, and nobody gets the name',
    ],
  }),
  failure('D111', 'a message to who is away is dropped, and its sender not told', {
    'end-to-end/unread.test.ts': [NOT_READ],
    'plugin/cli.test.ts': [
      'send to an offline agent is stored and exit 0; with --online-only nothing is sent and exit 3',
    ],
    'mcp/tools.test.ts': ['reach is told as it is known: wakeable, online, offline'],
  }),
  failure('D112', 'a send that is tried again is stored again, or told again', {
    'end-to-end/idempotency.test.ts': [
      'of 50 sends at once over two instances: one is stored and wakes once, all get its answer',
      'of 50 replies at once: one is stored, and the message is answered once',
      'of 50 sends with one key and two texts at once: one text is stored; the other is a conflict, always',
      'belongs to the agent, not to its token, and to no other agent',
      'is the same over REST and MCP',
    ],
    'scripts/listener.test.ts': ['the same message told twice, by both kinds of event and by the inbox, is one line'],
  }),
  failure('D113', 'ids that are made within one millisecond are the same', {
    'domain/messages.test.ts': [
      'ids that are made within a millisecond differ, on every connection, and sort by their time',
    ],
  }),
  failure('D115', 'to be done with what was shown is to be done with what was not', {
    'domain/inbox.test.ts': [
      'done settles what was shown, and says so for each id; a new or foreign one is left alone',
    ],
    'domain/inbox-counts.test.ts': ['an empty list of ids is no message, and never all of them'],
    'http/routes/delivery.test.ts': ['done and defer move what was fetched; what is new or settled stays as it is'],
  }),
  failure('D116', 'what comes between the look into the inbox and the answer to the join is lost', {
    'scripts/listener-faults.test.ts': [
      'a message that comes between the look into the inbox and the join is not lost',
      'what Realtime drops in silence is found by the slow comparison',
    ],
    'scripts/listener-recorded.test.ts': ['a message between the ok of a join and its "Subscribed" is not lost'],
  }),
]

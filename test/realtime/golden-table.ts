import type { RealtimeLimits } from '../../server/realtime/connection.ts'
import { jsonbText } from '../../server/realtime/jsonb.ts'

/** Where an answer of ours may differ from the recorded one, and why; everything else must be equal to the letter. */
export const TABLE = {
  /** The client's side: what names things of the recorded project is put as ours are called. */
  ours: [
    { why: 'our table is in a schema of its own', from: /"schema":"public"/g, to: '"schema":"patchcord"' },
    { why: 'the same, as it is printed in errors', from: /schema: public/g, to: 'schema: patchcord' },
    {
      why: 'our table has no column "attempts"; "to_agent_uuid" takes its place',
      from: /attempts(?==eq\.abc|\\", \\"eq)/g,
      to: 'to_agent_uuid',
    },
    { why: 'and is no integer', from: /type integer/g, to: 'type uuid' },
    { why: 'where the endpoint is behind a gateway', from: /^GET \/socket\//, to: 'GET /realtime/v1/' },
  ],
  /** Both sides. */
  headers: {
    server: 'we name no server',
    date: 'times',
    'sec-websocket-accept': 'keys; it is checked by the client',
    'x-request-id': 'ids',
    connection: 'our refusals say that the connection ends',
    'retry-after': 'ours say when to come again',
  } as Record<string, string>,
  /** Both sides, in the text of every frame. */
  texts: [
    {
      why: 'another table has other columns; what counts is that they are printed as jsonb is',
      from: /"record":(.*),"columns":(.*),"errors":/,
      to: (_: string, record: string, columns: string) =>
        `"record":${formOf(record)},"columns":${formOf(columns)},"errors":`,
    },
    {
      why: 'the sender of a broadcast chooses its event and payload; what counts is how they are printed',
      from: /\{"event":"[^"]*","meta":(\{.*?\}),"payload":(.*),"type":"broadcast"\}/,
      to: (_: string, meta: string, payload: string) =>
        `{"event":"…","meta":${meta},"payload":${formOf(payload)} with the id of meta: ${hasIdOf(payload, meta)},"type":"broadcast"}`,
    },
    {
      why: 'times',
      from: /"commit_timestamp":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"/g,
      to: '"commit_timestamp":"…"',
    },
    { why: 'times', from: /expired [1-9]\d* seconds ago/g, to: 'expired … seconds ago' },
    { why: 'ids', from: /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, to: '…' },
  ] as { why: string; from: RegExp; to: string | ((...parts: string[]) => string) }[],
  /** Steps that are left out of a transcript that is replayed but for them, or that become another. */
  steps: [
    {
      transcript: '74',
      step: /"event":"m"/,
      why: 'a broadcast to public channels from the database: Patchcord sends to private ones only',
    },
    ...['70', '9A'].flatMap((transcript) => [
      { transcript, step: /"event":"broadcast"/, why: 'client broadcasts are not built: not even oneself gets one' },
      {
        transcript,
        step: /"status":"ok","response":\{\}/,
        becomes: '"status":"error","response":"payload_size_exceeded"',
        why: 'the same: one with ack is answered as in 57, and whatever its join_ref is',
      },
    ]),
  ] as { transcript: string; step: RegExp; becomes?: string; why: string }[],
  /** Transcripts that are not replayed. */
  leftOut: {
    '18': 'one server is one tenant: another Host is refused with 421 before anything is looked at',
    '71': 'client broadcasts are not built: nobody receives one',
    '8D': 'presence is not built: nobody may track it, so there is no state of it to send',
  } as Record<string, string>,
  /** Recorded, but no fixture either. */
  unfit: {
    '83': '60 rows of 300 and then silence: what a limit of rows a second drops. There is no such limit here',
  },
  /** The limits of the recorded project, which are smaller than ours. */
  limits: {
    '80': { channelsMax: 3 },
    '81': { joinsBurst: 100, joinsPerToken: { burst: 33, perSecond: 0 } },
    '84': { connectionsPerTokenMax: 2 },
    '84B': { connectionsPerTokenMax: 2 },
  } as Record<string, Partial<RealtimeLimits>>,
  /** Transcripts whose apikey is one of an API token: our limits are each token's, theirs the project's. */
  namedKeys: {
    '81': 'counted before there is a channel',
    '84': 'the same',
  } as Record<string, string>,
  /** Their limits are larger; frames are cut so that they pass, or do not pass, ours: 64 KiB a frame, no byte of a broadcast. */
  characters: { '3200000': 50_000, '5000100': 70_000 } as Record<string, number>,
}

/** jsonb as Postgres prints it, or compact JSON with its keys in order. */
function formOf(text: string): string {
  const value: unknown = JSON.parse(text)
  if (jsonbText(value) === text) return '‹jsonb›'
  return JSON.stringify(sortKeys(value)) === text ? '‹compact›' : text
}

function sortKeys(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, member]) => [key, sortKeys(member)]),
  )
}

function hasIdOf(payload: string, meta: string): boolean {
  return JSON.parse(payload).id === JSON.parse(meta).id
}

import postgres from 'postgres'

// biome-ignore lint/complexity/noBannedTypes: the library's own default for "no custom types"
type NoTypes = {}
export type Sql = postgres.Sql<NoTypes>
export type TransactionSql = postgres.TransactionSql<NoTypes>
/** For a statement that does not mind whether it is part of a transaction. */
export type AnySql = Sql | TransactionSql

/** Where a database is and as whom: a URL, or a host (a name, an address, or the folder of a Unix socket) with a login. */
export type ConnectionTarget =
  | { url: string }
  | { host: string; port: number; user: string; password: string; database: string }

export interface ConnectOptions {
  /** The pool never holds more connections than this. */
  max: number
  applicationName: string
  onnotice?: (notice: postgres.Notice) => void
}

const CONNECT_TIMEOUT_SECONDS = 10
const PIPELINE_MAX = 100
const TRANSACTION_POOLER_PORT = '6543'

const OID = { int8: 20, date: 1082, timestamp: 1114, timestamptz: 1184 }
/** Every array type that a statement passes or gets. One that is not here is refused by Postgres as a malformed literal. */
export const ARRAYS = { text: 1009, uuid: 2951 }

/** Times stay text: the wire speaks ISO strings, and a `Date` would drop the microseconds that order messages. */
const timeType = {
  to: OID.timestamptz,
  from: [OID.date, OID.timestamp, OID.timestamptz],
  serialize: (value: unknown) => (value instanceof Date ? value.toISOString() : String(value)),
  parse: (text: string) => text,
}

const bigintType = {
  to: OID.int8,
  from: [OID.int8],
  serialize: (value: unknown) => String(value),
  parse: parseInt8,
}

/** Arrays of texts, and null where one is missing. */
const arrayType = {
  to: ARRAYS.text,
  from: Object.values(ARRAYS),
  serialize: (values: unknown) => (Array.isArray(values) ? `{${values.map(quoteElement).join(',')}}` : String(values)),
  parse: (text: string) =>
    Array.from(text.matchAll(/"((?:[^"\\]|\\.)*)"|([^{},"]+)/gs), ([, quoted, plain]) => {
      if (quoted !== undefined) return quoted.replaceAll(/\\(.)/gs, '$1')
      return plain === 'NULL' ? null : plain
    }),
}

function quoteElement(value: unknown): string {
  return value === null ? 'null' : `"${String(value).replaceAll(/[\\"]/g, '\\$&')}"`
}

function parseInt8(text: string): number {
  const value = Number(text)
  if (Number.isSafeInteger(value)) return value
  throw new RangeError('a bigint beyond 2^53 must be selected as text')
}

/** A pool of at most `max` connections; nothing connects before the first query. Times and UUIDs are text, bigints numbers. */
export function connect(target: ConnectionTarget, options: ConnectOptions): Sql {
  const pooled = isTransactionPooler(target)
  const settings = {
    max: options.max,
    connect_timeout: CONNECT_TIMEOUT_SECONDS,
    // Seconds. The library's own grow to 20, in which queries wait for a connection though others are idle.
    backoff: (attempts: number) => Math.min(0.1 * attempts, 1),
    connection: { application_name: options.applicationName },
    onnotice: options.onnotice ?? (() => {}),
    types: { date: timeType, int8: bigintType, array: arrayType },
    // Asked for on each new connection, by a query whose failure nobody handles: a connection that is lost then would end us.
    fetch_types: false,
    // Behind a transaction pooler a prepared statement is lost, and a pipelined query without parameters hangs for ever.
    prepare: !pooled,
    max_pipeline: pooled ? 0 : PIPELINE_MAX,
  }
  const sql = 'url' in target ? postgres(target.url, settings) : postgres({ ...target, ...settings })
  return sql as unknown as Sql
}

/** Whether the target is a pooler that lends a connection for one transaction only, by its well-known port. */
export function isTransactionPooler(target: ConnectionTarget): boolean {
  return 'url' in target && URL.canParse(target.url) && new URL(target.url).port === TRANSACTION_POOLER_PORT
}

/** The target for logs and errors: who, where and which database, never the password. */
export function describeTarget(target: ConnectionTarget): string {
  if (!('url' in target)) return `${target.user} at ${target.host}:${target.port}/${target.database}`
  if (!URL.canParse(target.url)) return 'an unreadable URL'
  const url = new URL(target.url)
  return `${decodeURIComponent(url.username)} at ${url.host}${url.pathname}`
}

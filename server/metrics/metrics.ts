import type { ErrorCode } from '../errors.ts'

/** What a message came to: `woke` somebody at once, `quiet` (a note to oneself, a settled thread, a held wake), or `replayed` by its key. */
export type SendOutcome = 'woke' | 'quiet' | 'replayed'

/**
 * How an instance learned of a wake: by its own send, from a peer; by a look at the state, because it was not `due` until then (held,
 * paused, a notice of expiry), or because everything else had missed it (`read_back`).
 */
export type WakeSource = 'send' | 'peer' | 'due' | 'read_back'

/** Who refused: a route, a tool, or the gate that stands before both. */
export type Refuser = 'http' | 'tool' | 'gate'

/** What an instance does by itself. */
export type Job = 'read_back' | 'revocations' | 'retention' | 'indexing' | 'peers'

/** What is read when it is asked for, and costs nothing until then. */
export type Reading =
  | 'sockets'
  | 'topics'
  | 'waiters'
  | 'agentCallsRunning'
  | 'peopleCallsRunning'
  | 'agentCallsWaiting'
  | 'peopleCallsWaiting'
  | 'leasesWaiting'
  | 'peersWaiting'
  | 'sendsWaiting'

/**
 * What the server counts of itself. It is told no name, id, address or text of anybody, so none can be told by it: whatever becomes
 * a label is one of a closed list, or a route's pattern.
 */
export interface Metrics {
  /** `route` is its pattern; undefined: there was none. */
  requestAnswered(method: string, route: string | undefined, status: number, milliseconds: number): void
  refused(by: Refuser, code: ErrorCode): void
  /** `outcome` is `ok` or the code of its error. */
  toolCalled(tool: string, outcome: 'ok' | ErrorCode, milliseconds: number): void
  sent(outcome: SendOutcome): void
  wakeCame(source: WakeSource): void
  wakeTaken(): void
  /** How many topics' sockets it was handed to, and how long after its publication; null: not known. */
  wakeDelivered(source: WakeSource, sockets: number, milliseconds: number | null): void
  leasesStored(rows: number, milliseconds: number): void
  jobRan(job: Job, isOk: boolean): void
  read(readings: Partial<Record<Reading, () => number>>): void
}

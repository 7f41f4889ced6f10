import type { Sql } from '../db/connect.ts'
import type { FoundWake, WakeBus } from './bus.ts'

const INTERVAL_MS = 2_000
/** A commit can come this much later than its time stamp: the API role's statement time-out, and some room. */
const OVERLAP_SECONDS = 12

/** What `read_back` gives at a time. A page that is not full is the last. */
const PAGE = 1_000

export interface ReadBackOptions {
  sql: Sql
  bus: WakeBus
  log: { warn(details: object, message: string): void }
  intervalMs?: number
  /** Told how each run went. */
  ran?: (isOk: boolean) => void
}

export interface ReadBack {
  /** Reads at once: LISTEN has just (re)connected. */
  now(): void
  close(): Promise<void>
}

/**
 * Finds wakes by state, every 2 s: new, due, not yet notified, for agents that listen here. A crash between commit and
 * wake, a lost NOTIFY, or a wake that the loop budget held until now is delayed by it and not lost.
 */
export function startReadBack(options: ReadBackOptions): ReadBack {
  const { sql, bus, log, intervalMs = INTERVAL_MS, ran } = options
  let lastSuccess = performance.now()
  let running: Promise<void> | null = null
  let isClosed = false

  async function read(): Promise<void> {
    const startedAt = performance.now()
    const seconds = (startedAt - lastSuccess) / 1000 + OVERLAP_SECONDS
    try {
      let listening: Set<string> | undefined
      for await (const wakes of readPages(sql, seconds)) {
        listening ??= bus.listeningAgentIds()
        bus.receive(wakes.filter(({ toAgentId }) => listening?.has(toAgentId)))
      }
      lastSuccess = startedAt
      ran?.(true)
    } catch (error) {
      ran?.(false)
      if (!isClosed) log.warn({ err: error }, 'read-back of wakes failed; the next one covers the same time')
    }
  }

  function now(): void {
    if (isClosed) return
    running ??= read().finally(() => {
      running = null
    })
  }

  const timer = setInterval(now, intervalMs)
  return {
    now,
    async close() {
      isClosed = true
      clearInterval(timer)
      await running
    },
  }
}

/** All wakes of the last `seconds`, whoever listens: thousands of listeners cost nothing while there are none. */
async function* readPages(sql: Sql, seconds: number): AsyncGenerator<FoundWake[]> {
  let last: FoundWake | undefined
  do {
    const after = last ? JSON.stringify({ wakeAt: last.wakeAt, id: last.id, toAgentId: last.toAgentId }) : null
    const [row] = await sql`select patchcord.read_back(${seconds}, ${after}::text::jsonb) as wakes`
    const wakes = row?.wakes as FoundWake[]
    if (wakes.length > 0) yield wakes
    last = wakes.at(PAGE - 1)
  } while (last)
}

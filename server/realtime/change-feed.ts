import { CHANGES_MAX, type Change, type Changes, type RealtimeSource } from '../domain/realtime.ts'
import { shareRuns } from './shared-run.ts'

/** A commit can come this much later than its time stamp: the API role's statement time-out, and some room. */
const OVERLAP_SECONDS = 12

export interface ChangeListener {
  readonly agentId: string
  onChange(change: Change, columns: Changes['columns']): void
}

/** Inserted rows of the agents that somebody listens for, each once per listener, in the order of the table. */
export interface ChangeFeed {
  /** Once it resolves, rows that are committed from then on are delivered, and those from before are not. */
  add(listener: ChangeListener): Promise<void>
  remove(listener: ChangeListener): void
  /** Reads at once; once it resolves, what was committed before the call has been delivered. */
  read(): Promise<void>
  /** A row may be there: reads soon, and reports a failure to the log only. */
  hint(): void
  close(): void
}

export interface ChangeFeedOptions {
  source: RealtimeSource
  pollMs: number
  onError(error: unknown): void
}

/**
 * Reads the table while there are listeners: at every wake, and every `pollMs` for what wakes nobody (silent and held
 * messages, those that a waiter took), since Supabase publishes each insert that the role may select.
 */
export function createChangeFeed({ source, pollMs, onError }: ChangeFeedOptions): ChangeFeed {
  const audience = createAudience()
  const reader = createReader(source, audience)
  const read = shareRuns(reader.readAll)
  let timer: NodeJS.Timeout | null = null
  let isClosed = false

  function hint(): void {
    read().catch((error) => {
      if (!isClosed) onError(error)
    })
  }

  function keepTimer(): void {
    const isNeeded = !isClosed && audience.hasListeners()
    if (isNeeded && !timer) timer = setInterval(hint, pollMs).unref()
    if (!isNeeded && timer) {
      clearInterval(timer)
      timer = null
    }
  }

  return {
    async add(listener) {
      await audience.admit(listener, read)
      keepTimer()
    },
    remove(listener) {
      audience.remove(listener)
      keepTimer()
    },
    read,
    hint,
    close() {
      isClosed = true
      reader.close()
      keepTimer()
    },
  }
}

type Audience = ReturnType<typeof createAudience>

/** Who listens, by agent. */
function createAudience() {
  const listeners = new Map<string, Set<ChangeListener>>()
  /** Agents whose rows are read for listeners that do not hear them yet, with how many these are. */
  const waiting = new Map<string, number>()

  return {
    hasListeners: () => listeners.size > 0,
    agentIds: () => [...new Set([...listeners.keys(), ...waiting.keys()])],
    deliver(row: Change, columns: Changes['columns']): void {
      for (const listener of [...(listeners.get(row.toAgentId) ?? [])]) listener.onChange(row, columns)
    },
    /** The listener hears what comes after this read. */
    async admit(listener: ChangeListener, read: () => Promise<void>): Promise<void> {
      const { agentId } = listener
      waiting.set(agentId, (waiting.get(agentId) ?? 0) + 1)
      try {
        await read()
        listeners.set(agentId, (listeners.get(agentId) ?? new Set()).add(listener))
      } finally {
        const left = (waiting.get(agentId) ?? 1) - 1
        if (left === 0) waiting.delete(agentId)
        else waiting.set(agentId, left)
      }
    },
    remove(listener: ChangeListener): void {
      const set = listeners.get(listener.agentId)
      if (set?.delete(listener) && set.size === 0) listeners.delete(listener.agentId)
    },
  }
}

/** Gives each row to the audience once: what is read overlaps, as rows come out of the order of their time stamps. */
function createReader(source: RealtimeSource, audience: Audience) {
  const seen = createSeenRows()
  let lastSuccess = performance.now()
  let isClosed = false

  return {
    async readAll(): Promise<void> {
      const agentIds = audience.agentIds()
      if (agentIds.length === 0 || isClosed) {
        seen.clear()
        lastSuccess = performance.now()
        return
      }
      let count = CHANGES_MAX
      while (count === CHANGES_MAX && !isClosed) {
        const startedAt = performance.now()
        const seconds = (startedAt - lastSuccess) / 1000 + OVERLAP_SECONDS
        const { columns, rows } = await source.readChanges(agentIds, seconds, seen.keys())
        count = rows.length
        for (const row of rows) {
          seen.add(row, startedAt)
          audience.deliver(row, columns)
        }
        if (count < CHANGES_MAX) lastSuccess = startedAt
      }
      seen.forget(lastSuccess - (OVERLAP_SECONDS + 1) * 1000)
    },
    close(): void {
      isClosed = true
    },
  }
}

/** Rows in the order in which they were read, with when. */
function createSeenRows() {
  const readAt = new Map<string, number>()
  return {
    keys: () => [...readAt.keys()],
    add: (row: Change, at: number) => void readAt.set(`${row.id} ${row.toAgentId}`, at),
    clear: () => readAt.clear(),
    /** What was read before a time, which the next reads cannot give again. */
    forget(before: number): void {
      for (const [key, at] of readAt) {
        if (at >= before) break
        readAt.delete(key)
      }
    },
  }
}

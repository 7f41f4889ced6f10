import { CHANGES_MAX, type Change, type Changes, type RealtimeSource } from '../domain/realtime.ts'

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
  const listeners = new Map<string, Set<ChangeListener>>()
  const waiting = new Map<string, number>()
  /** Rows that were read, with when. */
  const seen = new Map<string, number>()
  let lastSuccess = performance.now()
  let running: Promise<void> | null = null
  let queued: Promise<void> | null = null
  let timer: NodeJS.Timeout | null = null
  let isClosed = false

  async function readAll(): Promise<void> {
    const agentIds = [...new Set([...listeners.keys(), ...waiting.keys()])]
    if (agentIds.length === 0 || isClosed) {
      seen.clear()
      lastSuccess = performance.now()
      return
    }
    let count = CHANGES_MAX
    while (count === CHANGES_MAX && !isClosed) {
      const startedAt = performance.now()
      const seconds = (startedAt - lastSuccess) / 1000 + OVERLAP_SECONDS
      const { columns, rows } = await source.readChanges(agentIds, seconds, [...seen.keys()])
      count = rows.length
      for (const row of rows) {
        seen.set(`${row.id} ${row.toAgentId}`, startedAt)
        for (const listener of [...(listeners.get(row.toAgentId) ?? [])]) listener.onChange(row, columns)
      }
      if (count < CHANGES_MAX) lastSuccess = startedAt
    }
    forgetOld()
  }

  /** What the next reads cannot give again. */
  function forgetOld(): void {
    const oldest = lastSuccess - (OVERLAP_SECONDS + 1) * 1000
    for (const [key, at] of seen) {
      if (at >= oldest) break
      seen.delete(key)
    }
  }

  /** One read at a time; who asks while one is under way shares the next. */
  function read(): Promise<void> {
    if (!running) {
      running = readAll().finally(() => {
        running = null
      })
      return running
    }
    queued ??= running
      .catch(() => undefined)
      .then(() => {
        queued = null
        return read()
      })
    return queued
  }

  function hint(): void {
    read().catch((error) => {
      if (!isClosed) onError(error)
    })
  }

  function keepTimer(): void {
    const isNeeded = !isClosed && listeners.size > 0
    if (isNeeded && !timer) timer = setInterval(hint, pollMs).unref()
    if (!isNeeded && timer) {
      clearInterval(timer)
      timer = null
    }
  }

  return {
    async add(listener) {
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
      keepTimer()
    },
    remove(listener) {
      const set = listeners.get(listener.agentId)
      if (set?.delete(listener) && set.size === 0) listeners.delete(listener.agentId)
      keepTimer()
    },
    read,
    hint,
    close() {
      isClosed = true
      keepTimer()
    },
  }
}

import { setTimeout as sleep } from 'node:timers/promises'
import type { Sql } from '../db/connect.ts'

const INTERVAL_MS = 3_600_000
/** A server that has just come up has better things to do. */
const FIRST_MS = 60_000
/** Small, so that nobody waits for one and its locks; and with a pause, so that it takes no more than its share. */
const BATCH = 500
const PAUSE_MS = 50

export interface RetentionOptions {
  sql: Sql
  days: number
  log: { info(details: object, message: string): void; warn(details: object, message: string): void }
  /** Told how each run went. */
  ran?: (isOk: boolean) => void
  intervalMs?: number
  firstMs?: number
  batch?: number
}

/** How many of each were deleted; `threads` only in the last of many batches. */
export type Purged = Record<string, number>

/** One batch: see `patchcord.purge`. */
export async function purgeOnce(sql: Sql, days: number, batch = BATCH): Promise<Purged> {
  const [row] = await sql`select patchcord.purge(${days}, ${batch}) as counts`
  return row?.counts as Purged
}

/** One batch of what is left of deleted namespaces: how many rows went. See `patchcord.purge_deleted`. */
export async function purgeDeletedOnce(sql: Sql, batch = BATCH): Promise<number> {
  const [row] = await sql`select patchcord.purge_deleted(${batch}) as count`
  return row?.count as number
}

/**
 * Deletes what has been settled for longer than `days`, once an hour, in small batches. Every instance does: each takes what
 * no other holds.
 */
export function startRetention(options: RetentionOptions): { close(): Promise<void> } {
  const { log, intervalMs = INTERVAL_MS, firstMs = FIRST_MS, ran } = options
  const closing = new AbortController()
  let running: Promise<void> | null = null
  let timer: NodeJS.Timeout | undefined

  async function run(): Promise<void> {
    try {
      const purged = await purgeAll(options, closing.signal)
      if (Object.values(purged).some((count) => count > 0)) log.info({ purged }, 'old rows were deleted')
      ran?.(true)
    } catch (error) {
      ran?.(false)
      if (!closing.signal.aborted) log.warn({ err: error }, 'old rows could not be deleted; the next try covers them')
    }
  }

  function plan(ms: number): void {
    timer = setTimeout(() => {
      running = run().finally(() => {
        running = null
        if (!closing.signal.aborted) plan(intervalMs)
      })
    }, ms)
  }

  plan(firstMs)
  return {
    async close() {
      closing.abort()
      clearTimeout(timer)
      await running
    },
  }
}

async function purgeAll({ sql, days, batch = BATCH }: RetentionOptions, signal: AbortSignal): Promise<Purged> {
  const all: Purged = {}
  const isMore = (purged: Purged) => {
    for (const [name, count] of Object.entries(purged)) all[name] = (all[name] ?? 0) + count
    return !signal.aborted && Object.values(purged).some((count) => count >= batch)
  }
  while (isMore(await purgeOnce(sql, days, batch))) await sleep(PAUSE_MS, undefined, { signal })
  for (;;) {
    const count = await purgeDeletedOnce(sql, batch)
    all.deleted = (all.deleted ?? 0) + count
    if (signal.aborted || count === 0) return all
    await sleep(PAUSE_MS, undefined, { signal })
  }
}

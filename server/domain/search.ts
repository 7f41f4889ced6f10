import type { Sql } from '../db/connect.ts'

const INTERVAL_MS = 2_000
/** Small, so that it takes no more than its share. */
const BATCH = 200
const PAUSE_MS = 20

export interface IndexingOptions {
  sql: Sql
  log: { warn(details: object, message: string): void }
  intervalMs?: number
  /** Told how each run went. */
  ran?: (isOk: boolean) => void
}

/**
 * Notes the words of new messages, every 2 s, so that a search finds them by the index and has little left to note itself. One
 * instance at a time does.
 */
export function startIndexing({ sql, log, intervalMs = INTERVAL_MS, ran }: IndexingOptions): {
  close(): Promise<void>
} {
  let isClosed = false
  let running: Promise<void> | null = null
  let timer: NodeJS.Timeout | undefined

  async function run(): Promise<void> {
    let pauseMs = intervalMs
    try {
      if ((await indexWords(sql)) === BATCH) pauseMs = PAUSE_MS
      ran?.(true)
    } catch (error) {
      ran?.(false)
      if (!isClosed) log.warn({ err: error }, 'words of new messages were not noted; the next try covers them')
    }
    if (!isClosed) plan(pauseMs)
  }

  function plan(ms: number): void {
    timer = setTimeout(() => {
      running = run()
    }, ms)
  }

  plan(intervalMs)
  return {
    async close() {
      isClosed = true
      clearTimeout(timer)
      await running
    },
  }
}

/** One batch: see `patchcord.index_words`. How many messages it was. */
export async function indexWords(sql: Sql, batch = BATCH): Promise<number> {
  const [row] = await sql`select patchcord.index_words(${batch}) as count`
  return row?.count as number
}

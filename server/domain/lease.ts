import type { z } from 'zod'
import type { Sql } from '../db/connect.ts'
import { checkEntrance, type Entrance } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'
import { type LeaseRow, type RenewLease, storeLeases } from './presence.ts'

const INTERVAL_MS = 1_000
/** As many as the endpoint has connections for pass in three statements. */
const ROWS_MAX = 10_000

export interface LeaseBatch {
  /** Resolves once the lease and the announced ids are committed; throws what the token is refused with, or unavailable. */
  renew(tokenHash: string, input: z.output<typeof RenewLease>): Promise<void>
  /** What waits is stored at once, and so is whatever still comes. */
  close(): Promise<void>
  /** Renewals that wait for their statement. */
  readonly waiting: number
}

export interface LeaseBatchOptions {
  intervalMs?: number
  /** Told of each statement that has stored renewals: how many, and how long it took. */
  stored?: (rows: number, milliseconds: number) => void
}

interface Waiting {
  row: Omit<LeaseRow, 'waited_seconds'>
  askedAt: number
  resolve(): void
  reject(error: unknown): void
}

/**
 * Renewals of thousands of listeners in one statement per second: the first goes at once, those of the second after it go
 * together. A caller is answered after the commit and not before: a 204 that a crash could take back would let a listener
 * forget ids that nobody has noted, and a refused token has to hear of it from the very call.
 */
export function createLeaseBatch(sql: Sql, { intervalMs = INTERVAL_MS, stored }: LeaseBatchOptions = {}): LeaseBatch {
  let waiting: Waiting[] = []
  let startedAt = Number.NEGATIVE_INFINITY
  let timer: NodeJS.Timeout | undefined
  let running: Promise<void> | null = null
  let isClosing = false

  function plan(): void {
    if (timer || running || waiting.length === 0) return
    const delay = isClosing ? 0 : Math.max(0, startedAt + intervalMs - performance.now())
    timer = setTimeout(start, delay)
  }

  function start(): void {
    timer = undefined
    startedAt = performance.now()
    const batch = waiting.slice(0, ROWS_MAX)
    waiting = waiting.slice(ROWS_MAX)
    running = store(sql, batch, stored).finally(() => {
      running = null
      plan()
    })
  }

  return {
    get waiting() {
      return waiting.length
    },
    renew(hash, input) {
      return new Promise<void>((resolve, reject) => {
        waiting.push({ row: { hash, ...input }, askedAt: performance.now(), resolve, reject })
        plan()
      })
    },
    async close() {
      isClosing = true
      clearTimeout(timer)
      timer = undefined
      plan()
      while (timer || running) await (running ?? new Promise((resolve) => setImmediate(resolve)))
    },
  }
}

/** Never rejects. A batch that fails for another reason than the database's absence is halved until the row that it is stands alone. */
async function store(sql: Sql, batch: Waiting[], stored: LeaseBatchOptions['stored']): Promise<void> {
  const now = performance.now()
  const rows = batch.map(({ row, askedAt }) => ({ ...row, waited_seconds: (now - askedAt) / 1000 }))
  try {
    const outcomes = await storeLeases(sql, rows)
    stored?.(rows.length, performance.now() - now)
    for (const [index, each] of batch.entries()) answer(each, outcomes[index])
  } catch (error) {
    const isAway = error instanceof PatchcordError && error.code === 'unavailable'
    if (isAway || batch.length === 1) {
      for (const each of batch) each.reject(error)
      return
    }
    const middle = Math.ceil(batch.length / 2)
    await store(sql, batch.slice(0, middle), stored)
    await store(sql, batch.slice(middle), stored)
  }
}

function answer(each: Waiting, outcome: Entrance | undefined): void {
  try {
    checkEntrance(outcome ?? { outcome: 'token_rejected' })
    each.resolve()
  } catch (error) {
    each.reject(error)
  }
}

import { availableParallelism } from 'node:os'

/** A statement that takes longer waits for a lock, or for an answer that will not come: it must not keep the others waiting. */
const LANE_MS = 100

export interface LanesOptions {
  /** How many wait now. */
  countWaiting(): number
  /** With so many waiting, another statement beside those under way is worth its connection. */
  anotherAt: number
  /** Takes from what waits and ends when that is done. Never rejects. */
  run(): Promise<void>
  lanes?: number | undefined
}

/**
 * Natural batching: nothing waits for more to come, but what comes while a statement is under way goes together in the next one; when
 * much waits, in one beside it, up to one for each core. More of them would only wait for each other's cores and locks. Call what
 * this gives whenever something new waits.
 */
export function createLanes({
  countWaiting,
  anotherAt,
  run,
  lanes = availableParallelism(),
}: LanesOptions): () => void {
  let running = 0
  let isStarting = false

  function isWorthALane(): boolean {
    if (running === 0) return countWaiting() > 0
    return running < lanes && countWaiting() >= anotherAt
  }

  /** What this turn of the event loop brings comes along. */
  function start(): void {
    if (isStarting || !isWorthALane()) return
    isStarting = true
    setImmediate(() => {
      isStarting = false
      while (isWorthALane()) void runNext()
    })
  }

  async function runNext(): Promise<void> {
    running++
    try {
      await waitFor(run())
    } finally {
      running--
      start()
    }
  }

  return start
}

async function waitFor(work: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, LANE_MS)
  })
  await Promise.race([work, late])
  clearTimeout(timer)
}

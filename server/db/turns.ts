import { PatchcordError } from '../errors.ts'

/** Statements of one token that run at once. They lock the token's row anyway; in the pool they would stand before everybody else's. */
const RUNNING_MAX = 2
const WAITING_MAX = 500

/** Runs work when fewer than so many of the same key are under way. Throws rate_limited when too many wait already. */
export type Turns = <T>(key: string, work: () => Promise<T>) => Promise<T>

/** What all pages for people may use at once of a pool of ten: agents always find a connection that is free. */
const PEOPLE_RUNNING_MAX = 4

/** By session, and all of them together: whoever opens fifty pages at once, or makes sessions up, holds up no message. */
export function createPeopleTurns(): Turns {
  const [each, all] = [createTurns(), createTurns(PEOPLE_RUNNING_MAX)]
  return (key, work) => each(key, () => all('', work))
}

/** By token: the 200 calls that one agent makes at once wait for each other, and nobody else for them. */
export function createTurns(runningMax = RUNNING_MAX): Turns {
  const queues = new Map<string, { running: number; waiting: (() => void)[] }>()

  async function take(key: string): Promise<void> {
    const queue = queues.get(key) ?? { running: 0, waiting: [] }
    queues.set(key, queue)
    if (queue.running < runningMax) {
      queue.running++
      return
    }
    if (queue.waiting.length >= WAITING_MAX) {
      throw new PatchcordError('rate_limited', `${WAITING_MAX} calls wait for their turn already.`, {
        hint: 'Make fewer calls at once.',
        retryAfterSeconds: 5,
      })
    }
    await new Promise<void>((resolve) => queue.waiting.push(resolve))
  }

  function pass(key: string): void {
    const queue = queues.get(key)
    const next = queue?.waiting.shift()
    if (next) next()
    else if (queue && --queue.running === 0) queues.delete(key)
  }

  return async (key, work) => {
    await take(key)
    try {
      return await work()
    } finally {
      pass(key)
    }
  }
}

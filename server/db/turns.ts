import { PatchcordError } from '../errors.ts'

/** Statements of one token that run at once. They lock the token's row anyway; in the pool they would stand before everybody else's. */
const RUNNING_MAX = 2
const WAITING_MAX = 500

/** Runs work when fewer than so many of the same key are under way. Throws rate_limited when too many wait already. */
export interface Turns {
  <T>(key: string, work: () => Promise<T>): Promise<T>
  readonly load: Load
}

/** Of all keys together. */
export interface Load {
  running: number
  waiting: number
}

/** What all pages for people may use at once of a pool of ten: agents always find a connection that is free. */
const PEOPLE_RUNNING_MAX = 4

/** By session, and all of them together: whoever opens fifty pages at once, or makes sessions up, holds up no message. */
export function createPeopleTurns(): Turns {
  const [each, all] = [createTurns(), createTurns(PEOPLE_RUNNING_MAX)]
  const load = {
    get running() {
      return all.load.running
    },
    get waiting() {
      return each.load.waiting + all.load.waiting
    },
  }
  return Object.assign(<T>(key: string, work: () => Promise<T>) => each(key, () => all('', work)), { load })
}

/** By token: the 200 calls that one agent makes at once wait for each other, and nobody else for them. */
export function createTurns(runningMax = RUNNING_MAX): Turns {
  const load: Load = { running: 0, waiting: 0 }
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
    load.waiting++
    await new Promise<void>((resolve) => queue.waiting.push(resolve))
    load.waiting--
  }

  function pass(key: string): void {
    const queue = queues.get(key)
    const next = queue?.waiting.shift()
    if (next) next()
    else if (queue && --queue.running === 0) queues.delete(key)
  }

  async function turns<T>(key: string, work: () => Promise<T>): Promise<T> {
    await take(key)
    load.running++
    try {
      return await work()
    } finally {
      load.running--
      pass(key)
    }
  }
  return Object.assign(turns, { load })
}

/** Waiting between tries: exponential steps with full jitter, so that a restarted server is not met by everybody at once. */

/** No server may silence us for longer. */
const ASKED_MS_MAX = 300_000
const ASKED_SPREAD = 0.2

/** @typedef {{ next: () => number, reset: () => void }} Backoff */

/**
 * @param {readonly number[]} stepsMs upper bounds; the last one repeats
 * @param {() => number} [random]
 * @returns {Backoff} `next` gives the milliseconds to wait, between 0 and the current step
 */
export function createBackoff(stepsMs, random = Math.random) {
  let index = 0
  return {
    next() {
      const step = stepsMs[Math.min(index, stepsMs.length - 1)] ?? 0
      index += 1
      return Math.round(random() * step)
    },
    reset() {
      index = 0
    },
  }
}

/**
 * A wait that a server has asked for: no shorter, but bounded, and longer by a part that differs, as everybody was told the
 * same time and they must not all come back at its end.
 * @param {number} ms @param {() => number} [random]
 */
export function spreadAskedWait(ms, random = Math.random) {
  return Math.round(Math.min(ms, ASKED_MS_MAX) * (1 + ASKED_SPREAD * random()))
}

/**
 * Resolves after the time or as soon as the signal aborts; never rejects.
 * @param {number} ms @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function sleep(ms, signal) {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve()
    const finish = () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', finish)
      resolve()
    }
    const timer = setTimeout(finish, ms)
    signal?.addEventListener('abort', finish, { once: true })
  })
}

/**
 * Comparing with the inbox, which is the truth that Realtime only hints at. Requests that come together are one call; a
 * call that fails is owed and tried again until it succeeds.
 */
import { ApiError } from './api.mjs'
import { createBackoff, sleep } from './backoff.mjs'
import { describeError } from './text.mjs'

/**
 * @typedef {object} InboxCheckOptions
 * @property {() => void} onRefused the server's own JSON says that the token is of no use any more
 * @property {() => Promise<import('./api.mjs').Pending[]>} listPending
 * @property {(pending: import('./api.mjs').Pending[]) => void} onPending
 * @property {(text: string) => void} log
 * @property {import('./config.mjs').Times} times
 * @property {AbortSignal} signal
 */

/** @param {InboxCheckOptions} options @returns {{ request: () => void }} */
export function createInboxCheck({ listPending, onPending, onRefused, log, times, signal }) {
  let isOwed = false
  let isRunning = false
  /** @type {NodeJS.Timeout | undefined} */
  let slowTimer
  signal.addEventListener('abort', () => clearTimeout(slowTimer), { once: true })

  async function run() {
    const backoff = createBackoff(times.backoffMs)
    while (isOwed && !signal.aborted) {
      isOwed = false
      const isDone = await compare()
      if (isDone) backoff.reset()
      else isOwed = true
      await sleep(isDone ? times.compareGapMs : times.compareGapMs + backoff.next(), signal)
    }
    isRunning = false
  }

  async function compare() {
    try {
      const pending = await listPending()
      if (!signal.aborted) onPending(pending)
      planSlow()
      return true
    } catch (error) {
      if (signal.aborted) return false
      log(`inbox check failed: ${describeError(error)}`)
      if (error instanceof ApiError && error.fatalText !== null) onRefused()
      return false
    }
  }

  function planSlow() {
    clearTimeout(slowTimer)
    if (!signal.aborted) slowTimer = setTimeout(request, times.compareMs)
  }

  function request() {
    isOwed = true
    if (isRunning || signal.aborted) return
    isRunning = true
    void run()
  }

  return { request }
}

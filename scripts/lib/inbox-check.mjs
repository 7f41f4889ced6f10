/**
 * Comparing with the inbox, which is the truth that Realtime only hints at. Requests that come together are one call; a
 * call that fails is owed and tried again until it succeeds.
 */
import { ApiError, readRetryAfterMs } from './api.mjs'
import { createBackoff, sleep } from './backoff.mjs'
import { describeError } from './text.mjs'

/** Listeners that a restart has brought together drift apart again: each slow comparison comes up to this part earlier. */
const SLOW_SPREAD = 0.2

/**
 * @typedef {object} InboxCheckOptions
 * @property {() => void} onRefused the server's own JSON says that the token is of no use any more
 * @property {() => Promise<import('./api.mjs').Pending[]>} listPending
 * @property {(pending: import('./api.mjs').Pending[], isSlow: boolean) => void} onPending isSlow: nothing but the time that has
 *   passed was a reason to look
 * @property {(text: string) => void} log
 * @property {import('./config.mjs').Times} times
 * @property {AbortSignal} signal
 */

/**
 * @param {InboxCheckOptions} options
 * @returns {{ request: (withinMs?: number) => void }} asks for a comparison that begins after this moment: at once, or within
 *   the time, if none comes before for another reason
 */
export function createInboxCheck({ listPending, onPending, onRefused, log, times, signal }) {
  let isOwed = false
  let isRunning = false
  let isSlow = false
  /** @type {NodeJS.Timeout | undefined} */
  let slowTimer
  /** @type {NodeJS.Timeout | undefined} */
  let soonTimer
  signal.addEventListener('abort', clearTimers, { once: true })

  async function run() {
    const backoff = createBackoff(times.backoffMs)
    while (isOwed && !signal.aborted) {
      isOwed = false
      clearTimers()
      const error = await compare()
      if (error === null) backoff.reset()
      else isOwed = true
      const wait = error === null ? 0 : readRetryAfterMs(error) + backoff.next()
      await sleep(times.compareGapMs + wait, signal)
    }
    isRunning = false
  }

  /** @returns {Promise<unknown>} null, or why it is still owed */
  async function compare() {
    try {
      const pending = await listPending()
      if (!signal.aborted) onPending(pending, isSlow)
      isSlow = false
      planSlow()
      return null
    } catch (error) {
      if (signal.aborted) return error
      log(`inbox check failed: ${describeError(error)}`)
      if (error instanceof ApiError && error.fatalText !== null) onRefused()
      return error
    }
  }

  function planSlow() {
    clearTimeout(slowTimer)
    if (!signal.aborted) slowTimer = setTimeout(requestSlow, times.compareMs * (1 - SLOW_SPREAD * Math.random()))
  }

  function requestSlow() {
    isSlow = !isRunning
    request()
  }

  function request(withinMs = 0) {
    // The one that is owed has not begun.
    if (isOwed || signal.aborted) return
    if (withinMs > 0) {
      soonTimer ??= setTimeout(request, withinMs)
      return
    }
    isOwed = true
    if (isRunning) return
    isRunning = true
    void run()
  }

  function clearTimers() {
    clearTimeout(slowTimer)
    clearTimeout(soonTimer)
    soonTimer = undefined
  }

  return { request }
}

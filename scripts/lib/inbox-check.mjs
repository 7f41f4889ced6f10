/**
 * Comparing with the inbox, which is the truth that Realtime only hints at. Requests that come together are one call; a
 * call that fails is owed and tried again until it succeeds.
 */
import { ApiError, readRetryAfterMs } from './api.mjs'
import { createBackoff, sleep } from './backoff.mjs'
import { describeError } from './basics.cjs'

/** Listeners that a restart has brought together drift apart again: each slow comparison comes up to this part earlier. */
const SLOW_SPREAD = 0.2

/**
 * @typedef {object} InboxCheckOptions
 * @property {() => void} onRefused the server's own JSON says that the token is of no use any more
 * @property {() => Promise<import('./api.mjs').Pending[]>} listPending
 * @property {(pending: import('./api.mjs').Pending[], isSlow: boolean) => void} onPending isSlow: nothing but the time that has
 *   passed was a reason to look
 * @property {(text: string) => void} log
 * @property {import('./config.cjs').Times} times
 * @property {AbortSignal} signal
 */

export class InboxCheck {
  #options
  /** A comparison is asked for and has not begun. */
  #isOwed = false
  #isRunning = false
  #isSlow = false
  /** @type {NodeJS.Timeout | undefined} */
  #slowTimer
  /** @type {NodeJS.Timeout | undefined} */
  #soonTimer

  /** @param {InboxCheckOptions} options */
  constructor(options) {
    this.#options = options
    options.signal.addEventListener('abort', () => this.#clearTimers(), { once: true })
  }

  /** Asks for a comparison that begins after this moment: at once, or within the time if none comes before for another reason. */
  request(withinMs = 0) {
    if (this.#isOwed || this.#options.signal.aborted) return
    if (withinMs > 0) {
      this.#soonTimer ??= setTimeout(() => this.request(), withinMs)
      return
    }
    this.#isOwed = true
    if (!this.#isRunning) void this.#run()
  }

  async #run() {
    const { times, signal } = this.#options
    const backoff = createBackoff(times.backoffMs)
    this.#isRunning = true
    while (this.#isOwed && !signal.aborted) {
      this.#isOwed = false
      this.#clearTimers()
      const error = await this.#compare()
      if (error === null) backoff.reset()
      else this.#isOwed = true
      const wait = error === null ? 0 : readRetryAfterMs(error) + backoff.next()
      await sleep(times.compareGapMs + wait, signal)
    }
    this.#isRunning = false
  }

  /** @returns {Promise<unknown>} null, or why it is still owed */
  async #compare() {
    const { listPending, onPending, onRefused, log, signal } = this.#options
    try {
      const pending = await listPending()
      if (!signal.aborted) onPending(pending, this.#isSlow)
      this.#isSlow = false
      this.#planSlow()
      return null
    } catch (error) {
      if (signal.aborted) return error
      log(`inbox check failed: ${describeError(error)}`)
      if (error instanceof ApiError && error.fatalText !== null) onRefused()
      return error
    }
  }

  #planSlow() {
    const { times, signal } = this.#options
    clearTimeout(this.#slowTimer)
    if (signal.aborted) return
    this.#slowTimer = setTimeout(
      () => {
        this.#isSlow = !this.#isRunning
        this.request()
      },
      times.compareMs * (1 - SLOW_SPREAD * Math.random()),
    )
  }

  #clearTimers() {
    clearTimeout(this.#slowTimer)
    clearTimeout(this.#soonTimer)
    this.#soonTimer = undefined
  }
}

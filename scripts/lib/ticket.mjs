/** Getting a ticket, which is what a listener needs first and after every loss; it alone decides what is final. */
import { ApiError, readRetryAfterMs } from './api.mjs'
import { sleep } from './backoff.mjs'
import { describeError } from './basics.cjs'

/** @typedef {import('./api.mjs').Ticket} Ticket */

/** What no later try can mend; the message is the contract's sentence. */
export class FatalError extends Error {}

/**
 * Asks for a ticket until there is one or the interruption comes.
 * @param {{ api: import('./api.mjs').Api, log: (text: string) => void, times: import('./config.cjs').Times, signal: AbortSignal }} options
 * @param {import('./backoff.mjs').Backoff} backoff
 * @param {AbortSignal} interruption
 * @param {() => void} [onFailure]
 * @returns {Promise<Ticket | null>} null: interrupted
 * @throws {FatalError}
 */
export async function getTicketWithRetry({ api, log, times, signal }, backoff, interruption, onFailure) {
  while (!signal.aborted && !interruption.aborted) {
    try {
      return await getTicketTwice(api, times, interruption)
    } catch (error) {
      if (error instanceof FatalError) throw error
      if (signal.aborted || interruption.aborted) return null
      log(`ticket refresh failed: ${describeError(error)}`)
      onFailure?.()
      const ms = readRetryAfterMs(error) + backoff.next()
      log(`reconnecting in ${ms}ms`)
      await sleep(ms, interruption)
    }
  }
  return null
}

/**
 * A final refusal counts only when it comes twice: a server in the middle of a restart may say anything once.
 * @param {import('./api.mjs').Api} api @param {import('./config.cjs').Times} times @param {AbortSignal} interruption
 */
async function getTicketTwice(api, times, interruption) {
  try {
    return await api.getTicket()
  } catch (error) {
    if (!(error instanceof ApiError) || error.fatalText === null) throw error
    await sleep(times.askAgainMs, interruption)
    if (interruption.aborted) throw error
    return await api.getTicket().catch((again) => {
      if (again instanceof ApiError && again.fatalText === error.fatalText) throw new FatalError(again.fatalText ?? '')
      throw again
    })
  }
}

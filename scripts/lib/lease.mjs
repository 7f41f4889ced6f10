/**
 * The lease that makes an agent wakeable in the eyes of others: renewed while this listener hears and is heard, told of every
 * line that was written. A lease call that fails never harms the listening.
 */
import { describeError } from './text.mjs'

/** The database takes one row per id; a call stays small. */
const ANNOUNCED_PER_CALL = 500

/**
 * @typedef {object} LeaseOptions
 * @property {import('./api.mjs').Api} api
 * @property {{ session: string, client: string, machine: string }} who
 * @property {() => boolean} isHeard whether stdout drains
 * @property {(text: string) => void} log
 * @property {import('./config.mjs').Times} times
 */

export class Lease {
  #api
  #who
  #isHeard
  #log
  #times
  /** Ids whose line was written and which the server has not confirmed. @type {string[]} */
  #announced = []
  #isHearing = false
  #isHeld = false
  #isCalling = false
  #isEnded = false
  #lastProblem = ''
  /** @type {NodeJS.Timeout | undefined} */
  #timer

  /** @param {LeaseOptions} options */
  constructor({ api, who, isHeard, log, times }) {
    this.#api = api
    this.#who = who
    this.#isHeard = isHeard
    this.#log = log
    this.#times = times
  }

  /** Whether Realtime is joined. When it no longer is, the lease is left to run out unless it soon is again. @param {boolean} isHearing */
  setHearing(isHearing) {
    this.#isHearing = isHearing
    if (isHearing) this.#plan(0)
  }

  /** @param {string} id a message whose line was written just now */
  noteAnnounced(id) {
    this.#announced.push(id)
    this.#plan(this.#times.leaseAfterLineMs)
  }

  /** @param {number} ms */
  #plan(ms) {
    clearTimeout(this.#timer)
    if (!this.#isEnded) this.#timer = setTimeout(() => void this.#renew(), ms)
  }

  async #renew() {
    if (this.#isCalling) return this.#plan(this.#times.leaseAfterLineMs)
    if (!this.#isHeard() || (!this.#isHearing && this.#announced.length === 0)) return this.#plan(this.#times.leaseMs)
    this.#isCalling = true
    // From here on, as a call that is cut off may have reached the server all the same.
    this.#isHeld = true
    const told = this.#announced.slice(0, ANNOUNCED_PER_CALL)
    try {
      await this.#api.putLease({ ...this.#who, announced: told })
      this.#lastProblem = ''
      this.#announced.splice(0, told.length)
    } catch (error) {
      this.#complain(describeError(error))
    }
    this.#isCalling = false
    const hasMore = this.#announced.length > 0 && this.#lastProblem === ''
    this.#plan(hasMore ? this.#times.leaseAfterLineMs : this.#times.leaseMs)
  }

  /** The same problem is told once, not every 30 s. @param {string} problem */
  #complain(problem) {
    if (!this.#isEnded && problem !== this.#lastProblem) this.#log(`lease failed: ${problem}`)
    this.#lastProblem = problem
  }

  /** Gives the lease back, so that nobody takes this agent for wakeable; never rejects. */
  async end() {
    this.#isEnded = true
    clearTimeout(this.#timer)
    if (!this.#isHeld) return
    this.#isHeld = false
    await this.#api.deleteLease(this.#who.session, this.#times.exitMs).catch(() => {})
  }
}

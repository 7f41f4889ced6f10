/**
 * The lease that makes an agent wakeable in the eyes of others: renewed while this listener hears and is heard, told of every
 * line that was written. A listener that no longer hears keeps it for as long as a reconnect may take, and then gives it back:
 * what it still finds in the inbox it tells of, but nobody is to count on that. A lease call that fails never harms the listening.
 */
import { monotonicMs } from './node.mjs'
import { describeError } from './text.mjs'

/** The database takes one row per id; a call stays small. */
const ANNOUNCED_PER_CALL = 500

/**
 * @typedef {object} LeaseOptions
 * @property {Pick<import('./api.mjs').Api, 'putLease' | 'deleteLease'>} api
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
  /** Ids whose line was written and which the server has not confirmed. @type {Set<string>} */
  #announced = new Set()
  #isHearing = false
  /** Until then a listener that does not hear may keep what it has. */
  #graceEndsAt
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
    this.#graceEndsAt = monotonicMs() + times.leaseGraceMs
  }

  /** Whether Realtime is joined. @param {boolean} isHearing */
  setHearing(isHearing) {
    if (isHearing === this.#isHearing) return
    this.#isHearing = isHearing
    this.#graceEndsAt = monotonicMs() + this.#times.leaseGraceMs
    this.#plan(isHearing ? 0 : this.#times.leaseGraceMs)
  }

  /** @param {string} id a message whose line was written just now */
  noteAnnounced(id) {
    this.#announced.add(id)
    this.#plan(this.#times.leaseAfterLineMs)
  }

  /** @param {string} id which is not remembered any more: if it is new all the same, it is announced, and so noted, once more */
  forget(id) {
    this.#announced.delete(id)
  }

  get #isWakeable() {
    return this.#isHearing || monotonicMs() < this.#graceEndsAt
  }

  /** @param {number} ms */
  #plan(ms) {
    clearTimeout(this.#timer)
    if (!this.#isEnded) this.#timer = setTimeout(() => void this.#act(), ms)
  }

  async #act() {
    if (this.#isCalling) return this.#plan(this.#times.leaseAfterLineMs)
    const isTold = this.#announced.size > 0 && this.#isHeard()
    this.#isCalling = true
    if (isTold || (this.#isHearing && this.#isHeard())) await this.#renew()
    if (!this.#isWakeable && this.#isHeld) await this.#giveBack()
    this.#isCalling = false
    this.#planNext()
  }

  #planNext() {
    const untilGraceEnds = this.#graceEndsAt - monotonicMs()
    if (this.#announced.size > 0 && this.#lastProblem === '' && this.#isHeard()) {
      this.#plan(this.#times.leaseAfterLineMs)
    } else if (this.#isHearing && !this.#isHeld) {
      // It came back while the lease was being given back.
      this.#plan(this.#isHeard() ? 0 : this.#times.leaseMs)
    } else if (this.#isHearing || this.#announced.size > 0) this.#plan(this.#times.leaseMs)
    else if (this.#isHeld) this.#plan(Math.max(untilGraceEnds, 0) + 1)
  }

  async #renew() {
    // From here on, as a call that is cut off may have reached the server all the same.
    this.#isHeld = true
    const told = [...this.#announced].slice(0, ANNOUNCED_PER_CALL)
    try {
      await this.#api.putLease({ ...this.#who, announced: told })
      this.#lastProblem = ''
      for (const id of told) this.#announced.delete(id)
    } catch (error) {
      this.#complain(describeError(error))
    }
  }

  /** If that fails it runs out by itself. @param {number} [timeoutMs] */
  async #giveBack(timeoutMs = this.#times.httpMs) {
    this.#isHeld = false
    await this.#api.deleteLease(this.#who.session, timeoutMs).catch(() => {})
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
    if (this.#isHeld) await this.#giveBack(this.#times.exitMs)
  }
}

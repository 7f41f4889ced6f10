/**
 * How many wakes there may be: a bucket that loses one with each wake and gains one with each span of time. What an agent has left
 * outlives the listener, in `wakes_<key>.json` of the runtime folder: a thread that ends and begins again has no more than before.
 */
import { lstatSync, readFileSync } from 'node:fs'
import { writePrivate } from './codex-thread.mjs'
import { describeError, isRecord } from './text.mjs'

const FILE_BYTES_MAX = 1_024

/**
 * @typedef {{ tokens: number, at: number }} Account at: ms of the wall clock, up to which gains are counted in
 *
 * @typedef {object} BudgetOptions
 * @property {() => string[]} listFiles one for each agent that a wake may speak of
 * @property {number} burst
 * @property {number} refillMs
 * @property {(text: string) => void} log
 * @property {() => number} [clock] the wall clock, as no other lasts longer than a process
 */

export class WakeBudget {
  #options
  #clock
  /** What this process has left, whatever becomes of the files. @type {Account} */
  #own
  #isComplained = false

  /** @param {BudgetOptions} options */
  constructor(options) {
    this.#options = options
    this.#clock = options.clock ?? Date.now
    this.#own = { tokens: options.burst, at: this.#clock() }
  }

  /** @returns {number} ms until the next wake may be, 0: now */
  msUntilAllowed() {
    const now = this.#clock()
    this.#own = this.#refill(this.#own, now)
    const accounts = this.#options.listFiles().map((file) => this.#look(file, now))
    const waits = [this.#own, ...accounts].map(({ tokens, at }) => (tokens > 0 ? 0 : at + this.#options.refillMs - now))
    return Math.max(...waits)
  }

  take() {
    const now = this.#clock()
    this.#own = spend(this.#refill(this.#own, now))
    for (const file of this.#options.listFiles()) this.#write(file, spend(this.#look(file, now)))
  }

  /** @param {Account} account @param {number} now @returns {Account} */
  #refill({ tokens, at }, now) {
    const { burst, refillMs } = this.#options
    // A clock that was set back gains nothing, nor must it make anybody wait until it is where it was.
    const since = Math.min(at, now)
    const gained = Math.floor((now - since) / refillMs)
    const sum = Math.min(burst, tokens + gained)
    // A full bucket does not save up time.
    return { tokens: sum, at: sum === burst ? now : since + gained * refillMs }
  }

  /** @param {string} file @param {number} now @returns {Account} */
  #look(file, now) {
    const kept = this.#read(file)
    if (kept === null) return { tokens: this.#options.burst, at: now }
    const account = this.#refill(kept, now)
    // Else each look would begin the wait anew.
    if (kept.at > now) this.#write(file, account)
    return account
  }

  /** @param {string} file @returns {Account | null} null: nothing that a bucket of ours can be */
  #read(file) {
    try {
      const stats = lstatSync(file)
      if (!stats.isFile() || stats.size > FILE_BYTES_MAX) return null
      const json = /** @type {unknown} */ (JSON.parse(readFileSync(file, 'utf8')))
      return this.#isAccount(json) ? json : null
    } catch {
      // None yet, or damaged: what this process has left counts all the same.
      return null
    }
  }

  /** @param {unknown} json @returns {json is Account} */
  #isAccount(json) {
    if (!isRecord(json) || !Number.isInteger(json.tokens) || !Number.isFinite(json.at)) return false
    const { tokens, at } = /** @type {Account & Record<string, unknown>} */ (json)
    return tokens >= 0 && tokens <= this.#options.burst && at >= 0
  }

  /** @param {string} file @param {Account} account */
  #write(file, { tokens, at }) {
    try {
      writePrivate(file, { tokens, at })
    } catch (error) {
      if (!this.#isComplained) this.#options.log(`cannot keep the number of wakes: ${describeError(error)}`)
      this.#isComplained = true
    }
  }
}

/** @param {Account} account @returns {Account} */
function spend({ tokens, at }) {
  return { tokens: Math.max(0, tokens - 1), at }
}

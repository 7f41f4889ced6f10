/**
 * The only writer of stdout. Every line starts a turn of a model or stands in front of a person, so lines are few, short and
 * made of counts and names only. Claude Code's Monitor suppresses and then stops what is faster than a bucket of 10 lines
 * with one more every 2 s; what comes faster is counted into the next line.
 */
import { isName, monotonicMs, toOneLine } from './basics.cjs'

const PREFIX = 'PATCHCORD: '
const LINE_CHARACTERS_MAX = 200
const NAMES_KEPT = 32

/**
 * @typedef {object} Batch
 * @property {number} count
 * @property {Set<string>} names
 * @property {boolean} hasMoreNames
 * @property {(() => void)[]} onWritten
 *
 * @typedef {object} Voice what a listener speaks with: these lines, or something in their place
 * @property {(kind: 'waiting' | 'new', from: unknown, onWritten: () => void, identity: import('./mcp-json.cjs').Identity) => void} add
 * @property {boolean} isDrained
 *
 * @typedef {object} LinesOptions
 * @property {import('node:stream').Writable} stream
 * @property {import('./config.cjs').Times} times
 * @property {() => void} onClosed the reader of stdout is gone
 */

export class Lines {
  #stream
  #times
  #onClosed
  #tokens
  #refilledAt
  #nextAt = 0
  /** @type {NodeJS.Timeout | undefined} */
  #timer
  /** When the write began that has not been taken yet; null: nothing is under way. @type {number | null} */
  #writingSince = null
  #batches = { waiting: createBatch(), new: createBatch() }
  /** @type {Set<string>} */
  #stopped = new Set()

  /** @param {LinesOptions} options */
  constructor({ stream, times, onClosed }) {
    this.#stream = stream
    this.#times = times
    this.#onClosed = onClosed
    this.#tokens = times.lineBurst
    this.#refilledAt = monotonicMs()
    stream.on('error', () => this.#onClosed())
  }

  /** False while a reader has stopped reading: nobody hears this listener then. */
  get isDrained() {
    return this.#writingSince === null || monotonicMs() - this.#writingSince < this.#times.stalledMs
  }

  /**
   * One message to speak of, in the next line that the rate allows.
   * @param {'waiting' | 'new'} kind @param {unknown} from @param {() => void} onWritten once the reader has the line
   */
  add(kind, from, onWritten) {
    const batch = this.#batches[kind]
    batch.count += 1
    batch.onWritten.push(onWritten)
    if (kind === 'new') addName(batch, isName(from) ? from : 'unknown')
    // What one answer or one read of the socket brings together is one line.
    if (batch.count === 1) process.nextTick(() => this.#plan())
  }

  /**
   * The one line of a fatal fault, after what is still to be said; outside of the rate, as each text comes once.
   * @param {string} text @returns {Promise<void>} when the reader has it, or after a while without one
   */
  async stop(text) {
    if (this.#stopped.has(text)) return
    this.#stopped.add(text)
    clearTimeout(this.#timer)
    await Promise.race([this.#writeStop(text), new Promise((resolve) => setTimeout(resolve, this.#times.stalledMs))])
    this.#plan()
  }

  /** After a change of the configuration the same fault may be told again. */
  forgetStops() {
    this.#stopped.clear()
  }

  /** @param {string} text */
  async #writeStop(text) {
    for (const line of this.#takeLines()) await this.#write(line.text, line.onWritten)
    await this.#write(`stopped: ${toOneLine(text, LINE_CHARACTERS_MAX - PREFIX.length - 'stopped: '.length)}`, [])
  }

  *#takeLines() {
    while (this.#batches.waiting.count + this.#batches.new.count > 0) yield this.#takeLine()
  }

  #takeLine() {
    const kind = this.#batches.waiting.count > 0 ? 'waiting' : 'new'
    const batch = this.#batches[kind]
    this.#batches[kind] = createBatch()
    const text = kind === 'waiting' ? `${batch.count} waiting in inbox` : `${batch.count} new from ${joinNames(batch)}`
    return { text, onWritten: batch.onWritten }
  }

  #plan() {
    clearTimeout(this.#timer)
    if (this.#writingSince !== null || this.#batches.waiting.count + this.#batches.new.count === 0) return
    const wait = this.#msUntilAllowed()
    if (wait <= 0) void this.#writeNext()
    else this.#timer = setTimeout(() => this.#plan(), wait)
  }

  async #writeNext() {
    const { text, onWritten } = this.#takeLine()
    this.#tokens -= 1
    this.#nextAt = monotonicMs() + this.#times.lineGapMs
    await this.#write(text, onWritten)
    this.#plan()
  }

  #msUntilAllowed() {
    const now = monotonicMs()
    const gained = Math.floor((now - this.#refilledAt) / this.#times.lineRefillMs)
    if (gained > 0) {
      this.#tokens = Math.min(this.#times.lineBurst, this.#tokens + gained)
      this.#refilledAt += gained * this.#times.lineRefillMs
    }
    // A full bucket does not save up time: the two seconds start with the line that opens a gap in it.
    if (this.#tokens === this.#times.lineBurst) this.#refilledAt = now
    const untilToken = this.#tokens > 0 ? 0 : this.#refilledAt + this.#times.lineRefillMs - now
    return Math.ceil(Math.max(untilToken, this.#nextAt - now))
  }

  /** @param {string} text @param {(() => void)[]} onWritten @returns {Promise<void>} never rejects */
  #write(text, onWritten) {
    this.#writingSince ??= monotonicMs()
    return new Promise((resolve) => {
      this.#stream.write(`${PREFIX}${text}\n`, (error) => {
        this.#writingSince = null
        // The stream reports the error itself; what was not written has not been announced.
        if (!error) for (const tell of onWritten) tell()
        resolve()
      })
    })
  }
}

/** @returns {Batch} */
function createBatch() {
  return { count: 0, names: new Set(), hasMoreNames: false, onWritten: [] }
}

/** @param {Batch} batch @param {string} name */
function addName(batch, name) {
  if (batch.names.size < NAMES_KEPT || batch.names.has(name)) batch.names.add(name)
  else batch.hasMoreNames = true
}

/** @param {Batch} batch as many names as fit, in order of appearance */
function joinNames({ count, names, hasMoreNames }) {
  const more = ' and others'
  const room = LINE_CHARACTERS_MAX - PREFIX.length - `${count} new from `.length
  let text = ''
  for (const name of names) {
    const longer = text === '' ? name : `${text}, ${name}`
    if (longer.length > room - more.length) return `${text}${more}`
    text = longer
  }
  return hasMoreNames ? `${text}${more}` : text
}

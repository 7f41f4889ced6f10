/**
 * Takes the place of stdout in a listener that works for a Codex thread: a line becomes a turn of that thread. Codex takes such a
 * turn for one that a person asked for, so they are few: none while a turn runs (the hooks tell of messages then), none for
 * messages that were fetched meanwhile, and at most 20 an hour.
 */

import { sleep } from './backoff.mjs'
import { WakeBudget } from './codex-budget.mjs'
import { monotonicMs } from './node.mjs'
import { describeError, isName, toOneLine } from './text.mjs'
import { toIdentityKey } from './tokens.mjs'

const PREFIX = 'PATCHCORD: '
const LINE_CHARACTERS_MAX = 200
const NAMES_SHOWN = 4

/** @typedef {{ readonly [name in 'burst' | 'refillMs' | 'gatherMs' | 'lookMs' | 'settleMs' | 'takenUpMs' | 'retryMs' | 'retryMsMax']: number }} WakerTimes */

/**
 * 10 at once and one more every six minutes are at most 20 in any hour, and after a burst nobody waits for more than six minutes.
 * @type {WakerTimes}
 */
export const WAKER_TIMES = Object.freeze({
  burst: 10,
  refillMs: 360_000,
  /** What one answer or one second brings is one wake. */
  gatherMs: 50,
  /** How often a busy thread is looked at. */
  lookMs: 250,
  /** Between the end of a turn and a wake: the last hook of that turn may still be about to continue it. */
  settleMs: 1_000,
  /** A wake is taken up within ten seconds or so; until then the next one would only queue up behind it. */
  takenUpMs: 20_000,
  retryMs: 5_000,
  retryMsMax: 300_000,
})

/**
 * @typedef {import('./mcp-json.mjs').Identity} Identity
 *
 * @typedef {object} WakerOptions
 * @property {() => boolean} isBusy whether a turn of the thread runs
 * @property {() => number} getTurnAt Date.now() when its last turn began
 * @property {(identities: Identity[]) => Promise<number | null>} countNew how many messages are new in their inboxes; null: not
 *   known
 * @property {() => string[]} [listBudgetFiles] where what is left of the rate is kept; without, it ends with the process
 * @property {(text: string) => Promise<void>} queue makes the text a turn; rejects when Codex does not take it
 * @property {(text: string) => void} log
 * @property {WakerTimes} [times]
 */

export class CodexWaker {
  #options
  #times
  #budget
  #batch = createBatch()
  #isRunning = false
  #failures = 0
  /** @type {Set<string>} */
  #stopped = new Set()
  #ending = new AbortController()
  /** Date.now() of the last wake. */
  #queuedAt = Number.NEGATIVE_INFINITY

  /** @param {WakerOptions} options */
  constructor(options) {
    this.#options = options
    this.#times = options.times ?? WAKER_TIMES
    const { burst, refillMs } = this.#times
    const { listBudgetFiles: listFiles = () => [], log } = options
    this.#budget = new WakeBudget({ listFiles, burst, refillMs, log })
  }

  /** False while Codex does not take wakes: nobody hears this listener then. */
  get isDrained() {
    return this.#failures < 2
  }

  /**
   * @param {'waiting' | 'new'} kind @param {unknown} from @param {() => void} onWritten once it has been told
   * @param {Identity} [identity] whose inbox it is in
   */
  add(kind, from, onWritten, identity) {
    const batch = this.#batch
    batch.count += 1
    if (identity !== undefined) batch.identities.set(toIdentityKey(identity), identity)
    batch.hasWaiting ||= kind === 'waiting'
    batch.names.add(isName(from) ? from : 'unknown')
    batch.onWritten.push(onWritten)
    this.#start()
  }

  /** The one line of a fatal fault. @param {string} text @returns {Promise<void>} at once: it must not hold up an ending listener */
  async stop(text) {
    if (this.#stopped.has(text)) return
    this.#stopped.add(text)
    this.#batch.stops.push(text)
    this.#start()
  }

  forgetStops() {
    this.#stopped.clear()
  }

  end() {
    this.#ending.abort()
  }

  #start() {
    if (this.#isRunning || this.#ending.signal.aborted) return
    this.#isRunning = true
    let pauseMs = 0
    void this.#run()
      .catch((error) => {
        this.#options.log(`error: ${describeError(error)}`)
        pauseMs = this.#times.retryMs
      })
      .finally(() => {
        this.#isRunning = false
        // Something may have been added after the last look.
        if (hasContent(this.#batch)) setTimeout(() => this.#start(), pauseMs)
      })
  }

  async #run() {
    const { signal } = this.#ending
    while (!signal.aborted && hasContent(this.#batch)) {
      await sleep(this.#times.gatherMs, signal)
      const wasBusy = await this.#waitUntilIdle()
      const heldMs = await this.#waitForToken()
      // The thread may have been busy again, and the messages fetched, while the rate held the wake back.
      if (signal.aborted || (heldMs > 0 && this.#isBusy())) continue
      if ((wasBusy || heldMs > 0) && (await this.#areFetched())) this.#settle(this.#takeBatch())
      else await this.#wake(heldMs)
    }
  }

  /** @param {number} heldMs */
  async #wake(heldMs) {
    const batch = this.#takeBatch()
    const queuedAt = Date.now()
    // Before the call: one that fails, or only seems to, may have become a turn all the same.
    this.#budget.take()
    try {
      await this.#options.queue(describeBatch(batch, heldMs))
      this.#failures = 0
      this.#queuedAt = queuedAt
      this.#settle(batch)
    } catch (error) {
      if (this.#ending.signal.aborted) return
      this.#failures += 1
      this.#options.log(`codex queue failed: ${describeError(error)}`)
      this.#batch = mergeBatches(batch, this.#batch)
      await sleep(Math.min(this.#times.retryMs * 2 ** this.#failures, this.#times.retryMsMax), this.#ending.signal)
    }
  }

  #takeBatch() {
    const batch = this.#batch
    this.#batch = createBatch()
    return batch
  }

  /** @param {Batch} batch */
  #settle(batch) {
    for (const tell of batch.onWritten) tell()
  }

  /** A wake that was queued and has not begun its turn counts as busy. */
  #isBusy() {
    const { isBusy, getTurnAt } = this.#options
    const isQueued = getTurnAt() < this.#queuedAt && Date.now() - this.#queuedAt < this.#times.takenUpMs
    return isBusy() || isQueued
  }

  /** @returns {Promise<boolean>} whether it was busy */
  async #waitUntilIdle() {
    const { signal } = this.#ending
    let wasBusy = false
    for (;;) {
      let isBusy = this.#isBusy()
      wasBusy ||= isBusy
      if (signal.aborted || !wasBusy) return wasBusy
      if (!isBusy) {
        await sleep(this.#times.settleMs, signal)
        isBusy = this.#isBusy()
        if (!isBusy) return true
      }
      await sleep(this.#times.lookMs, signal)
    }
  }

  /** @returns {Promise<number>} how long the rate held the wake back, in ms */
  async #waitForToken() {
    const startedAt = monotonicMs()
    let isHeld = false
    while (!this.#ending.signal.aborted) {
      const waitMs = this.#budget.msUntilAllowed()
      if (waitMs <= 0) return isHeld ? monotonicMs() - startedAt : 0
      isHeld = true
      this.#options.log(`held back for ${Math.ceil(waitMs / 1_000)} s: at most 20 wakes an hour`)
      await sleep(waitMs, this.#ending.signal)
    }
    return 0
  }

  async #areFetched() {
    const { stops, identities } = this.#batch
    return stops.length === 0 && (await this.#options.countNew([...identities.values()])) === 0
  }
}

/** @typedef {ReturnType<typeof createBatch>} Batch */

function createBatch() {
  return {
    count: 0,
    hasWaiting: false,
    names: /** @type {Set<string>} */ (new Set()),
    /** By their keys. */
    identities: /** @type {Map<string, Identity>} */ (new Map()),
    onWritten: /** @type {(() => void)[]} */ ([]),
    stops: /** @type {string[]} */ ([]),
  }
}

/** @param {Batch} batch */
function hasContent({ count, stops }) {
  return count > 0 || stops.length > 0
}

/** @param {Batch} first @param {Batch} second @returns {Batch} */
function mergeBatches(first, second) {
  return {
    count: first.count + second.count,
    hasWaiting: first.hasWaiting || second.hasWaiting,
    names: new Set([...first.names, ...second.names]),
    identities: new Map([...first.identities, ...second.identities]),
    onWritten: [...first.onWritten, ...second.onWritten],
    stops: [...first.stops, ...second.stops],
  }
}

/** One line of counts and names, never text of a message. @param {Batch} batch @param {number} heldMs */
function describeBatch({ count, hasWaiting, names, stops }, heldMs) {
  const shown = [...names].slice(0, NAMES_SHOWN)
  const others = names.size > shown.length ? ' and others' : ''
  const parts = stops.map((text) => `stopped: ${text}`)
  if (count > 0) {
    parts.unshift(hasWaiting ? `${count} waiting in inbox` : `${count} new from ${shown.join(', ')}${others}`)
  }
  // Told with a wake that goes out anyway: a wake that only says that there are none would be one more.
  if (heldMs > 1_000) parts.push(`held back for ${Math.ceil(heldMs / 60_000)} min, at most 20 wakes an hour`)
  return toOneLine(`${PREFIX}${parts.join('; ')}`, LINE_CHARACTERS_MAX)
}

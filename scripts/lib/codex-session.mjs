/** The life of a listener that works for one Codex thread: listens while that thread is the one to wake, and ends with it. */

import { join } from 'node:path'
import { ApiError, createApi } from './api.mjs'
import { sleep } from './backoff.mjs'
import { hasWindow } from './codex-process.mjs'
import { queueTurn } from './codex-queue.mjs'
import {
  createThreadPidfile,
  findActiveThread,
  hasListener,
  isSameProcess,
  listThreads,
  readThread,
  removeOldThreads,
  removeThread,
} from './codex-thread.mjs'
import { CodexWaker } from './codex-waker.mjs'
import { discoverIdentities } from './mcp-json.mjs'
import { monotonicMs } from './node.mjs'
import { IDENTITIES_MAX, Supervisor } from './supervisor.mjs'
import { describeError } from './text.mjs'
import { toIdentityKey } from './tokens.mjs'
import { readTrusted, toTrustId } from './trust.mjs'

const LOOK_MS = 1_000
/** Looking through all processes costs more. */
const WINDOW_LOOK_MS = 5_000
/** A turn in which no tool ended for so long was most likely broken off without a hook. */
const BUSY_MS_MAX = 10 * 60_000

/**
 * @typedef {import('./mcp-json.mjs').Identity} Identity
 *
 * @typedef {object} SessionOptions
 * @property {string} thread
 * @property {string} folder
 * @property {string} runtime
 * @property {import('./config.mjs').Settings} settings
 * @property {(text: string) => void} log
 */

export class CodexSession {
  #options
  #pidfile
  #waker
  /** @type {Supervisor | null} */
  #supervisor = null
  #isEnding = false
  /** Those that were told of. @type {Set<string>} */
  #problems = new Set()
  #wasInWindowOfFolder = false
  #windowSeenAt = 0
  #lookedAt = { wall: Date.now(), timers: monotonicMs() }

  /** @param {SessionOptions} options */
  constructor(options) {
    this.#options = options
    this.#pidfile = createThreadPidfile(options.runtime, options.thread)
    this.#waker = new CodexWaker({
      isBusy: () => this.#isBusy(),
      getTurnAt: () => readThread(options.runtime, options.thread)?.turnAt ?? 0,
      countNew: (identities) => this.#countNew(identities),
      listBudgetFiles: () => this.#listBudgetFiles(),
      queue: (text) => this.#queue(text),
      log: options.log,
    })
  }

  /** Resolves when the thread has ended, or at once when another process listens for it. @returns {Promise<void>} */
  async run() {
    const other = this.#pidfile.claim()
    if (other !== null) return this.#options.log(`already running (pid ${other})`)
    this.#tidy()
    while (!this.#isEnding) {
      await this.#lookAfter()
      if (!this.#isEnding) await sleep(LOOK_MS)
      this.#noticeSleep()
    }
  }

  /** One round. What fails in it, as where the runtime folder is damaged, is tried again: without its rounds a listener never ends. */
  async #lookAfter() {
    try {
      const reason = this.#findEnd()
      if (reason === null) return await this.#follow()
      this.#isEnding = true
      this.#options.log(`ending: ${reason}`)
      removeThread(this.#options.runtime, this.#options.thread)
    } catch (error) {
      this.#complain(error)
    }
  }

  async stop() {
    this.#isEnding = true
    this.#waker.end()
    await this.#supervisor?.stop()
  }

  /** What must not be left behind even when there is no time for anything else. */
  release() {
    this.#supervisor?.release()
    this.#pidfile.release()
  }

  /** @returns {string | null} why there is nothing to listen for any more */
  #findEnd() {
    const { runtime, thread } = this.#options
    const record = readThread(runtime, thread)
    if (record === null) return 'the record of the thread is gone'
    if (record.state === 'ended') return 'the thread has ended'
    if (!isSameProcess(record.codex)) return 'Codex has ended'
    if (this.#isReplaced()) return 'another listens for this thread'
    return record.codex.isDaemon && !this.#hasWindow() ? 'its window was closed' : null
  }

  #isReplaced() {
    try {
      return this.#pidfile.check() !== null
    } catch (error) {
      // What stands in the place of the pidfile is no listener.
      this.#complain(error)
      return false
    }
  }

  #tidy() {
    try {
      removeOldThreads(this.#options.runtime)
    } catch (error) {
      this.#complain(error)
    }
  }

  /** Once, not every second; by the code, as a text may name a file that is called differently each time. @param {unknown} error */
  #complain(error) {
    const text = describeError(error)
    const problem = error instanceof Error && 'code' in error ? String(error.code) : text
    if (!this.#problems.has(problem)) this.#options.log(`error: ${text}`)
    this.#problems.add(problem)
  }

  /**
   * The shared daemon keeps a thread for a while after its window was closed; turns that nobody would see are not wanted then. A
   * window that was opened elsewhere and moved to this thread is only known to be some window.
   */
  #hasWindow() {
    const now = monotonicMs()
    if (this.#windowSeenAt !== 0 && now - this.#windowSeenAt < WINDOW_LOOK_MS) return true
    const isHere = hasWindow(this.#options.folder)
    this.#wasInWindowOfFolder ||= isHere
    if (!isHere && (this.#wasInWindowOfFolder || !hasWindow())) return false
    this.#windowSeenAt = now
    return true
  }

  /** Listens exactly while this thread is the one to wake. */
  async #follow() {
    const { runtime, thread, folder, settings, log } = this.#options
    const threads = listThreads(runtime).filter((one) => one.folder === folder)
    const active = findActiveThread(threads, (one) => one === thread || hasListener(runtime, one))
    if (active === thread && this.#supervisor === null) {
      this.#supervisor = new Supervisor({ settings, folder, lines: this.#waker, log })
      void this.#supervisor.runAuto()
    } else if (active !== thread && this.#supervisor !== null) {
      log(`standing by: the person has moved to thread ${active}`)
      const supervisor = this.#supervisor
      this.#supervisor = null
      await supervisor.stop()
    }
  }

  /** Clocks of timers stand still on Linux while the machine sleeps, and connections die. */
  #noticeSleep() {
    const now = { wall: Date.now(), timers: monotonicMs() }
    const passed = Math.max(now.wall - this.#lookedAt.wall, now.timers - this.#lookedAt.timers)
    this.#lookedAt = now
    if (passed - LOOK_MS > this.#options.settings.times.sleptMs) this.#supervisor?.reconnect()
  }

  #isBusy() {
    const record = readThread(this.#options.runtime, this.#options.thread)
    return record?.state === 'busy' && Date.now() - record.changedAt < BUSY_MS_MAX
  }

  /** @param {string} text */
  async #queue(text) {
    const { runtime, thread, log } = this.#options
    const record = readThread(runtime, thread)
    // A thread that is gone would take the text and begin that turn whenever it is opened again.
    const end = this.#findEnd()
    if (record === null || end !== null) throw new Error(end ?? 'no record')
    await queueTurn({ program: record.codex.program, thread, text })
    log(`woken: ${text}`)
  }

  /** A wake is of the project: it costs each agent of it one. */
  #listBudgetFiles() {
    const { settings, folder, runtime } = this.#options
    const { identities } = discoverIdentities({ folder, pair: settings.pair, lookup: settings.lookup })
    const mine = this.#pickTrusted(identities).slice(0, IDENTITIES_MAX)
    return mine.map((identity) => join(runtime, `wakes_${toIdentityKey(identity)}.json`))
  }

  /** @param {Identity[]} identities */
  #pickTrusted(identities) {
    const trusted = readTrusted(this.#options.settings.trustFile)
    return identities.filter((identity) => trusted.has(toTrustId(identity)))
  }

  /**
   * Asks those only that have told of messages: another one's server may be away for ever.
   * @param {Identity[]} identities @returns {Promise<number | null>} null: nothing is known to be new, and not all could be asked
   */
  async #countNew(identities) {
    const counts = await Promise.all(this.#pickTrusted(identities).map((identity) => this.#countPending(identity)))
    const sum = counts.reduce((/** @type {number} */ total, count) => total + (count ?? 0), 0)
    return sum === 0 && counts.includes(null) ? null : sum
  }

  /** @param {Identity} identity @returns {Promise<number | null>} null: not known, as when the server is away */
  async #countPending(identity) {
    const { settings, log } = this.#options
    const api = createApi({ ...identity, timeoutMs: settings.times.httpMs })
    try {
      return (await api.listPending()).length
    } catch (error) {
      log(`cannot ask the inbox: ${describeError(error)}`)
      // There is nothing that a refused token could fetch.
      return error instanceof ApiError && error.fatalText !== null ? 0 : null
    } finally {
      api.close()
    }
  }
}

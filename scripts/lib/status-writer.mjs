/** The listener's side of the status that hooks and the status line read. */
import { getBuiltin, monotonicMs } from './node.mjs'
import { readStartTime } from './processes.mjs'
import { readStatusFile } from './runtime-folder.mjs'
import { describeError } from './text.mjs'
import { toIdentityKey } from './tokens.mjs'

const { renameSync, rmSync, writeFileSync } = getBuiltin('fs')
const { join } = getBuiltin('path')

/** No more than one write in this time. */
const WRITE_MS = 1_000
/** An answer of the inbox is never older than the time-out of its request. */
const ANSWER_MS_MAX = 10_000

/** As many as an inbox has room for. What is heard of beyond that has been fetched, or was never there. */
const NEW_MAX = 1_000

/** @typedef {Pick<import('./announcements.mjs').Announcements, 'compare' | 'hear'>} Heard */

/** Never throws: a listener that cannot write it goes on. */
export class StatusWriter {
  #file
  #who
  #log
  #started = readStartTime(process.pid) ?? ''
  /** When each was heard of, 0 for what the inbox told. @type {Map<string, number>} */
  #new = new Map()
  #isConnected = false
  #isComplained = false
  #writtenAt = Number.NEGATIVE_INFINITY
  /** @type {NodeJS.Timeout | undefined} */
  #timer

  /**
   * @param {{ folder: string, identity: { base: string, token: string }, agent: string, namespace: string,
   *   log: (text: string) => void }} options names that have passed the pattern
   */
  constructor({ folder, identity, agent, namespace, log }) {
    this.#file = join(folder, `status_${namespace}_${agent}_${toIdentityKey(identity)}.json`)
    this.#who = { agent, namespace, server: identity.base, pid: process.pid }
    this.#log = log
  }

  /**
   * The same announcements, watched: what they are told of is counted here.
   * @param {Heard} announcements @returns {Heard}
   */
  watch(announcements) {
    return {
      compare: (pending) => {
        // An answer may have been on its way while a message was heard of: too many costs a hook a question, too few silence.
        const since = monotonicMs() - ANSWER_MS_MAX
        const heard = [...this.#new].filter(([, heardAt]) => heardAt > since)
        this.#new = new Map([...pending.map(({ id }) => /** @type {const} */ ([id, 0])), ...heard])
        this.#forgetOldest()
        this.#plan()
        return announcements.compare(pending)
      },
      hear: (message) => {
        this.#new.set(message.id, monotonicMs())
        this.#forgetOldest()
        this.#plan()
        announcements.hear(message)
      },
    }
  }

  #forgetOldest() {
    for (const id of this.#new.keys()) {
      if (this.#new.size <= NEW_MAX) return
      this.#new.delete(id)
    }
  }

  /** @param {boolean} isConnected whether every topic is joined */
  setConnected(isConnected) {
    if (isConnected === this.#isConnected) return
    this.#isConnected = isConnected
    this.#plan()
  }

  /** The last word of a listener that ends; not where another has taken its place already. */
  end() {
    clearTimeout(this.#timer)
    this.#isConnected = false
    if ((readStatusFile(this.#file)?.pid ?? process.pid) === process.pid) this.#write()
  }

  #plan() {
    if (this.#timer !== undefined) return
    const wait = Math.max(0, this.#writtenAt + WRITE_MS - monotonicMs())
    this.#timer = setTimeout(() => this.#write(), wait)
  }

  #write() {
    this.#timer = undefined
    this.#writtenAt = monotonicMs()
    const state = { started: this.#started, connected: this.#isConnected, new: this.#new.size }
    const json = { ...this.#who, ...state, updated_at: new Date().toISOString() }
    const temporary = `${this.#file}.${process.pid}.tmp`
    try {
      rmSync(temporary, { force: true })
      writeFileSync(temporary, `${JSON.stringify(json)}\n`, { mode: 0o600, flag: 'wx' })
      renameSync(temporary, this.#file)
    } catch (error) {
      if (!this.#isComplained) this.#log(`cannot write the status for hooks: ${describeError(error)}`)
      this.#isComplained = true
      removeIfPossible(temporary)
    }
  }
}

/** On a full disk a file that could not be written is there, empty. @param {string} file */
function removeIfPossible(file) {
  try {
    rmSync(file, { force: true })
  } catch {
    // The folder is of no use at all, which has been told.
  }
}

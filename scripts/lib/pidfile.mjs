/**
 * One listener per agent and machine: `subscribe_<namespace>_<agent>.pid` in a folder that only this user can write.
 * The file holds three lines: pid, start time of that process, identity. A pid alone is not believed, as pids are reused.
 */
import { createHash, randomBytes } from 'node:crypto'
import { getBuiltin } from './node.mjs'
import { readStartTime } from './processes.mjs'
import { isAlive } from './surroundings.mjs'

export { prepareRuntimeFolder } from './runtime-folder.mjs'

const { closeSync, linkSync, lstatSync, openSync, readFileSync, unlinkSync, writeFileSync } = getBuiltin('fs')
const { join } = getBuiltin('path')

const TRIES_MAX = 200
const TRY_AGAIN_MS = 5

/**
 * @typedef {{ pid: number, startTime: string, identity: string }} PidRecord
 * @typedef {{ kill?: (pid: number, signal: 0) => unknown, getStartTime?: (pid: number) => string | null }} Probes
 */

export class Pidfile {
  #files
  #identity
  #probes
  /** @type {{ file: string, text: string } | null} */
  #held = null

  /**
   * @param {{ folder: string, origin: string, namespace: string, agent: string }} input names that have passed the pattern
   * @param {Probes} [probes]
   */
  constructor({ folder, origin, namespace, agent }, probes = {}) {
    this.#identity = `${origin} ${agent}@${namespace}`
    const hash = createHash('sha256').update(this.#identity).digest('hex').slice(0, 8)
    const name = `subscribe_${namespace}_${agent}`
    // The second name is for an agent called the same on another server that is being listened for as well.
    this.#files = [join(folder, `${name}.pid`), join(folder, `${name}_${hash}.pid`)]
    this.#probes = probes
  }

  /**
   * @returns {number | null} null: this process now is the agent's listener; else the pid of the one that is
   */
  claim() {
    const others = this.#files.map((file) => this.#readLive(file))
    const rival = others.find((record) => record !== null && record.identity === this.#identity)
    if (rival) return rival.pid
    const file = this.#files[others[0] === null ? 0 : 1]
    return file === undefined ? null : this.#take(file)
  }

  /** The file is the one that this process wrote. */
  get isInPlace() {
    return this.#held !== null && readText(this.#held.file) === this.#held.text
  }

  /**
   * Whether this process still is the listener; a file that was cleaned away is written again.
   * @returns {number | null} null: yes; else the pid of another
   */
  check() {
    if (this.isInPlace) return null
    this.#held = null
    return this.claim()
  }

  /** Removes the file if it is still the one this process wrote. */
  release() {
    if (this.#held !== null && this.isInPlace) removeFile(this.#held.file)
    this.#held = null
  }

  /** @param {string} file @returns {number | null} */
  #take(file) {
    const text = `${process.pid}\n${readStartTime(process.pid) ?? ''}\n${this.#identity}\n`
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      if (createWhole(file, text)) {
        this.#held = { file, text }
        return null
      }
      const record = this.#readLive(file)
      // Another server's agent of that name came first: there is a second name.
      if (record !== null) return record.identity === this.#identity ? record.pid : this.claim()
      if (!this.#removeStale(file, text)) sleepSync(TRY_AGAIN_MS)
    }
    throw new Error(`cannot write ${file}`)
  }

  /**
   * Removes a stale file under a lock: without one, a process that has read the stale file could remove the fresh one that
   * another has put in its place meanwhile. Who creates a file needs no lock, as that cannot replace anything.
   * @param {string} file @param {string} text our own record
   * @returns {boolean} false: another holds the lock
   */
  #removeStale(file, text) {
    const lock = `${file}.lock`
    if (!createWhole(lock, text)) {
      // Its owner was killed within the microseconds of holding it. One that is gone by now is no such lock: whatever stands
      // there a moment later is another's.
      const owner = readText(lock)
      if (owner !== null && !this.#isLive(parseRecord(owner))) removeFile(lock)
      return false
    }
    try {
      if (this.#readLive(file) === null) removeFile(file)
      return true
    } finally {
      removeFile(lock)
    }
  }

  /** @param {string} file */
  #readLive(file) {
    const record = parseRecord(readText(file))
    return this.#isLive(record) ? record : null
  }

  /** @param {PidRecord | null} record @returns {boolean} */
  #isLive(record) {
    if (record === null || !isAlive(record.pid, this.#probes.kill)) return false
    const startTime = (this.#probes.getStartTime ?? readStartTime)(record.pid)
    // A start time that cannot be read here, or could not when the file was written, proves nothing.
    return startTime === null || record.startTime === '' || startTime === record.startTime
  }
}

/** A file appears whole or not at all. @param {string} file @param {string} text @returns {boolean} false: there is one already */
function createWhole(file, text) {
  const temporary = `${file}.${process.pid}.${randomBytes(4).toString('hex')}`
  try {
    // On a full disk this throws when the file is there already, empty.
    writeFileSync(temporary, text, { mode: 0o600, flag: 'wx' })
  } catch (error) {
    removeFile(temporary)
    throw error
  }
  try {
    linkSync(temporary, file)
    return true
  } catch (error) {
    if (hasCode(error, 'EEXIST')) return false
    // A file system without hard links.
    return createExclusive(file, text)
  } finally {
    removeFile(temporary)
  }
}

/** @param {string} file which may be gone */
function removeFile(file) {
  try {
    unlinkSync(file)
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error
  }
}

/** @param {string} file @param {string} text */
function createExclusive(file, text) {
  let handle = -1
  try {
    handle = openSync(file, 'wx', 0o600)
    writeFileSync(handle, text)
    return true
  } catch (error) {
    if (hasCode(error, 'EEXIST')) return false
    if (handle >= 0) removeFile(file)
    throw error
  } finally {
    if (handle >= 0) closeSync(handle)
  }
}

/** @param {number} ms */
function sleepSync(ms) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

/** @param {string | null} text @returns {PidRecord | null} */
function parseRecord(text) {
  const [pid, startTime = '', identity = ''] = (text ?? '').split('\n')
  return /^[1-9]\d{0,9}$/.test(pid ?? '') ? { pid: Number(pid), startTime, identity } : null
}

/** @param {string} file @returns {string | null} */
function readText(file) {
  try {
    return lstatSync(file).isFile() ? readFileSync(file, 'utf8') : null
  } catch {
    return null
  }
}

/** @param {unknown} error @param {string} code */
function hasCode(error, code) {
  return error instanceof Error && 'code' in error && error.code === code
}

/**
 * What the hooks of one session have said, as each hook is a process of its own. Several run at once when a model calls several
 * tools, so a change is made under a lock. Whoever cannot remember says nothing: a notice that repeats itself for ever is worse
 * than one that is missed.
 */
import { getBuiltin } from './node.mjs'
import { readMemory } from './runtime-folder.mjs'

const { closeSync, lstatSync, openSync, readdirSync, renameSync, rmSync, writeSync } = getBuiltin('fs')
const { join } = getBuiltin('path')

const IDS_MAX = 1_000
const PEEKS_MAX = 16
const LOCK_TRIES_MAX = 25
const LOCK_WAIT_MS = 2
/** A lock is held for a millisecond or so; one as old as this was left by a process that was killed. */
const LOCK_STALE_MS = 2_000
const KEPT_MS = 7 * 24 * 3_600_000
const OURS = /^(?:hook_[\w.-]+\.(?:json|lock)|status_[\w.-]+\.tmp)$/

/**
 * @typedef {import('./runtime-folder.mjs').Kind} Kind
 * @typedef {import('./runtime-folder.mjs').Peek} Peek
 * @typedef {import('./runtime-folder.mjs').Remembered} Remembered
 */

/**
 * Notes what was found and what is now said of it, in one write.
 * @param {string} file of the session
 * @param {{ ids: string[], kinds: Kind[], peeks: Record<string, Peek> }} found peeks by the key of an identity
 * @returns {Set<string>} the ids that nothing of the first kind was said of before; none when that cannot be remembered
 */
export function noteFound(file, { ids, kinds, peeks }) {
  const asked = new Set(ids.slice(0, IDS_MAX))
  /** @type {Set<string>} */
  let fresh = new Set()
  const isWritten = update(file, (memory) => {
    const known = new Set(memory[kinds[0] ?? 'told'])
    fresh = new Set(kinds.length === 0 ? [] : [...asked].filter((id) => !known.has(id)))
    // What still waits goes to the end: only what does not is ever forgotten.
    for (const kind of kinds) memory[kind] = [...memory[kind].filter((id) => !asked.has(id)), ...asked].slice(-IDS_MAX)
    const all = Object.entries({ ...memory.peeks, ...peeks }).sort(([, a], [, b]) => b.at - a.at)
    memory.peeks = Object.fromEntries(all.slice(0, PEEKS_MAX))
  })
  return isWritten ? fresh : new Set()
}

/**
 * The lock is the file's next version: who could create it writes it and puts it in place, which ends the lock.
 * @param {string} file @param {(memory: Remembered) => void} change @returns {boolean}
 */
function update(file, change) {
  const next = file.replace(/json$/, 'lock')
  const lock = takeLock(next)
  if (lock === null) return false
  try {
    const memory = readMemory(file)
    change(memory)
    writeSync(lock, JSON.stringify(memory))
    renameSync(next, file)
    return true
  } catch {
    // A full disk, a folder that is gone: what cannot be remembered is not said.
    rmSync(next, { force: true })
    return false
  } finally {
    closeSync(lock)
  }
}

/** @param {string} file @returns {number | null} */
function takeLock(file) {
  for (let tries = 0; tries < LOCK_TRIES_MAX; tries++) {
    try {
      return openSync(file, 'wx', 0o600)
    } catch {
      // Two that find the same stale lock may both go on; all it costs is a notice given twice.
      if (isOlder(file, LOCK_STALE_MS)) rmSync(file, { force: true })
      else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOCK_WAIT_MS)
    }
  }
  return null
}

/** Removes what sessions of long ago have left. @param {string} folder */
export function forgetOldSessions(folder) {
  for (const name of readdirSync(folder)) {
    if (OURS.test(name) && isOlder(join(folder, name), KEPT_MS)) rmSync(join(folder, name), { force: true })
  }
}

/** By an unsigned distance, as a clock that was set back must not make a file young for ever. @param {string} file @param {number} ms */
function isOlder(file, ms) {
  try {
    return Math.abs(Date.now() - lstatSync(file).mtimeMs) > ms
  } catch {
    return false
  }
}

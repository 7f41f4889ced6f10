/**
 * The per-user folder in which programs of this machine tell each other things, and the status that a listener writes there for
 * hooks and the status line of the same project, which must not ask the server each time:
 * `status_<namespace>_<agent>_<key>.json`, 0600. The key stands for server and token, as who does not ask the server does not
 * know the agent's name. Beside it what the hooks of a session have said, `hook_<session>.json`. One module, since a hook
 * pays for each.
 */
const { lstatSync, mkdirSync, readdirSync, readFileSync } = require('node:fs')
const { dirname, join } = require('node:path')
const { isName, isRecord } = require('./basics.cjs')
const { toIdentityKey } = require('./identity.cjs')

const STATUS_BYTES_MAX = 16 * 1024
const MEMORY_BYTES_MAX = 256 * 1024
const FILES_MAX = 1_000
/** A listener that is well writes with each of its slow comparisons, every 5 minutes; one that is stopped does not. */
const FRESH_MS = 6 * 60_000

/**
 * @typedef {object} Status
 * @property {string} agent
 * @property {string} namespace
 * @property {string} server base of the API
 * @property {number} pid of the listener
 * @property {string} started start time of that process, empty where it cannot be known
 * @property {boolean} connected every topic is joined
 * @property {number} new messages that were new when last compared, and those heard of since
 * @property {string} updated_at ISO
 *
 * @typedef {Status & { isLive: boolean, updatedAtMs: number }} ReadStatus isLive: its listener runs, hears, and was well lately
 */

/**
 * @typedef {{ at: number, new: number, agent: string, namespace: string }} Peek what the inbox held when it was asked, `at`
 *   ms of the wall clock; new is -1 when the server did not answer, names are empty where they are not known
 * @typedef {'told' | 'blocked'} Kind
 * @typedef {{ told: string[], blocked: string[], peeks: Record<string, Peek> }} Remembered
 */

/**
 * The first folder that can be had: made 0700 if it is missing.
 * @param {string[]} folders best first; all but the last are skipped where the folder above is missing or another user's
 * @returns {string}
 * @throws {Error} one sentence, when a folder is a symlink, another user's or open to others
 */
function prepareRuntimeFolder(folders) {
  const folder = folders.find((path, index) => index === folders.length - 1 || isOwnFolder(dirname(path)))
  if (folder === undefined) throw new Error('no runtime folder')
  try {
    mkdirSync(folder, { mode: 0o700 })
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error
  }
  const stats = lstatSync(folder)
  if (!stats.isDirectory()) throw new Error(`runtime folder ${folder} is not a folder`)
  if (process.platform === 'win32') return folder
  if (stats.uid !== process.getuid?.()) throw new Error(`runtime folder ${folder} belongs to another user`)
  if ((stats.mode & 0o077) !== 0) throw new Error(`runtime folder ${folder} is open to other users, it must be 0700`)
  return folder
}

/** @param {string} path */
function isOwnFolder(path) {
  try {
    const stats = lstatSync(path)
    return stats.isDirectory() && (process.getuid === undefined || stats.uid === process.getuid())
  } catch {
    return false
  }
}

/** @param {string} folder @param {{ base: string, token: string }} identity @returns {ReadStatus | null} the newest */
function readStatus(folder, identity) {
  const ending = `_${toIdentityKey(identity)}.json`
  const names = listNames(folder).filter((name) => name.startsWith('status_') && name.endsWith(ending))
  // An agent that was renamed has left a file of its old name.
  const found = names.map((name) => readStatusFile(join(folder, name))).filter((status) => status !== null)
  const ours = found.filter(({ server }) => server === identity.base)
  const [newest] = ours.sort((a, b) => Date.parse(b.updated_at) - Date.parse(a.updated_at))
  if (newest === undefined) return null
  const updatedAtMs = Date.parse(newest.updated_at)
  const isFresh = Math.abs(Date.now() - updatedAtMs) <= FRESH_MS
  return { ...newest, updatedAtMs, isLive: newest.connected && isFresh && isRunning(newest) }
}

/** @param {string} folder */
function listNames(folder) {
  try {
    return readdirSync(folder).slice(0, FILES_MAX)
  } catch {
    return []
  }
}

/** @param {string} file @returns {Status | null} null: there is none that can be read */
function readStatusFile(file) {
  try {
    const stats = lstatSync(file)
    if (!stats.isFile() || stats.size > STATUS_BYTES_MAX) return null
    return parseStatus(JSON.parse(readFileSync(file, 'utf8')))
  } catch {
    // Gone in this moment, or not ours: as if there were none.
    return null
  }
}

/** @param {unknown} json @returns {Status | null} */
function parseStatus(json) {
  if (!isRecord(json)) return null
  const { agent, namespace, server, pid, started, connected, new: count, updated_at: updatedAt } = json
  if (!isName(agent) || !isName(namespace) || typeof server !== 'string' || typeof updatedAt !== 'string') return null
  if (!isCount(pid) || !isCount(count) || Number.isNaN(Date.parse(updatedAt))) return null
  const known = { agent, namespace, server, pid, started: typeof started === 'string' ? started : '' }
  return { ...known, connected: connected === true, new: count, updated_at: updatedAt }
}

/** @param {unknown} value @returns {value is number} */
function isCount(value) {
  return Number.isSafeInteger(value) && Number(value) >= 0
}

/** @param {Status} status whose pid may have been given to another process since */
function isRunning({ pid, started }) {
  // Where no listener was ever started, a hook need not load this.
  const { isAlive, readStartTime } = require('./processes.cjs')
  if (pid < 2 || !isAlive(pid)) return false
  const now = readStartTime(pid)
  return now === null || started === '' || now === started
}

/** @param {string} folder the runtime folder @param {string} session @returns {string} */
function toMemoryFile(folder, session) {
  return join(folder, `hook_${session.replace(/[^\w.-]/g, '-')}.json`)
}

/** @param {string} file @returns {Remembered} empty when there is nothing, or nothing that can be read */
function readMemory(file) {
  try {
    const stats = lstatSync(file)
    if (!stats.isFile() || stats.size > MEMORY_BYTES_MAX) return parseMemory(null)
    return parseMemory(JSON.parse(readFileSync(file, 'utf8')))
  } catch {
    return parseMemory(null)
  }
}

/** @param {unknown} json @returns {Remembered} */
function parseMemory(json) {
  const { told, blocked, peeks } = isRecord(json) ? json : {}
  return { told: listTexts(told), blocked: listTexts(blocked), peeks: isRecord(peeks) ? pickPeeks(peeks) : {} }
}

/** @param {unknown} value @returns {string[]} */
function listTexts(value) {
  return Array.isArray(value) ? value.filter((id) => typeof id === 'string') : []
}

/** @param {Record<string, unknown>} peeks @returns {Record<string, Peek>} */
function pickPeeks(peeks) {
  // Object.fromEntries defines what it is given: `__proto__` is a key like any other, and nobody's prototype.
  return Object.fromEntries(Object.entries(peeks).flatMap(([key, peek]) => (isPeek(peek) ? [[key, peek]] : [])))
}

/** @param {unknown} value @returns {value is Peek} */
function isPeek(value) {
  return (
    isRecord(value) &&
    Number.isFinite(value.at) &&
    Number.isInteger(value.new) &&
    (isName(value.agent) || value.agent === '') &&
    (isName(value.namespace) || value.namespace === '')
  )
}

module.exports = { parseStatus, prepareRuntimeFolder, readMemory, readStatus, readStatusFile, toMemoryFile }

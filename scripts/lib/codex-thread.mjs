/**
 * What is known of a Codex thread on this machine: `codex_<thread>.json` in the runtime folder, written by the hooks, read by the
 * listener of that thread, which holds a pidfile of its own beside it.
 */
import { randomBytes } from 'node:crypto'
import { lstatSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Pidfile } from './pidfile.mjs'
import { readStartTime } from './processes.mjs'
import { isAlive } from './surroundings.mjs'
import { isRecord } from './text.mjs'

/** Codex names threads by UUIDs; anything else must not become part of a path or an argument. */
const THREAD = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const STATE_FILE = /^codex_([0-9a-f-]{36})\.json$/
const STATES = ['busy', 'idle', 'ended']
/** Takes the place of a namespace in the name of the pidfile. */
const PIDFILE_GROUP = 'codex-thread'
const FORGOTTEN_AFTER_MS = 24 * 3_600_000

/**
 * @typedef {object} Thread
 * @property {string} thread
 * @property {string} folder the project
 * @property {'busy' | 'idle' | 'ended'} state
 * @property {number} changedAt Date.now() of the last hook
 * @property {number} turnAt Date.now() when the last turn began
 * @property {number} promptedAt Date.now() when a person last typed here
 * @property {import('./codex-process.mjs').CodexProcess} codex
 */

/** @param {unknown} value @returns {value is string} */
export function isThreadId(value) {
  return typeof value === 'string' && THREAD.test(value)
}

/** @param {string} runtime @param {string} thread */
export function listThreadFiles(runtime, thread) {
  return { state: join(runtime, `codex_${thread}.json`), log: join(runtime, `codex_${thread}.log`) }
}

/** @param {string} runtime @param {Thread} record */
export function writeThread(runtime, record) {
  writePrivate(listThreadFiles(runtime, record.thread).state, record)
}

/** A file appears whole, and only this user can read it. @param {string} file @param {object} json */
export function writePrivate(file, json) {
  // A random name, so that two hooks at once do not write into each other's.
  const temporary = `${file}.${randomBytes(4).toString('hex')}`
  try {
    writeFileSync(temporary, `${JSON.stringify(json)}\n`, { mode: 0o600, flag: 'wx' })
    renameSync(temporary, file)
  } finally {
    rmSync(temporary, { force: true })
  }
}

/** @param {string} runtime @param {string} thread @returns {Thread | null} null: unknown, or not written by us */
export function readThread(runtime, thread) {
  try {
    const file = listThreadFiles(runtime, thread).state
    if (!lstatSync(file).isFile()) return null
    return parseThread(JSON.parse(readFileSync(file, 'utf8')))
  } catch {
    // Missing or damaged: the next hook writes it again.
    return null
  }
}

/** @param {unknown} json @returns {Thread | null} */
function parseThread(json) {
  if (!isRecord(json) || !isThreadId(json.thread) || typeof json.folder !== 'string') return null
  if (!STATES.includes(String(json.state)) || typeof json.changedAt !== 'number') return null
  if (typeof json.promptedAt !== 'number' || typeof json.turnAt !== 'number') return null
  if (!isRecord(json.codex) || !Number.isInteger(json.codex.pid)) return null
  return /** @type {Thread} */ (/** @type {unknown} */ (json))
}

/** @param {string} runtime @returns {Thread[]} */
export function listThreads(runtime) {
  const ids = readdirSync(runtime).flatMap((name) => STATE_FILE.exec(name)?.[1] ?? [])
  return ids.flatMap((id) => (isThreadId(id) ? (readThread(runtime, id) ?? []) : []))
}

/** The lock of a thread's listener. @param {string} runtime @param {string} thread */
export function createThreadPidfile(runtime, thread) {
  return new Pidfile({ folder: runtime, origin: 'codex', namespace: PIDFILE_GROUP, agent: thread })
}

/** Whether a listener of this thread lives. @param {string} runtime @param {string} thread */
export function hasListener(runtime, thread) {
  try {
    const text = readFileSync(join(runtime, `subscribe_${PIDFILE_GROUP}_${thread}.pid`), 'utf8')
    const [pid, startTime] = text.split('\n')
    return isSameProcess({ pid: Number(pid), startTime: startTime || null })
  } catch {
    return false
  }
}

/** @param {{ pid: number, startTime: string | null }} process a start time that is not known proves nothing */
export function isSameProcess({ pid, startTime }) {
  if (!Number.isInteger(pid) || pid < 2 || !isAlive(pid)) return false
  const now = readStartTime(pid)
  return now === null || startTime === null ? now !== 'ended' : now === startTime
}

/**
 * Of several threads of one project, the one in which a person typed last: an agent has one inbox, and that is where its person is.
 * @param {Thread[]} threads @param {(thread: string) => boolean} isListening
 * @returns {string | null}
 */
export function findActiveThread(threads, isListening) {
  const listening = threads.filter(({ thread, state }) => state !== 'ended' && isListening(thread))
  listening.sort((a, b) => b.promptedAt - a.promptedAt || (a.thread < b.thread ? 1 : -1))
  return listening[0]?.thread ?? null
}

/** Removes what a thread leaves behind. @param {string} runtime @param {string} thread */
export function removeThread(runtime, thread) {
  for (const file of Object.values(listThreadFiles(runtime, thread))) rmSync(file, { force: true })
}

/** Removes files of threads that ended without a word, as after a power cut. @param {string} runtime @param {number} [now] */
export function removeOldThreads(runtime, now = Date.now()) {
  for (const { thread, changedAt } of listThreads(runtime)) {
    if (now - changedAt > FORGOTTEN_AFTER_MS && !hasListener(runtime, thread)) removeThread(runtime, thread)
  }
}

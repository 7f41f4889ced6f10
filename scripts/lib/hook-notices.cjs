/**
 * What hooks say, and what those of one session have said, as each hook is a process of its own. Notices are facts made of counts
 * and of names that pass the pattern, never a word of a message, and no orders. One module, as it is loaded while a server thinks.
 */
const { closeSync, lstatSync, openSync, readdirSync, renameSync, rmSync, writeSync } = require('node:fs')
const { join } = require('node:path')
const { isName } = require('./basics.cjs')
const { readMemory } = require('./runtime-folder.cjs')

const IDS_MAX = 1_000
const PEEKS_MAX = 16
const LOCK_TRIES_MAX = 25
const LOCK_WAIT_MS = 2
/** A lock is held for a millisecond or so; one as old as this was left by a process that was killed. */
const LOCK_STALE_MS = 2_000
const KEPT_MS = 7 * 24 * 3_600_000
const OURS = /^(?:hook_[\w.-]+\.(?:json|lock)|status_[\w.-]+\.tmp)$/

/**
 * @typedef {import('./runtime-folder.cjs').Kind} Kind
 * @typedef {import('./runtime-folder.cjs').Peek} Peek
 * @typedef {import('./runtime-folder.cjs').Remembered} Remembered
 */

/**
 * Notes what was found and what is now said of it, in one write.
 * @param {string} file of the session
 * @param {{ ids: string[], kinds: Kind[], peeks: Record<string, Peek> }} found peeks by the key of an identity
 * @returns {Set<string>} the ids that nothing of the first kind was said of before; none when that cannot be remembered
 */
function noteFound(file, { ids, kinds, peeks }) {
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
 * Several hooks run at once when a model calls several tools, so a change is made under a lock: the file's next version, which who
 * could create it writes and puts in place. Whoever cannot remember says nothing: a notice that repeats itself for ever is worse
 * than one that is missed.
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
    if (isFolder(file)) remove(file)
    renameSync(next, file)
    return true
  } catch {
    // A full disk, a folder that is gone: what cannot be remembered is not said.
    remove(next)
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
      if (isOlder(file, LOCK_STALE_MS)) remove(file)
      else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOCK_WAIT_MS)
    }
  }
  return null
}

/** Removes what sessions of long ago have left. @param {string} folder */
function forgetOldSessions(folder) {
  for (const name of readdirSync(folder)) {
    if (OURS.test(name) && isOlder(join(folder, name), KEPT_MS)) remove(join(folder, name))
  }
}

/** A folder, too, that stands in the way of a file of ours. What cannot be removed must not silence a hook. @param {string} file */
function remove(file) {
  try {
    rmSync(file, { force: true, recursive: true })
  } catch {
    // What needs the place finds out; nothing else does.
  }
}

/** @param {string} file */
function isFolder(file) {
  return lstatSync(file, { throwIfNoEntry: false })?.isDirectory() === true
}

/** By an unsigned distance, as a clock that was set back must not make a file young for ever. @param {string} file @param {number} ms */
function isOlder(file, ms) {
  try {
    return Math.abs(Date.now() - lstatSync(file).mtimeMs) > ms
  } catch {
    return false
  }
}

const NAMES_MAX = 5

/**
 * @typedef {{ agent: string, namespace: string, from: unknown[] }} Mail new messages of one identity, by their senders
 * @typedef {'server' | 'token'} Untrusted nothing of this server, or not this token of it
 */

/** `2 new messages for backend@acme, from alice, bob` @param {Mail} mail */
function describeMail({ agent, namespace, from }) {
  const names = [...new Set(from.map((name) => (isName(name) ? name : 'unknown')))]
  const senders = names.slice(0, NAMES_MAX).join(', ') + (names.length > NAMES_MAX ? ' and others' : '')
  return `${from.length} new message${from.length === 1 ? '' : 's'} for ${agent}@${namespace}, from ${senders}`
}

/** @param {Mail[]} mails none of them empty */
function describeNews(mails) {
  return `Patchcord: ${mails.map(describeMail).join('; ')}. The inbox tool shows the text.`
}

/** Why a turn does not end yet. @param {Mail[]} mails none of them empty */
function describeUnread(mails) {
  return `Patchcord: ${mails.map(describeMail).join('; ')}, not read yet. The inbox tool shows the text. Each message is mentioned here once; what is not read now stays in the inbox.`
}

/** @param {{ agent: string, namespace: string, isWakeable: boolean, client: string }} identity */
function describeIdentity({ agent, namespace, isWakeable, client }) {
  const how = client === 'claude-code' ? LISTENERS : ''
  return `Patchcord: this session is the agent ${agent}@${namespace}, ${isWakeable ? 'wakeable' : `not wakeable yet${how}`}.`
}

const LISTENERS =
  " (the plugin's listener starts by itself in an interactive session; /patchcord:subscribe starts one elsewhere)"

/** Trust is a person's to give, not the model's that reads this. @param {Untrusted} what */
function describeUntrusted(what) {
  return `Patchcord: ${what} not trusted yet: the user can run patchcord connect in a terminal`
}

/**
 * @param {string} own version of this plugin @param {string | null} server
 * @returns {string | null} null: the plugin is not older than the server, by its first two numbers
 */
function describeVersions(own, server) {
  if (server === null) return null
  const [major = 0, minor = 0] = own.split('.').map(Number)
  const [serverMajor = 0, serverMinor = 0] = server.split('.').map(Number)
  if (serverMajor < major || (serverMajor === major && serverMinor <= minor)) return null
  return `The Patchcord plugin of this session (${own}) is older than the server (${server}); the user can update it and restart the session.`
}

module.exports = {
  describeIdentity,
  describeNews,
  describeUnread,
  describeUntrusted,
  describeVersions,
  forgetOldSessions,
  noteFound,
}

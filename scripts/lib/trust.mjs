/**
 * The identities that the user has worked with by hand: the user's own file, never a repository's. `--auto` and hooks act as no
 * other. So a cloned repository can neither make a plugin call a host of its choice, nor make a session the agent of somebody
 * else at a server that the user knows.
 */
import { getBuiltin } from './node.mjs'
import { parseObject } from './text.mjs'
import { toIdentityKey } from './tokens.mjs'

const fs = getBuiltin('fs')
const { dirname } = getBuiltin('path')

const FILE_BYTES_MAX = 256 * 1024

/** How the file names an identity: `https://host/prefix AbC123`. @param {{ base: string, token: string }} identity */
export function toTrustId(identity) {
  return `${identity.base} ${toIdentityKey(identity)}`
}

/**
 * @param {string} file
 * @returns {Set<string>} empty when the file is missing, damaged, or could have been written by somebody else
 */
export function readTrusted(file) {
  return listTrusted(readRecord(file))
}

/** @param {Record<string, unknown>} json @returns {Set<string>} */
function listTrusted({ trusted }) {
  return new Set(Array.isArray(trusted) ? trusted.filter((id) => typeof id === 'string') : [])
}

/** @param {string} file @returns {Record<string, unknown>} */
function readRecord(file) {
  try {
    // O_NONBLOCK: a named pipe in its place must not hold us for ever.
    const handle = fs.openSync(file, fs.constants.O_RDONLY | (fs.constants.O_NONBLOCK ?? 0))
    try {
      const stats = fs.fstatSync(handle)
      const isMine = process.getuid === undefined || stats.uid === process.getuid()
      const isPrivate = process.platform === 'win32' || (stats.mode & 0o022) === 0
      if (!stats.isFile() || !isMine || !isPrivate || stats.size > FILE_BYTES_MAX) return {}
      return parseObject(fs.readFileSync(handle, 'utf8')) ?? {}
    } finally {
      fs.closeSync(handle)
    }
  } catch {
    // Unreadable is the same as nothing recorded: the user connects once more.
    return {}
  }
}

/**
 * Adds an identity; 0600, written through a temporary file in the same folder.
 * @param {string} file @param {string} id as toTrustId makes it
 */
export function recordTrust(file, id) {
  const json = readRecord(file)
  const known = listTrusted(json)
  if (!known.has(id)) write(file, { ...json, trusted: [...known, id].sort() })
}

/**
 * Takes an identity out again; a file that then says nothing is removed.
 * @param {string} file @param {string} id as toTrustId makes it
 */
export function forgetTrust(file, id) {
  const json = readRecord(file)
  const known = listTrusted(json)
  if (!known.delete(id)) return
  if (known.size === 0 && Object.keys(json).length === 1) fs.rmSync(file)
  else write(file, { ...json, trusted: [...known].sort() })
}

/** @param {string} file @param {Record<string, unknown>} json */
function write(file, json) {
  fs.mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
  const temporary = `${file}.${process.pid}.tmp`
  try {
    fs.writeFileSync(temporary, `${JSON.stringify(json, null, 2)}\n`, { mode: 0o600 })
    fs.chmodSync(temporary, 0o600)
    fs.renameSync(temporary, file)
  } finally {
    fs.rmSync(temporary, { force: true })
  }
}

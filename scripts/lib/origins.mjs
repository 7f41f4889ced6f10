/**
 * The servers that the user has spoken to by hand: the user's own file, never a repository's. `--auto` speaks to no other,
 * so that a cloned repository cannot make a plugin call a host of its choice.
 */
import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs'
import { chmod, mkdir, open, readFile, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { isRecord } from './text.mjs'

const FILE_BYTES_MAX = 256 * 1024

/**
 * @param {string} file
 * @returns {Promise<Set<string>>} empty when the file is missing, damaged, or could have been written by somebody else
 */
export async function readOrigins(file) {
  try {
    const handle = openSync(file, 'r')
    try {
      const stats = fstatSync(handle)
      const isMine = process.getuid === undefined || stats.uid === process.getuid()
      const isPrivate = process.platform === 'win32' || (stats.mode & 0o022) === 0
      if (!stats.isFile() || !isMine || !isPrivate || stats.size > FILE_BYTES_MAX) return new Set()
      return parseOrigins(readFileSync(handle, 'utf8'))
    } finally {
      closeSync(handle)
    }
  } catch {
    // Unreadable is the same as nothing recorded: the user starts the listener by hand once more.
    return new Set()
  }
}

/** @param {string} text @returns {Set<string>} */
function parseOrigins(text) {
  /** @type {unknown} */
  const json = JSON.parse(text)
  const origins = isRecord(json) ? json.origins : undefined
  return new Set(Array.isArray(origins) ? origins.filter((origin) => typeof origin === 'string') : [])
}

/**
 * Adds an origin; 0600, written through a temporary file in the same folder.
 * @param {string} file @param {string} origin
 */
export async function recordOrigin(file, origin) {
  const known = await readOrigins(file)
  if (known.has(origin)) return
  const text = await readFile(file, 'utf8').catch(() => '{}')
  await writeOrigins(file, { ...parseRecord(text), origins: [...known, origin].sort() })
}

/**
 * Takes an origin out again; a file that then says nothing is removed.
 * @param {string} file @param {string} origin
 */
export async function forgetOrigin(file, origin) {
  const known = await readOrigins(file)
  if (!known.delete(origin)) return
  const json = { ...parseRecord(await readFile(file, 'utf8')), origins: [...known].sort() }
  if (known.size === 0 && Object.keys(json).length === 1) await rm(file)
  else await writeOrigins(file, json)
}

/** @param {string} file @param {Record<string, unknown>} json */
async function writeOrigins(file, json) {
  await mkdir(dirname(file), { recursive: true, mode: 0o700 })
  const temporary = `${file}.${process.pid}.tmp`
  try {
    const handle = await open(temporary, 'w', 0o600)
    await handle.writeFile(`${JSON.stringify(json, null, 2)}\n`)
    await handle.close()
    await chmod(temporary, 0o600)
    await rename(temporary, file)
  } finally {
    await rm(temporary, { force: true })
  }
}

/** @param {string} text @returns {Record<string, unknown>} */
function parseRecord(text) {
  try {
    const json = /** @type {unknown} */ (JSON.parse(text))
    return isRecord(json) ? json : {}
  } catch {
    return {}
  }
}

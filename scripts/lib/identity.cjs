/**
 * An identity is a server and a token. The shape of a token: `pc_`, 43 base64url characters (256 random bits), 6 characters of
 * checksum. And the user's own list of trusted identities, which the user has worked with by hand: `--auto` and hooks act as no
 * other. So a cloned repository can neither make a plugin call a host of its choice, nor make a session the agent of somebody
 * else at a server that the user knows. One module, since a hook pays for each.
 */
const fs = require('node:fs')
const { dirname } = require('node:path')
const { parseObject } = require('./basics.cjs')

const TOKEN = /^pc_([A-Za-z0-9_-]{43})([0-9A-Za-z]{6})$/
const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

/**
 * Whether the text can be a token: only such text is ever sent to a server.
 * @param {unknown} text
 * @returns {text is string}
 */
function isTokenText(text) {
  const match = typeof text === 'string' ? TOKEN.exec(text) : null
  return match !== null && checksumToken(match[1] ?? '') === match[2]
}

/**
 * The last six characters: CRC-32 of the 43 before, in base 62 (digits 0-9A-Za-z), padded with zeros.
 * @param {string} secret
 */
function checksumToken(secret) {
  let rest = crc32(secret)
  let digits = ''
  while (digits.length < 6) {
    digits = DIGITS.charAt(rest % 62) + digits
    rest = Math.floor(rest / 62)
  }
  return digits
}

/**
 * Stands for an identity where its token must not be seen: in the names of runtime files and in the list of trusted identities.
 * 32 bits of a checksum, as node:crypto would cost a hook 5 ms. Enough for both: nobody but the user can read a key, so who
 * wants another token to pass for a known one has to guess; and it tells nothing of use about a token of 256 random bits.
 * @param {{ base: string, token: string }} identity
 */
function toIdentityKey({ base, token }) {
  return checksumToken(`${base} ${token}`)
}

/** CRC-32 of ISO 3309 (polynomial 0xEDB88320 reflected), bit by bit: zlib.crc32 is missing in Node 20. @param {string} text */
function crc32(text) {
  let crc = 0xffffffff
  for (let i = 0; i < text.length; i++) {
    crc ^= text.charCodeAt(i)
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0)
  }
  return (crc ^ 0xffffffff) >>> 0
}

const FILE_BYTES_MAX = 256 * 1024

/** How the file names an identity: `https://host/prefix AbC123`. @param {{ base: string, token: string }} identity */
function toTrustId(identity) {
  return `${identity.base} ${toIdentityKey(identity)}`
}

/**
 * @param {string} file
 * @returns {Set<string>} empty when the file is missing, damaged, or could have been written by somebody else
 */
function readTrusted(file) {
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
function recordTrust(file, id) {
  const json = readRecord(file)
  const known = listTrusted(json)
  if (!known.has(id)) write(file, { ...json, trusted: [...known, id].sort() })
}

/**
 * Takes an identity out again; a file that then says nothing is removed.
 * @param {string} file @param {string} id as toTrustId makes it
 */
function forgetTrust(file, id) {
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

module.exports = { checksumToken, forgetTrust, isTokenText, readTrusted, recordTrust, toIdentityKey, toTrustId }

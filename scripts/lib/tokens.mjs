/** The shape of an agent token: `pc_`, 43 base64url characters (256 random bits), 6 characters of checksum. */

const TOKEN = /^pc_([A-Za-z0-9_-]{43})([0-9A-Za-z]{6})$/
const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

/**
 * Whether the text can be a token: only such text is ever sent to a server.
 * @param {unknown} text
 * @returns {text is string}
 */
export function isTokenText(text) {
  const match = typeof text === 'string' ? TOKEN.exec(text) : null
  return match !== null && checksumToken(match[1] ?? '') === match[2]
}

/**
 * The last six characters: CRC-32 of the 43 before, in base 62 (digits 0-9A-Za-z), padded with zeros.
 * @param {string} secret
 */
export function checksumToken(secret) {
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
export function toIdentityKey({ base, token }) {
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

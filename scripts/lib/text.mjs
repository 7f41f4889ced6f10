/** What may reach a line that a model or a person reads: names by pattern, everything else on one line of printable text. */

const NAME = /^[a-z0-9](?:[a-z0-9._-]{0,38}[a-z0-9])?$/
/** Controls, line and paragraph separators, and the invisible or direction-changing characters of Unicode category Cf. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}]+/gu
/** Most texts; the classes of Unicode take a millisecond to build. */
const PLAIN = /^[\x20-\x7e]*$/
const TOKEN_LIKE = /pc_[A-Za-z0-9_-]{8,}/g

/** @param {unknown} value @returns {value is string} */
export function isName(value) {
  return typeof value === 'string' && NAME.test(value)
}

/**
 * One printable line of at most `charactersMax`, without anything that looks like a token.
 * @param {unknown} value @param {number} [charactersMax]
 */
export function toOneLine(value, charactersMax = 300) {
  const given = toText(value)
  const text = (PLAIN.test(given) ? given : given.replace(UNPRINTABLE, ' ')).replace(TOKEN_LIKE, 'pc_…')
  const characters = Array.from(text)
  return characters.length > charactersMax ? `${characters.slice(0, charactersMax - 1).join('')}…` : text
}

/** String() throws for objects that JSON can make: with a toString of their own, or nested too deep. @param {unknown} value */
function toText(value) {
  return typeof value === 'object' && value !== null ? '(no text)' : String(value)
}

/** @param {unknown} error */
export function describeError(error) {
  if (!(error instanceof Error)) return toOneLine(error)
  const code = 'code' in error && typeof error.code === 'string' ? error.code : error.name
  return toOneLine(error.message === '' ? code : error.message)
}

/** @param {unknown} value @returns {value is Record<string, unknown>} */
export function isRecord(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** @param {string} text @returns {Record<string, unknown> | null} null: no JSON, or no object */
export function parseObject(text) {
  try {
    const json = /** @type {unknown} */ (JSON.parse(text))
    return isRecord(json) ? json : null
  } catch {
    return null
  }
}

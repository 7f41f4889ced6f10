import { createHash, randomBytes } from 'node:crypto'

const CODE_PATTERN = /^[A-Za-z0-9_-]{43}$/

/** What opens a door for people: the secret of a login link, an invite or a session. 256 random bits. */
export function createCode(): string {
  return randomBytes(32).toString('base64url')
}

/** SHA-256 in hex: the only form in which a code is stored or looked up. */
export function hashCode(code: string): string {
  return createHash('sha256').update(code).digest('hex')
}

/** Whether a text can be one of our codes at all, so that a typing error needs no database. */
export function isCode(text: string): boolean {
  return CODE_PATTERN.test(text)
}

/**
 * The id of what a form makes: the same form sent twice makes one thing. Bound to who sends it, so that the id of somebody
 * else's row can neither be taken nor asked about.
 */
export function toFormId(owner: string, formId: string): string {
  const bytes = createHash('sha256').update(`${owner} ${formId}`).digest().subarray(0, 16)
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x80, 6)
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8)
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
}

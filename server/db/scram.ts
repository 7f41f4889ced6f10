import { createHash, createHmac, pbkdf2Sync, randomBytes } from 'node:crypto'

const ITERATIONS = 4096
const SALT_BYTES = 16
const KEY_BYTES = 32

/**
 * What Postgres stores for a password (RFC 5803, SCRAM-SHA-256). Sent instead of the password, it is of no use to who
 * reads it in a log or in pg_stat_statements. The password must be ASCII: there is no normalisation here.
 */
export function scramVerifier(password: string): string {
  const salt = randomBytes(SALT_BYTES)
  const salted = pbkdf2Sync(password, salt, ITERATIONS, KEY_BYTES, 'sha256')
  const hmac = (text: string) => createHmac('sha256', salted).update(text).digest()
  const storedKey = createHash('sha256').update(hmac('Client Key')).digest('base64')
  const serverKey = hmac('Server Key').toString('base64')
  return `SCRAM-SHA-256$${ITERATIONS}:${salt.toString('base64')}$${storedKey}:${serverKey}`
}

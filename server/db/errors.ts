import { type ErrorCode, PatchcordError } from '../errors.ts'

/** Codes of postgres.js and Node for a database that cannot be reached now. */
const CONNECTION_CODES = new Set([
  'CONNECT_TIMEOUT',
  'CONNECTION_CLOSED',
  'CONNECTION_DESTROYED',
  'CONNECTION_ENDED',
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOENT',
  'ENOTFOUND',
  'EPIPE',
  'ETIMEDOUT',
])

/** What our own functions raise where an outcome would come too late to undo what they did. */
const OWN_STATES: Record<string, ErrorCode> = { PC403: 'forbidden', PC404: 'not_found', PC409: 'conflict' }

/** Of a text with a NUL, or of bytes that are no UTF-8. */
const UNSTORABLE = '22021'

/** SQLSTATE classes and codes that pass: connection exceptions, resources, operator intervention, serialization, read-only. */
const PASSING_STATE = /^(?:08|53|57)|^(?:40001|40P01|25006|55P03)$/

/** Whether the connection of a query is gone, as the library says it; it has told `begin`, too. */
export function isConnectionLost(error: unknown): boolean {
  return CONNECTION_CODES.has(String((error as { code?: unknown } | null)?.code))
}

/** Of a query that ended without the row that it always has: nobody knows what came of it. */
export function connectionLost(): Error {
  return Object.assign(new Error('the connection was lost before the answer came'), { code: 'CONNECTION_CLOSED' })
}

/** A database error as the caller may see it; what is not a passing fault comes back as it was, to end as `internal`. */
export function translateDatabaseError(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof PatchcordError) return error
  const code = 'code' in error && typeof error.code === 'string' ? error.code : ''
  const own = OWN_STATES[code]
  if (code === UNSTORABLE) return new PatchcordError('invalid', 'A text holds a character that cannot be stored.')
  if (own) return new PatchcordError(own, error.message, { ...readHint(error), cause: error })
  if (!CONNECTION_CODES.has(code) && !PASSING_STATE.test(code)) return error
  return new PatchcordError('unavailable', 'The database does not answer right now.', {
    hint: 'Nothing is known to be stored: try again with the same idempotency key.',
    retryAfterSeconds: 2,
    cause: error,
  })
}

function readHint(error: Error): { hint?: string } {
  return 'hint' in error && typeof error.hint === 'string' ? { hint: error.hint } : {}
}

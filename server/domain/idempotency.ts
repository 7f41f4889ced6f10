import { createHash } from 'node:crypto'
import { z } from 'zod'

// biome-ignore lint/suspicious/noControlCharactersInRegex: Postgres cannot store NUL, and nobody needs the others
const KEY = /^[^\x00-\x1f\x7f]{1,200}$/u
/** Stored, half a character would be another one, and two keys one. */
export const IdempotencyKey = z
  .string()
  .regex(KEY, '1 to 200 characters without control characters')
  .refine((key) => !/\p{Surrogate}/u.test(key), 'holds half a character (a lone surrogate)')

/** What must be equal when an idempotency key comes again. */
export function hashBody(parts: (string | number | null)[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex')
}

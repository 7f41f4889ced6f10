import type { FastifyRequest } from 'fastify'
import { createTurns } from '../db/turns.ts'
import { PatchcordError } from '../errors.ts'
import type { Limiter } from './page.ts'

/** Runs a look-up of something secret, and counts each miss against the address of its socket. Throws rate_limited. */
export type Guess = <T>(request: FastifyRequest, look: () => Promise<T | null>) => Promise<T | null>

/** Of all addresses: whoever tries many waits for a turn, and takes the pool from nobody. */
const LOOKING_MAX = 4

/**
 * Codes have 256 bits: nobody finds one. Past the limit a miss is answered 429 and what is right goes on: behind a proxy everybody
 * has one address, and whoever tries codes must not keep the others out.
 */
export function createGuesses(limiter: Limiter): Guess {
  const turns = createTurns(LOOKING_MAX)
  return async (request, look) => {
    const found = await turns('', look)
    const wait = found === null ? limiter.hit(request.socket.remoteAddress ?? '') : null
    if (wait !== null) throw tooMany(wait)
    return found
  }
}

function tooMany(seconds: number): PatchcordError {
  return new PatchcordError('rate_limited', 'Too many links from your address did not work.', {
    hint: `Wait ${seconds} s, then open a link that is new.`,
    retryAfterSeconds: seconds,
  })
}

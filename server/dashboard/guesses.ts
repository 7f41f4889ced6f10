import type { FastifyRequest } from 'fastify'
import { PatchcordError } from '../errors.ts'
import type { Limiter } from './page.ts'

/** Runs a look-up of something secret, and counts each miss against the address of its socket. Throws rate_limited. */
export type Guess = <T>(request: FastifyRequest, look: () => Promise<T | null>) => Promise<T | null>

/** Codes have 256 bits: nobody finds one. The limit keeps those who try from costing the database anything. */
export function createGuesses(limiter: Limiter): Guess {
  return async (request, look) => {
    const address = request.socket.remoteAddress ?? ''
    const wait = limiter.isSpent(address) ? limiter.hit(address) : null
    if (wait !== null) throw tooMany(wait)
    const found = await look()
    if (found === null) limiter.hit(address)
    return found
  }
}

function tooMany(seconds: number): PatchcordError {
  return new PatchcordError('rate_limited', 'Too many links from your address did not work.', {
    hint: `Wait ${seconds} s, then open a link that is new.`,
    retryAfterSeconds: seconds,
  })
}

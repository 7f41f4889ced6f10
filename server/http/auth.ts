import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import type { FastifyInstance } from 'fastify'
import type { Sql } from '../db/connect.ts'
import { createResolver } from '../db/resolve.ts'
import type { Identity, Scope } from '../db/scope.ts'
import type { Turns } from '../db/turns.ts'
import { hashToken, isTokenText } from '../domain/tokens.ts'
import { type ErrorCode, PatchcordError } from '../errors.ts'
import { createAddressLimiter } from './address-limit.ts'

/** Who sends a request, and the hash by which the database finds out again in every statement. */
export interface Caller {
  identity: Identity
  tokenHash: string
  /** See http/trace.ts. */
  trace?: string
}

type Asking = Pick<IncomingMessage, 'headers' | 'socket'> & { id?: string }

/** Throws token_missing, token_rejected, token_revoked, agent_gone, rate_limited or unavailable. */
export type Authenticate = (request: Asking) => Promise<Caller>

declare module 'fastify' {
  interface FastifyRequest {
    /** null before authentication and on routes without it. */
    caller: Caller | null
    /** Runs a domain function as the caller. */
    scoped<T>(work: (scope: Scope, me: Identity) => Promise<T>): Promise<T>
  }
}

const NO_VALID_TOKEN: ReadonlySet<ErrorCode> = new Set([
  'token_missing',
  'token_rejected',
  'token_revoked',
  'agent_gone',
])

/**
 * A ban and a token that is none are remembered for so long; what is revoked may be restored, and is asked for each time. Less
 * than the second after which a refused listener asks once more, to learn whether it was refused in earnest.
 */
const REMEMBERED: ReadonlySet<ErrorCode> = new Set(['rate_limited', 'token_rejected'])
const REFUSAL_MS = 500
const REFUSALS_MAX = 10_000

/** Runs `work` with the hash of a request's token; what it throws of a token counts as a request without a valid one. */
export type Admit = <T>(
  request: Pick<IncomingMessage, 'headers' | 'socket'>,
  work: (tokenHash: string) => Promise<T>,
) => Promise<T>

export interface Admission {
  admit: Admit
  /** What a request will be refused with, where that is known without the database: the token is banned, or none and the address over its limit. */
  foresee(request: Pick<IncomingMessage, 'headers' | 'socket'>): PatchcordError | null
}

/**
 * Requests without a valid token are counted by the address of their socket (never X-Forwarded-For, which anybody can
 * write): past the limit they are answered 429, valid ones go on.
 */
export function createAdmission(options: { unauthenticatedPerMinute: number }): Admission {
  const limiter = createAddressLimiter(options.unauthenticatedPerMinute)
  const known = createRefusals()
  const tooMany = createTooMany()

  function count(error: PatchcordError, { socket }: Pick<IncomingMessage, 'socket'>): PatchcordError {
    if (!NO_VALID_TOKEN.has(error.code)) return error
    const retryAfterSeconds = limiter.hit(socket.remoteAddress ?? '')
    return retryAfterSeconds === null ? error : tooMany(error, retryAfterSeconds)
  }

  return {
    async admit(request, work) {
      const token = readToken(request.headers)
      if (token instanceof PatchcordError) throw count(token, request)
      const tokenHash = hashToken(token)
      const refusal = known.find(tokenHash)
      if (refusal) throw count(refusal, request)
      try {
        return await work(tokenHash)
      } catch (error) {
        if (!(error instanceof PatchcordError)) throw error
        known.note(tokenHash, error)
        throw count(error, request)
      }
    },
    foresee(request) {
      const token = readToken(request.headers)
      const error = token instanceof PatchcordError ? token : known.find(hashToken(token))
      if (!error) return null
      const isBan = !NO_VALID_TOKEN.has(error.code)
      return isBan || limiter.isSpent(request.socket.remoteAddress ?? '') ? count(error, request) : null
    },
  }
}

/** Tokens that were refused a moment ago, by hash: they are refused again without a look at the database. */
function createRefusals() {
  const refusals = new Map<string, { error: PatchcordError; until: number }>()
  return {
    note(tokenHash: string, error: PatchcordError): void {
      if (!REMEMBERED.has(error.code)) return
      refusals.delete(tokenHash)
      refusals.set(tokenHash, { error, until: performance.now() + REFUSAL_MS })
      for (const oldest of refusals.keys()) {
        if (refusals.size <= REFUSALS_MAX) break
        refusals.delete(oldest)
      }
    },
    find(tokenHash: string): PatchcordError | null {
      const refusal = refusals.get(tokenHash)
      if (!refusal) return null
      if (performance.now() < refusal.until) return refusal.error
      refusals.delete(tokenHash)
      return null
    },
  }
}

/** The last one is kept: with its stack, an error is the most expensive part of a refusal. */
function createTooMany(): (error: PatchcordError, retryAfterSeconds: number) => PatchcordError {
  let last: { key: string; error: PatchcordError } | null = null
  return ({ message }, retryAfterSeconds) => {
    const key = `${retryAfterSeconds} ${message}`
    if (last?.key === key) return last.error
    const error = new PatchcordError('rate_limited', 'Too many requests without a valid token from this address.', {
      hint: `${message} Correct it, then try again.`,
      retryAfterSeconds,
    })
    last = { key, error }
    return error
  }
}

/** The bearer token of a request as its caller. */
export function createAuthenticator({ sql, admit, turns }: { sql: Sql; admit: Admit; turns: Turns }): Authenticate {
  const resolve = createResolver(sql)
  return (request) =>
    admit(request, async (tokenHash) => {
      const identity = await turns(tokenHash, () => resolve(tokenHash))
      return { identity, tokenHash, ...(request.id !== undefined && { trace: request.id }) }
    })
}

const MISSING = new PatchcordError('token_missing', 'This call needs an agent token.', {
  hint: 'Send the header "Authorization: Bearer pc_…".',
})
const PLACEHOLDER = new PatchcordError('token_rejected', 'The token is a placeholder that was not expanded.', {
  hint: 'Set the environment variable that .mcp.json names before the client starts.',
})
const MALFORMED = new PatchcordError('token_rejected', 'The token is not valid or has expired.', {
  hint: 'Ask for a new token and put it into .mcp.json.',
})

/** What may be a token, or why it cannot be one. */
function readToken({ authorization = '' }: IncomingHttpHeaders): string | PatchcordError {
  const text = /^bearer +(.*)$/i.exec(authorization)?.[1]?.trim()
  if (!text) return MISSING
  if (isTokenText(text)) return text
  return /^\$\{|^\$\w+$/.test(text) ? PLACEHOLDER : MALFORMED
}

/** Every route of the app needs a token and gets `request.scoped`; authentication comes before the body is read. */
export function requireToken(
  app: FastifyInstance,
  options: { authenticate: Authenticate; scopeFor(caller: Caller): Scope },
): void {
  app.decorateRequest('caller', null)
  app.decorateRequest('scoped', async function scoped(work) {
    if (!this.caller) throw new Error('a route without authentication used request.scoped')
    return await work(options.scopeFor(this.caller), this.caller.identity)
  })
  app.addHook('onRequest', async (request) => {
    request.caller = await options.authenticate(request)
  })
}

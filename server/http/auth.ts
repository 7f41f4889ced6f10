import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import type { FastifyInstance } from 'fastify'
import type { Sql } from '../db/connect.ts'
import type { Identity, Scope } from '../db/scope.ts'
import { hashToken, isTokenText, resolveToken } from '../domain/tokens.ts'
import { type ErrorCode, PatchcordError } from '../errors.ts'
import { createAddressLimiter } from './address-limit.ts'

/** Who sends a request, and the hash by which the database finds out again in every statement. */
export interface Caller {
  identity: Identity
  tokenHash: string
}

/** Throws token_missing, token_rejected, token_revoked, agent_gone, rate_limited or unavailable. */
export type Authenticate = (request: Pick<IncomingMessage, 'headers' | 'socket'>) => Promise<Caller>

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

/** Runs `work` with the hash of a request's token; what it throws of a token counts as a request without a valid one. */
export type Admit = <T>(
  request: Pick<IncomingMessage, 'headers' | 'socket'>,
  work: (tokenHash: string) => Promise<T>,
) => Promise<T>

/**
 * Requests without a valid token are counted by the address of their socket (never X-Forwarded-For, which anybody can
 * write): past the limit they are answered 429, valid ones go on.
 */
export function createAdmission(options: { unauthenticatedPerMinute: number }): Admit {
  const limiter = createAddressLimiter(options.unauthenticatedPerMinute)
  return async ({ headers, socket }, work) => {
    try {
      return await work(hashToken(readToken(headers)))
    } catch (error) {
      if (!(error instanceof PatchcordError) || !NO_VALID_TOKEN.has(error.code)) throw error
      const retryAfterSeconds = limiter.hit(socket.remoteAddress ?? '')
      if (retryAfterSeconds === null) throw error
      throw new PatchcordError('rate_limited', 'Too many requests without a valid token from this address.', {
        hint: `${error.message} Correct it, then try again.`,
        retryAfterSeconds,
      })
    }
  }
}

/** The bearer token of a request as its caller. */
export function createAuthenticator(options: { sql: Sql; admit: Admit }): Authenticate {
  return (request) =>
    options.admit(request, async (tokenHash) => ({ identity: await resolveToken(options.sql, tokenHash), tokenHash }))
}

function readToken(headers: IncomingHttpHeaders): string {
  const { authorization = '' } = headers
  const text = /^bearer +(.*)$/i.exec(authorization)?.[1]?.trim()
  if (!text) {
    throw new PatchcordError('token_missing', 'This call needs an agent token.', {
      hint: 'Send the header "Authorization: Bearer pc_…".',
    })
  }
  if (isTokenText(text)) return text
  if (/^\$\{|^\$\w+$/.test(text)) {
    throw new PatchcordError('token_rejected', 'The token is a placeholder that was not expanded.', {
      hint: 'Set the environment variable that .mcp.json names before the client starts.',
    })
  }
  throw new PatchcordError('token_rejected', 'The token is not valid or has expired.', {
    hint: 'Ask for a new token and put it into .mcp.json.',
  })
}

/** Every route of the app needs a token and gets `request.scoped`; authentication comes before the body is read. */
export function requireToken(
  app: FastifyInstance,
  options: { authenticate: Authenticate; scopeFor(tokenHash: string): Scope },
): void {
  app.decorateRequest('caller', null)
  app.decorateRequest('scoped', async function scoped(work) {
    if (!this.caller) throw new Error('a route without authentication used request.scoped')
    return await work(options.scopeFor(this.caller.tokenHash), this.caller.identity)
  })
  app.addHook('onRequest', async (request) => {
    request.caller = await options.authenticate(request.raw)
  })
}

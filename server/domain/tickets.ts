import { compactVerify, decodeProtectedHeader, errors, importJWK, type JWTPayload, SignJWT } from 'jose'
import { z } from 'zod'
import { translateDatabaseError } from '../db/errors.ts'
import type { Identity, Scope } from '../db/scope.ts'
import { PatchcordError, StartError } from '../errors.ts'

/** A revoked token's ticket is heard no longer than this where we cannot cut it off ourselves (Supabase Realtime). */
export const TICKET_SECONDS_MAX = 600
/**
 * The official client keeps its URL for good, and must come back with it after a restart of ours. So the apikey outlives its
 * ticket; it opens a socket and nothing more: as role `anon` it reads no private topic and no row.
 */
const APIKEY_SECONDS_MAX = 86_400
/** The database role that a ticket stands for: PostgREST, Storage and Functions refuse it, Realtime can set it. */
export const TICKET_ROLE = 'patchcord_ticket'

/** The claims of a verified JWT: `role` and `exp` (seconds) are certain, everything else is as it came. */
export interface TicketClaims {
  role: string
  exp: number
  [claim: string]: unknown
}

export type SigningKey =
  | { algorithm: 'HS256'; secret: string }
  | { algorithm: 'ES256'; jwk: { kid: string; [member: string]: unknown } }

export interface TicketSigner {
  sign(claims: TicketClaims): Promise<string>
  /** Checks algorithm, signature, `role` and `exp` as Supabase Realtime does (not `nbf`, `aud`, `iss`). Throws TicketError. */
  verify(jwt: string): Promise<TicketClaims>
}

export type TicketFault = 'malformed' | 'signer' | 'signature' | 'claims' | 'expired' | 'revoked'

/** Why a JWT is no ticket; the message is Supabase Realtime's own sentence, so that clients treat ours alike. */
export class TicketError extends PatchcordError {
  readonly fault: TicketFault

  constructor(fault: TicketFault, message: string) {
    super('token_rejected', message)
    this.fault = fault
  }
}

/** Throws StartError where the key cannot sign, naming the variable it came from. */
export async function createTicketSigner(signing: SigningKey): Promise<TicketSigner> {
  const { signKey, verifyKey } = await importKeys(signing)
  const kid = signing.algorithm === 'ES256' ? signing.jwk.kid : undefined
  const header = { alg: signing.algorithm, ...(kid === undefined ? {} : { kid }), typ: 'JWT' }
  return {
    sign: (claims) => new SignJWT(claims as JWTPayload).setProtectedHeader(header).sign(signKey),
    async verify(jwt) {
      requireSigner(jwt, signing.algorithm, kid)
      const payload = await openSignature(jwt, verifyKey, signing.algorithm)
      return checkClaims(payload, Math.floor(Date.now() / 1000))
    },
  }
}

async function importKeys(signing: SigningKey) {
  try {
    if (signing.algorithm === 'ES256') {
      const { d: _private, key_ops: _operations, ...publicJwk } = signing.jwk
      const { key_ops: _, ...privateJwk } = signing.jwk
      return { signKey: await importJWK(privateJwk, 'ES256'), verifyKey: await importJWK(publicJwk, 'ES256') }
    }
    const bytes = new TextEncoder().encode(signing.secret)
    const hmac = { name: 'HMAC', hash: 'SHA-256' }
    const key = await crypto.subtle.importKey('raw', bytes, hmac, false, ['sign', 'verify'])
    return { signKey: key, verifyKey: key }
  } catch (cause) {
    const variable = signing.algorithm === 'ES256' ? 'PATCHCORD_SIGNING_KEY' : 'SUPABASE_JWT_SECRET'
    throw new StartError(`${variable} is not a key that can sign with ${signing.algorithm}.`, { cause })
  }
}

/** One algorithm only: a JWT that names another (or `none`) is refused before any key is tried on it. */
function requireSigner(jwt: string, algorithm: string, kid: string | undefined): void {
  const header = decodeHeader(jwt)
  if (header.alg === algorithm && (kid === undefined || header.kid === kid)) return
  const named = typeof header.kid === 'string' ? ` for key ID (kid) "${header.kid}"` : ''
  throw new TicketError('signer', `Failed to generate JWT signer${named}, check your JWT secret or JWKS configuration`)
}

function malformed(): TicketError {
  return new TicketError('malformed', 'The token provided is not a valid JWT')
}

function decodeHeader(jwt: string) {
  if (jwt.split('.').length !== 3) throw malformed()
  try {
    return decodeProtectedHeader(jwt)
  } catch {
    throw malformed()
  }
}

async function openSignature(jwt: string, key: Parameters<typeof compactVerify>[1], algorithm: string) {
  try {
    const { payload } = await compactVerify(jwt, key, { algorithms: [algorithm] })
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(payload)) as unknown
  } catch (error) {
    if (error instanceof errors.JWSSignatureVerificationFailed) {
      throw new TicketError('signature', 'Failed to validate JWT signature')
    }
    throw malformed()
  }
}

function checkClaims(payload: unknown, nowSeconds: number): TicketClaims {
  if (typeof payload !== 'object' || payload === null || Array.isArray(payload)) throw malformed()
  const claims = payload as Record<string, unknown>
  const { role, exp, iat } = claims
  const isComplete = typeof role === 'string' && role !== '' && typeof exp === 'number' && Number.isFinite(exp)
  if (!isComplete || (iat !== undefined && typeof iat !== 'number')) {
    throw new TicketError('claims', 'Fields `role` and `exp` are required in JWT')
  }
  if (Math.round(exp) <= nowSeconds) throw expiredError(exp, nowSeconds)
  return claims as TicketClaims
}

/** The sentence of a token whose `exp` (seconds, may be fractional) has passed. */
export function expiredError(exp: number, nowSeconds: number): TicketError {
  const ago = Math.max(0, Math.floor(nowSeconds) - Math.round(exp))
  return new TicketError('expired', `Token has expired ${ago} seconds ago`)
}

const PostgresChange = z.object({
  event: z.literal('INSERT'),
  schema: z.string(),
  table: z.string(),
  filter: z.string(),
})

export const TicketTopic = z.object({
  name: z.string().describe('Phoenix topic, ready to join'),
  config: z.object({
    broadcast: z.object({ ack: z.boolean(), self: z.boolean() }),
    presence: z.object({ key: z.string(), enabled: z.boolean() }),
    postgres_changes: z.array(PostgresChange),
    private: z.boolean(),
  }),
})
export type TicketTopic = z.output<typeof TicketTopic>

/** What a listener needs to hear of its agent's new messages, for at most ten minutes. */
export const Ticket = z.object({
  namespace_ids: z.array(z.string()).describe('Names'),
  agent_id: z.string().describe('Name'),
  realtime_url: z.string().describe('Ends in /websocket, no query'),
  apikey: z.string(),
  jwt: z.string(),
  jwt_expires_in: z.int().describe('Seconds'),
  topics: z.array(TicketTopic),
})
export type Ticket = z.output<typeof Ticket>

export interface TicketOptions {
  signer: TicketSigner
  realtime: 'builtin' | 'broadcast' | 'postgres_changes'
  supabase: { url: URL; publishableKey: string } | null
  /** Our own endpoint as this caller reaches it: ws(s)://…/realtime/v1/websocket. */
  websocketUrl: string
}

/** Throws realtime_not_configured where Supabase Realtime is asked for and not known. */
export async function issueTicket(scope: Pick<Scope, 'sql'>, me: Identity, options: TicketOptions): Promise<Ticket> {
  const iat = await readIssueTime(scope, options)
  const tokenEnd = me.expiresAt === null ? Number.POSITIVE_INFINITY : Math.floor(Date.parse(me.expiresAt) / 1000)
  const seconds = Math.min(TICKET_SECONDS_MAX, tokenEnd - iat)
  if (seconds < 1) throw new PatchcordError('token_rejected', 'The token has expired.')
  const shared = { aud: 'authenticated', iat, token: me.tokenId }
  const subject = { sub: me.agentId, ns: me.namespaceId, agent: me.agentId }
  const anonymous = { ...shared, role: 'anon', exp: Math.min(iat + APIKEY_SECONDS_MAX, tokenEnd) }
  return {
    namespace_ids: [me.namespace],
    agent_id: me.agent,
    ...(await describeEndpoint(options, anonymous)),
    jwt: await options.signer.sign({ ...shared, ...subject, role: TICKET_ROLE, exp: iat + seconds }),
    jwt_expires_in: seconds,
    topics: [describeTopic(me, options.realtime)],
  }
}

/** Whoever reads `exp` sets the clock: our own endpoint in this process, or the policy in the project's database. */
async function readIssueTime({ sql }: Pick<Scope, 'sql'>, { realtime }: TicketOptions): Promise<number> {
  if (realtime === 'builtin') return Math.floor(Date.now() / 1000)
  try {
    const [row] = await sql<[{ now: number }]>`select floor(extract(epoch from clock_timestamp()))::float8 as now`
    return row.now
  } catch (error) {
    throw translateDatabaseError(error)
  }
}

/** On our endpoint the apikey is a JWT that names the token, so that a socket without a channel has an owner. */
async function describeEndpoint(options: TicketOptions, anonymous: TicketClaims) {
  if (options.realtime === 'builtin') {
    return { realtime_url: options.websocketUrl, apikey: await options.signer.sign(anonymous) }
  }
  if (!options.supabase) {
    throw new PatchcordError('realtime_not_configured', 'This server is not configured for realtime.')
  }
  const base = options.supabase.url.href.replace(/^http/, 'ws').replace(/\/*$/, '')
  return { realtime_url: `${base}/realtime/v1/websocket`, apikey: options.supabase.publishableKey }
}

function describeTopic(me: Identity, realtime: TicketOptions['realtime']): TicketTopic {
  const insert = {
    event: 'INSERT' as const,
    schema: 'patchcord',
    table: 'agent_messages',
    filter: `to_agent_uuid=eq.${me.agentId}`,
  }
  return {
    name: `realtime:agent:${me.namespaceId}:${me.agentId}`,
    config: {
      broadcast: { ack: false, self: false },
      presence: { key: '', enabled: false },
      postgres_changes: realtime === 'postgres_changes' ? [insert] : [],
      private: true,
    },
  }
}

import { type TicketClaims, TicketError, type TicketFault, type TicketSigner } from '../domain/tickets.ts'
import type { Hub } from './hub.ts'
import type { JoinRequest } from './phoenix.ts'
import { mayReadTopic } from './topic.ts'

/** The codes that Supabase Realtime puts before the reason of a refused join. */
const JOIN_CODES: Record<TicketFault, string> = {
  malformed: 'MalformedJWT',
  signer: 'JwtSignerError',
  signature: 'JwtSignatureError',
  claims: 'InvalidJWTToken',
  expired: 'InvalidJWTToken',
  revoked: 'InvalidJWTToken',
}

/** A join that is refused, with the reason as Supabase Realtime words it. */
export class Refusal extends Error {}

export interface Authority {
  hub: Hub
  verifier: TicketSigner
}

/**
 * Who may join what. A public channel is anybody's with a good token: it carries no wakes, and table changes are filtered
 * by the token's own claims. Throws Refusal.
 */
export async function authorizeJoin(
  name: string,
  request: JoinRequest,
  apikeyClaims: TicketClaims,
  authority: Authority,
): Promise<TicketClaims> {
  const claims = await verifyJoin(request.accessToken, apikeyClaims, authority)
  if (request.isPrivate && !mayReadTopic(claims, name, Date.now() / 1000)) {
    throw new Refusal(`Unauthorized: ${cannotRead(name)}`)
  }
  if (request.replay === null) return claims
  if (!request.isPrivate) throw new Refusal('UnableToReplayMessages: Replay is not allowed for public channels')
  if (request.replay === 'invalid') throw new Refusal('UnableToReplayMessages: Replay params are not valid')
  return claims
}

async function verifyJoin(
  accessToken: string | null,
  apikeyClaims: TicketClaims,
  authority: Authority,
): Promise<TicketClaims> {
  if (accessToken === null) return apikeyClaims
  // The first byte that "Bearer" decodes to, in the sentence of the original's JSON parser.
  if (accessToken.startsWith('Bearer ')) {
    throw new Refusal('UnknownErrorOnChannel: unexpected byte at position 0: 0x5')
  }
  try {
    return await verifyTicket(accessToken, authority)
  } catch (error) {
    if (!(error instanceof TicketError)) throw error
    throw new Refusal(`${JOIN_CODES[error.fault]}: ${error.message}`)
  }
}

/** The claims of a JWT whose API token was not revoked. Throws TicketError. */
export async function verifyTicket(jwt: string, { hub, verifier }: Authority): Promise<TicketClaims> {
  const claims = await verifier.verify(jwt)
  if (typeof claims.token === 'string' && hub.isRevoked(claims.token)) {
    throw new TicketError('revoked', 'Token has been revoked')
  }
  return claims
}

export function cannotRead(name: string): string {
  return `You do not have permissions to read from this Channel topic: ${name}`
}

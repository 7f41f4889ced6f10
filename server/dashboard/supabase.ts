import { createRemoteJWKSet, errors, type JWTPayload, jwtVerify } from 'jose'
import type { Signing, Supabase } from '../config.ts'
import { PatchcordError } from '../errors.ts'

/** Who Supabase Auth says has signed in. */
export interface Subject {
  /** The user's UUID in Supabase Auth. */
  subject: string
  /** Only an address that Supabase calls confirmed. */
  email: string | null
  name: string
}

export interface Verifier {
  /** null for a token that is not valid (any more). Throws unavailable when Supabase cannot be asked. */
  verify(token: unknown): Promise<Subject | null>
}

const ASYMMETRIC = ['ES256', 'RS256', 'EdDSA']
/** Unknown key ids make one request for the keys in this time, however many come. */
const COOLDOWN_MS = 30_000
const TIMEOUT_MS = 5_000
const CLOCK_TOLERANCE_SECONDS = 5
const TOKEN_CHARACTERS_MAX = 8_192
const NAME_CHARACTERS_MAX = 60
const UUID = /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i

/**
 * Checks access tokens of Supabase Auth (supabase.com/docs/guides/auth/jwts): signed by a key of the project's JWKS, or with its
 * legacy secret where the operator has set that; for each only algorithms of its own kind, so that no public key can pass for a secret.
 */
export function createVerifier(
  supabase: Pick<Supabase, 'url' | 'publishableKey'>,
  signing: Signing | null,
  { cooldownMs = COOLDOWN_MS } = {},
): Verifier {
  const issuer = new URL('/auth/v1', supabase.url).href
  const keys = createRemoteJWKSet(new URL(`${issuer}/.well-known/jwks.json`), {
    cooldownDuration: cooldownMs,
    timeoutDuration: TIMEOUT_MS,
  })
  const secret = signing?.algorithm === 'HS256' ? new TextEncoder().encode(signing.secret) : null
  const expected = {
    issuer,
    audience: 'authenticated',
    clockTolerance: CLOCK_TOLERANCE_SECONDS,
    requiredClaims: ['exp', 'sub', 'iat'],
  }

  async function check(token: string): Promise<JWTPayload> {
    if (secret && readAlgorithm(token) === 'HS256') {
      return (await jwtVerify(token, secret, { ...expected, algorithms: ['HS256'] })).payload
    }
    return (await jwtVerify(token, keys, { ...expected, algorithms: ASYMMETRIC })).payload
  }

  return {
    async verify(token) {
      if (typeof token !== 'string' || token.length > TOKEN_CHARACTERS_MAX) return null
      const payload = await refusing(() => check(token))
      if (!payload || !isPerson(payload)) return null
      return await findUser(issuer, supabase.publishableKey, token, payload.sub)
    },
  }
}

/** null for what jose refuses of a token; throws unavailable for keys that cannot be fetched. */
async function refusing<T>(check: () => Promise<T>): Promise<T | null> {
  try {
    return await check()
  } catch (error) {
    // What is wrong with the keys' server: jose has no code of its own for it, and fetch throws a TypeError.
    const isUnreachable =
      error instanceof TypeError ||
      error instanceof errors.JWKSTimeout ||
      (error instanceof errors.JOSEError && error.code === 'ERR_JOSE_GENERIC')
    if (isUnreachable) throw notReachable(error)
    if (error instanceof errors.JOSEError) return null
    throw error
  }
}

function notReachable(cause: unknown): PatchcordError {
  return new PatchcordError('unavailable', 'Supabase cannot be reached from this server.', {
    hint: 'Go to the sign-in and try again in a moment.',
    cause,
  })
}

function readAlgorithm(token: string): unknown {
  try {
    return JSON.parse(Buffer.from(token.split('.', 1)[0] ?? '', 'base64url').toString()).alg
  } catch {
    return null // No token at all: jose says so.
  }
}

/** Supabase's anonymous users and its service keys are nobody who could sign in. */
function isPerson(payload: JWTPayload): payload is JWTPayload & { sub: string } {
  return UUID.test(payload.sub ?? '') && payload.role === 'authenticated' && payload.is_anonymous !== true
}

interface User {
  id?: unknown
  email?: unknown
  email_confirmed_at?: unknown
  user_metadata?: { full_name?: unknown; name?: unknown } | null
}

/**
 * The user as Supabase knows it now: whether the address is confirmed stands in no claim that the user could not write. null for a
 * session that was ended and a user that was deleted.
 */
async function findUser(issuer: string, apikey: string, token: string, subject: string): Promise<Subject | null> {
  const headers = { apikey, authorization: `Bearer ${token}` }
  const signal = AbortSignal.timeout(TIMEOUT_MS)
  const answer = await fetch(`${issuer}/user`, { headers, signal }).catch((error: unknown) => {
    throw notReachable(error)
  })
  if (answer.status === 401 || answer.status === 403 || answer.status === 404) return null
  if (!answer.ok) throw notReachable(new Error(`/user answers ${answer.status}`))
  const user = (await answer.json().catch(() => ({}))) as User
  if (user.id !== subject) return null
  const email = typeof user.email === 'string' && user.email !== '' && user.email_confirmed_at ? user.email : null
  return { subject, email: email?.toLowerCase() ?? null, name: readName(user) ?? email?.split('@', 1)[0] ?? '' }
}

function readName({ user_metadata: metadata }: User): string | null {
  const names = [metadata?.full_name, metadata?.name]
  const name = names.find((each): each is string => typeof each === 'string' && each.trim() !== '')
  return name === undefined ? null : Array.from(name.trim()).slice(0, NAME_CHARACTERS_MAX).join('')
}

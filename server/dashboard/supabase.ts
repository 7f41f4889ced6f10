import { createRemoteJWKSet, errors, type JWTPayload, type JWTVerifyGetKey, jwtVerify } from 'jose'
import type { Signing, Supabase } from '../config.ts'
import { PatchcordError } from '../errors.ts'

/** Who Supabase Auth says has signed in. */
export interface Subject {
  /** The user's UUID in Supabase Auth. */
  subject: string
  /** Only an address that its owner has confirmed. */
  email: string | null
  name: string
}

export interface Verifier {
  /** null for a token that is not valid. Throws unavailable when the keys cannot be had. */
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
export function createVerifier({ url }: Pick<Supabase, 'url'>, signing: Signing | null): Verifier {
  const issuer = new URL('/auth/v1', url).href
  const keys = createRemoteJWKSet(new URL(`${issuer}/.well-known/jwks.json`), {
    cooldownDuration: COOLDOWN_MS,
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
    const { alg } = readHeader(token)
    if (alg === 'HS256' && secret)
      return (await jwtVerify(token, secret, { ...expected, algorithms: ['HS256'] })).payload
    return (await jwtVerify(token, keys as JWTVerifyGetKey, { ...expected, algorithms: ASYMMETRIC })).payload
  }

  return {
    async verify(token) {
      if (typeof token !== 'string' || token.length > TOKEN_CHARACTERS_MAX) return null
      try {
        return toSubject(await check(token))
      } catch (error) {
        if (isUnreachable(error)) {
          throw new PatchcordError('unavailable', 'Supabase’s keys could not be fetched.', { cause: error })
        }
        if (error instanceof errors.JOSEError) return null
        throw error
      }
    },
  }
}

function readHeader(token: string): { alg?: unknown } {
  try {
    return JSON.parse(Buffer.from(token.split('.', 1)[0] ?? '', 'base64url').toString()) as { alg?: unknown }
  } catch {
    return {} // No token at all: jose says so.
  }
}

/** Supabase's anonymous users and service keys are nobody who could sign in. */
function toSubject(payload: JWTPayload): Subject | null {
  const { sub = '', role, is_anonymous: isAnonymous, user_metadata: metadata } = payload
  if (!UUID.test(sub) || role !== 'authenticated' || isAnonymous === true) return null
  const email = readConfirmedEmail(payload)
  return {
    subject: sub,
    email,
    name: readName(metadata) ?? email?.split('@', 1)[0]?.slice(0, NAME_CHARACTERS_MAX) ?? 'Someone',
  }
}

/** `user_metadata` is the user's to write, but for what the identity provider says of the address. */
function readConfirmedEmail({ email, user_metadata: metadata }: JWTPayload): string | null {
  const isVerified = (metadata as { email_verified?: unknown } | undefined)?.email_verified === true
  return typeof email === 'string' && email !== '' && isVerified ? email.toLowerCase() : null
}

function readName(metadata: unknown): string | null {
  const { full_name: fullName, name } = (metadata ?? {}) as { full_name?: unknown; name?: unknown }
  const text = [fullName, name].find((each) => typeof each === 'string' && each.trim() !== '') as string | undefined
  return text === undefined ? null : Array.from(text.trim()).slice(0, NAME_CHARACTERS_MAX).join('')
}

/** What is wrong with the keys' server, as against the token. */
function isUnreachable(error: unknown): boolean {
  if (error instanceof errors.JWKSTimeout || error instanceof TypeError) return true
  return error instanceof errors.JOSEError && error.code === 'ERR_JOSE_GENERIC'
}

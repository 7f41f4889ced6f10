import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type CryptoKey, exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose'

export const USER = '3f6c1f0e-6d0b-4d0a-9b5e-0a1b2c3d4e5f'

type Key = CryptoKey | Uint8Array

export interface TestSupabaseAuth {
  url: URL
  /** How often the keys were fetched. */
  keyRequests: number
  /** What GET /auth/v1/user answers, with which status. */
  user: { status: number; body: object }
  settings: object
  /** The public key that is listed first, as PEM would be guessed by an attacker. */
  publicJwk: object
  /** A new key takes the place of the old one. */
  rotate(): Promise<void>
  /** An access token as Supabase Auth issues them, but for what is given. */
  token(
    claims?: JWTPayload,
    more?: { key?: Key; algorithm?: string; kid?: string; expiresIn?: string },
  ): Promise<string>
  close(): Promise<void>
}

/** The part of Supabase Auth that a sign-in needs, on a port of its own, with real ES256 keys. */
export async function startSupabaseAuth(): Promise<TestSupabaseAuth> {
  let keys = await generateKeyPair('ES256', { extractable: true })
  let kid = 'key-1'
  let isDown = false
  const server = createServer(async (request, response) => {
    const [path] = (request.url ?? '').split('?')
    const send = (status: number, body: object) => {
      const cors = { 'access-control-allow-origin': '*', 'access-control-allow-headers': '*' }
      response.writeHead(status, { 'content-type': 'application/json', ...cors }).end(JSON.stringify(body))
    }
    if (isDown) request.socket.destroy()
    else if (request.method === 'OPTIONS') send(200, {})
    else if (path === '/auth/v1/.well-known/jwks.json') {
      auth.keyRequests++
      send(200, {
        keys: [{ ...(await exportJWK(keys.publicKey)), kid, alg: 'ES256', use: 'sig', key_ops: ['verify'] }],
      })
    } else if (path === '/auth/v1/user') send(auth.user.status, auth.user.body)
    else if (path === '/auth/v1/settings') send(200, auth.settings)
    else send(404, {})
  })
  server.listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  const auth: TestSupabaseAuth = {
    url,
    keyRequests: 0,
    user: {
      status: 200,
      body: {
        id: USER,
        email: 'Ada@Example.org',
        email_confirmed_at: '2026-01-01',
        user_metadata: { full_name: 'Ada' },
      },
    },
    settings: { external: { email: true, github: true, google: false } },
    publicJwk: await exportJWK(keys.publicKey),
    async rotate() {
      keys = await generateKeyPair('ES256', { extractable: true })
      kid = `key-${Math.random()}`
    },
    async token(claims = {}, more = {}) {
      const payload = { sub: USER, role: 'authenticated', email: 'ada@example.org', is_anonymous: false, ...claims }
      return await new SignJWT(payload)
        .setProtectedHeader({ alg: more.algorithm ?? 'ES256', kid: more.kid ?? kid, typ: 'JWT' })
        .setIssuer(claims.iss ?? `${url.origin}/auth/v1`)
        .setAudience(claims.aud ?? 'authenticated')
        .setIssuedAt()
        .setExpirationTime(more.expiresIn ?? '1h')
        .sign(more.key ?? keys.privateKey)
    },
    async close() {
      isDown = true
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
  return auth
}

import assert from 'node:assert/strict'
import { after, before, suite, test } from 'node:test'
import { CompactSign, exportJWK, generateKeyPair, SignJWT, UnsecuredJWT } from 'jose'
import type { Identity } from '../../server/db/scope.ts'
import {
  createTicketSigner,
  issueTicket,
  type SigningKey,
  Ticket,
  type TicketClaims,
  TicketError,
  type TicketFault,
  type TicketOptions,
  type TicketSigner,
} from '../../server/domain/tickets.ts'
import { PatchcordError, StartError } from '../../server/errors.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'

const SECRET = 'a secret of at least thirty-two characters'
const HS256: SigningKey = { algorithm: 'HS256', secret: SECRET }
const BOB: Identity = {
  tokenId: '01890000-0000-7000-8000-0000000000f2',
  agentId: '01890000-0000-7000-8000-0000000000b1',
  namespaceId: '01890000-0000-7000-8000-00000000000a',
  agent: 'bob',
  namespace: 'acme',
  label: '',
  expiresAt: null,
  pausedAt: null,
}
const NO_DATABASE = {} as { sql: TestDatabase['api'] }

const inSeconds = (seconds: number) => Math.floor(Date.now() / 1000) + seconds
const claims = (overrides: object = {}) =>
  ({ role: 'patchcord_ticket', exp: inSeconds(60), ...overrides }) as TicketClaims
const decode = (jwt: string, part: 0 | 1) => JSON.parse(Buffer.from(jwt.split('.')[part] ?? '', 'base64url').toString())

async function assertFault(signer: TicketSigner, jwt: string, fault: TicketFault, message: string | RegExp) {
  await assert.rejects(signer.verify(jwt), (error) => {
    assert.ok(error instanceof TicketError && error instanceof PatchcordError)
    assert.equal(error.fault, fault)
    assert.equal(error.code, 'token_rejected')
    if (typeof message === 'string') assert.equal(error.message, message)
    else assert.match(error.message, message)
    return true
  })
}

/** A JWT with any header and payload, correctly signed with the test's secret where that is possible. */
async function forge(payload: string, header: object = { alg: 'HS256' }, secret = SECRET): Promise<string> {
  return await new CompactSign(Buffer.from(payload))
    .setProtectedHeader(header as { alg: string })
    .sign(Buffer.from(secret))
}

async function createEs256(kid: string) {
  const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true })
  return {
    privateKey,
    publicKey,
    jwk: { ...(await exportJWK(privateKey)), kid, alg: 'ES256', key_ops: ['sign', 'verify'] },
  }
}

test('what an HS256 signer signs it verifies, and the header says so', async () => {
  const signer = await createTicketSigner(HS256)
  const jwt = await signer.sign(claims({ ns: 'x' }))
  assert.deepEqual(decode(jwt, 0), { alg: 'HS256', typ: 'JWT' })
  assert.equal((await signer.verify(jwt)).ns, 'x')
})

test('an ES256 signer takes the JWK that `supabase gen signing-key` prints, and names its kid', async () => {
  const { jwk } = await createEs256('key-1')
  const signer = await createTicketSigner({ algorithm: 'ES256', jwk })
  const jwt = await signer.sign(claims())
  assert.deepEqual(decode(jwt, 0), { alg: 'ES256', kid: 'key-1', typ: 'JWT' })
  assert.equal((await signer.verify(jwt)).role, 'patchcord_ticket')
})

test('a key that cannot sign stops the start with the name of its variable', async () => {
  const broken = { algorithm: 'ES256' as const, jwk: { kty: 'EC', crv: 'P-256', kid: 'k', x: 'AA', y: 'AA', d: 'AA' } }
  await assert.rejects(createTicketSigner(broken), (error) => {
    assert.ok(error instanceof StartError)
    assert.match(error.message, /^PATCHCORD_SIGNING_KEY /)
    return true
  })
  await assert.rejects(createTicketSigner({ algorithm: 'HS256', secret: '' }), /^StartError: SUPABASE_JWT_SECRET /)
})

test('a JWT is refused with the sentence that Supabase Realtime was recorded with', async () => {
  const signer = await createTicketSigner(HS256)
  const notValid = 'The token provided is not a valid JWT'
  for (const jwt of [
    '',
    'abc.def',
    'a.b.c',
    '..',
    'Bearer x.y.z',
    'sb_publishable_x',
    await forge('[]'),
    await forge('5'),
  ]) {
    await assertFault(signer, jwt, 'malformed', notValid)
  }
  await assertFault(signer, await forge('{not json'), 'malformed', notValid)
  const required = 'Fields `role` and `exp` are required in JWT'
  const incomplete = [
    { exp: inSeconds(60) },
    { role: 'anon' },
    { role: 5, exp: inSeconds(60) },
    { role: '', exp: inSeconds(60) },
  ]
  for (const each of [
    ...incomplete,
    claims({ exp: `${inSeconds(60)}` }),
    claims({ iat: 'now' }),
    claims({ exp: null }),
  ]) {
    await assertFault(signer, await forge(JSON.stringify(each)), 'claims', required)
  }
  await assertFault(signer, await forge('{"role":"anon","exp":1e999}'), 'claims', required)
  await assertFault(
    signer,
    await signer.sign(claims({ exp: inSeconds(-30) })),
    'expired',
    /^Token has expired 3[01] seconds ago$/,
  )
  const foreign = await forge(JSON.stringify(claims()), { alg: 'HS256' }, 'another secret of thirty-two characters.')
  await assertFault(signer, foreign, 'signature', 'Failed to validate JWT signature')
  const [head, , signature] = (await signer.sign(claims())).split('.')
  const swapped = `${head}.${Buffer.from(JSON.stringify(claims({ role: 'service_role' }))).toString('base64url')}.${signature}`
  await assertFault(signer, swapped, 'signature', 'Failed to validate JWT signature')
})

test('what Supabase Realtime does not look at is not looked at: future iat and nbf, another aud, a fractional exp', async () => {
  const signer = await createTicketSigner(HS256)
  for (const each of [{ iat: inSeconds(600) }, { nbf: inSeconds(600), aud: 'x' }, { exp: inSeconds(60) + 0.5 }]) {
    assert.ok(await signer.verify(await signer.sign(claims(each))))
  }
})

test('only the configured algorithm and key are accepted', async () => {
  const hs256 = await createTicketSigner(HS256)
  const { jwk, privateKey, publicKey } = await createEs256('key-1')
  const es256 = await createTicketSigner({ algorithm: 'ES256', jwk })
  const sentence = 'Failed to generate JWT signer, check your JWT secret or JWKS configuration'
  const none = new UnsecuredJWT(claims()).encode()
  const longer = await forge(JSON.stringify(claims()), { alg: 'HS512' }, SECRET + SECRET)
  for (const jwt of [none, longer]) await assertFault(hs256, jwt, 'signer', sentence)
  await assertFault(hs256, await es256.sign(claims()), 'signer', /for key ID \(kid\) "key-1", check/)

  const withoutKid = await new SignJWT(claims()).setProtectedHeader({ alg: 'ES256' }).sign(privateKey)
  const unknownKid = await new SignJWT(claims()).setProtectedHeader({ alg: 'ES256', kid: 'nope' }).sign(privateKey)
  for (const jwt of [none, withoutKid, await hs256.sign(claims())]) await assertFault(es256, jwt, 'signer', sentence)
  await assertFault(es256, unknownKid, 'signer', /for key ID \(kid\) "nope", check/)
  const publicText = JSON.stringify(await exportJWK(publicKey))
  const confused = await forge(JSON.stringify(claims()), { alg: 'HS256', kid: 'key-1' }, publicText)
  await assertFault(es256, confused, 'signer', /^Failed to generate JWT signer/)
  const stranger = await createTicketSigner({ algorithm: 'ES256', jwk: (await createEs256('key-1')).jwk })
  await assertFault(es256, await stranger.sign(claims()), 'signature', 'Failed to validate JWT signature')
})

async function issueBuiltin(me: Identity, overrides: Partial<TicketOptions> = {}) {
  const signer = await createTicketSigner(HS256)
  const websocketUrl = 'ws://127.0.0.1:8787/realtime/v1/websocket'
  return await issueTicket(NO_DATABASE, me, { signer, realtime: 'builtin', supabase: null, websocketUrl, ...overrides })
}

test('a ticket for our own endpoint names its agent, and its JWT carries the UUIDs', async () => {
  const ticket = await issueBuiltin(BOB)
  assert.deepEqual(Ticket.parse(ticket), ticket)
  assert.deepEqual([ticket.namespace_ids, ticket.agent_id, ticket.jwt_expires_in], [['acme'], 'bob', 600])
  assert.equal(ticket.realtime_url, 'ws://127.0.0.1:8787/realtime/v1/websocket')
  const { iat, exp, ...rest } = decode(ticket.jwt, 1)
  assert.deepEqual(rest, {
    role: 'patchcord_ticket',
    aud: 'authenticated',
    sub: BOB.agentId,
    ns: BOB.namespaceId,
    agent: BOB.agentId,
    token: BOB.tokenId,
  })
  assert.equal(exp - iat, 600)
  assert.ok(Math.abs(iat - Date.now() / 1000) < 10)
  const key = decode(ticket.apikey, 1)
  assert.deepEqual(key, { role: 'anon', aud: 'authenticated', iat, exp: iat + 86_400, token: BOB.tokenId })
  assert.deepEqual(ticket.topics, [
    {
      name: `realtime:agent:${BOB.namespaceId}:${BOB.agentId}`,
      config: {
        broadcast: { ack: false, self: false },
        presence: { key: '', enabled: false },
        postgres_changes: [],
        private: true,
      },
    },
  ])
})

test('the apikey outlives the ticket by a day at most, and not the token', async () => {
  const hour = await issueBuiltin({ ...BOB, expiresAt: new Date(Date.now() + 3_600_000).toISOString() })
  const { iat, exp } = decode(hour.apikey, 1)
  assert.ok(exp - iat > 3_590 && exp - iat <= 3_600)
  assert.equal(decode(hour.jwt, 1).exp - iat, 600)
})

test('a ticket does not outlive the token it stands for', async () => {
  const soon = await issueBuiltin({ ...BOB, expiresAt: new Date(Date.now() + 90_000).toISOString() })
  assert.ok(soon.jwt_expires_in > 80 && soon.jwt_expires_in <= 90)
  assert.equal(decode(soon.jwt, 1).exp - decode(soon.jwt, 1).iat, soon.jwt_expires_in)
  const gone = issueBuiltin({ ...BOB, expiresAt: new Date(Date.now() - 1_000).toISOString() })
  await assert.rejects(gone, { code: 'token_rejected' })
})

suite('a ticket for Supabase Realtime', () => {
  const supabase = { url: new URL('https://abc.supabase.co'), publishableKey: 'sb_publishable_x' }
  let database: TestDatabase
  let signer: TicketSigner
  before(async () => {
    database = await createTestDatabase()
    signer = await createTicketSigner(HS256)
  })
  after(() => database.drop())

  const issue = (overrides: Partial<TicketOptions>) =>
    issueTicket({ sql: database.api }, BOB, {
      signer,
      realtime: 'broadcast',
      supabase,
      websocketUrl: 'ws://never',
      ...overrides,
    })

  test('has the address and the publishable key of the project', async () => {
    const ticket = await issue({})
    assert.equal(ticket.realtime_url, 'wss://abc.supabase.co/realtime/v1/websocket')
    assert.equal(ticket.apikey, 'sb_publishable_x')
    assert.deepEqual(ticket.topics[0]?.config.postgres_changes, [])
    assert.ok(Math.abs(decode(ticket.jwt, 1).iat - Date.now() / 1000) < 10)
    const local = await issue({ supabase: { ...supabase, url: new URL('http://127.0.0.1:54321/') } })
    assert.equal(local.realtime_url, 'ws://127.0.0.1:54321/realtime/v1/websocket')
  })

  test('asks for the inserts addressed to the agent where table changes were chosen', async () => {
    const ticket = await issue({ realtime: 'postgres_changes' })
    assert.deepEqual(ticket.topics[0]?.config.postgres_changes, [
      { event: 'INSERT', schema: 'patchcord', table: 'agent_messages', filter: `to_agent_uuid=eq.${BOB.agentId}` },
    ])
    assert.deepEqual(Ticket.parse(ticket), ticket)
  })

  test('is refused where the project is not known', async () => {
    await assert.rejects(issue({ supabase: null }), { code: 'realtime_not_configured' })
  })
})

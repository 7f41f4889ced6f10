import assert from 'node:assert/strict'
import { createHmac, createPublicKey, type JsonWebKey } from 'node:crypto'
import { after, before, describe, test } from 'node:test'
import { generateKeyPair, type JWTPayload } from 'jose'
import { createVerifier, type Verifier } from '../../server/dashboard/supabase.ts'
import { createInvite } from '../../server/domain/members.ts'
import { foundNamespace } from '../../server/domain/namespaces.ts'
import { startTestApp } from '../helpers/app.ts'
import { createBrowser } from '../helpers/dashboard.ts'
import { createTestDatabase } from '../helpers/database.ts'
import { signInOperator } from '../helpers/people.ts'
import { startSupabaseAuth, type TestSupabaseAuth, USER } from '../helpers/supabase-auth.ts'

const SECRET = 'a legacy secret of at least 32 characters'

describe('an access token of Supabase Auth', () => {
  let auth: TestSupabaseAuth
  let verifier: Verifier
  const create = (signing: Parameters<typeof createVerifier>[1] = null, cooldownMs?: number) =>
    createVerifier({ url: auth.url, publishableKey: 'key' }, signing, cooldownMs === undefined ? {} : { cooldownMs })
  before(async () => {
    auth = await startSupabaseAuth()
    verifier = create()
  })
  after(() => auth?.close())

  test('names its subject, with the confirmed address and the name that Supabase knows', async () => {
    const expected = { subject: USER, email: 'ada@example.org', name: 'Ada' }
    assert.deepEqual(await verifier.verify(await auth.token()), expected)
  })

  test('carries no address that nobody has confirmed', async () => {
    const { user } = auth
    auth.user = { status: 200, body: { id: USER, email: 'boss@example.org', user_metadata: { email_verified: true } } }
    const subject = await verifier.verify(await auth.token({ email: 'boss@example.org' }))
    auth.user = user
    assert.deepEqual(subject, { subject: USER, email: null, name: '' })
  })

  const refused: [string, JWTPayload, Parameters<TestSupabaseAuth['token']>[1]?][] = [
    ['of another issuer', { iss: 'https://evil.supabase.co/auth/v1' }],
    ['for another audience', { aud: 'somebody' }],
    ['of the anonymous role', { role: 'anon' }],
    ['of the service role', { role: 'service_role' }],
    ['of a ticket’s role', { role: 'patchcord_ticket' }],
    ['of an anonymous user', { is_anonymous: true }],
    ['without a user’s id', { sub: 'service' }],
    ['that has expired', {}, { expiresIn: '-1m' }],
  ]
  for (const [name, claims, more] of refused) {
    test(`${name} is refused`, async () => assert.equal(await verifier.verify(await auth.token(claims, more)), null))
  }

  test('that is signed by another key is refused, also under the name of the right one', async () => {
    const { privateKey: key } = await generateKeyPair('ES256')
    assert.equal(await verifier.verify(await auth.token({}, { key })), null)
  })

  test('without a signature, or with the public key as an HMAC’s secret, is refused, with a secret and without one', async () => {
    const [header, payload] = (await auth.token()).split('.')
    const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
    const pem = createPublicKey({ key: auth.publicJwk as JsonWebKey, format: 'jwk' }).export({
      type: 'spki',
      format: 'pem',
    })
    const forged = [`${encode({ alg: 'none', typ: 'JWT' })}.${payload}.`, `${header}.${payload}.`]
    for (const secret of [pem, JSON.stringify(auth.publicJwk)]) {
      const signed = `${encode({ alg: 'HS256', typ: 'JWT', kid: 'key-1' })}.${payload}`
      forged.push(`${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`)
    }
    for (const checker of [verifier, create({ algorithm: 'HS256', secret: SECRET })]) {
      for (const token of forged) assert.equal(await checker.verify(token), null, token.slice(0, 30))
      assert.notEqual(await checker.verify(await auth.token()), null)
    }
  })

  test('signed with the legacy secret is taken only where that secret is set', async () => {
    const token = await auth.token({}, { key: new TextEncoder().encode(SECRET), algorithm: 'HS256' })
    assert.equal((await create({ algorithm: 'HS256', secret: SECRET }).verify(token))?.subject, USER)
    assert.equal(await create({ algorithm: 'HS256', secret: `${SECRET}!` }).verify(token), null)
    assert.equal(await verifier.verify(token), null)
  })

  test('of a session that was ended, or of somebody else, is refused', async () => {
    const { user } = auth
    const token = await auth.token()
    auth.user = { status: 403, body: { code: 'session_not_found' } }
    const ended = await verifier.verify(token)
    auth.user = { status: 200, body: { ...user.body, id: USER.replace('3', '4') } }
    const other = await verifier.verify(token)
    auth.user = user
    assert.deepEqual([ended, other], [null, null])
  })

  test('that is none is refused', async () => {
    for (const token of ['', 'x', 'a.b.c', '..', 'e30.e30.', `${'a'.repeat(9_000)}`, null, undefined, 7, ['a'], {}]) {
      assert.equal(await verifier.verify(token), null)
    }
  })

  test('is taken after the keys were rotated; unknown keys make one request in a while', async () => {
    const impatient = create(null, 0)
    await impatient.verify(await auth.token())
    await auth.rotate()
    assert.equal((await impatient.verify(await auth.token()))?.subject, USER)

    const patient = create()
    const before = auth.keyRequests
    for (let index = 0; index < 10; index++) {
      assert.equal(await patient.verify(await auth.token({}, { kid: `unknown-${index}` })), null)
    }
    assert.equal(auth.keyRequests - before, 1)
  })

  test('cannot be checked while Supabase is away: that is no verdict on it', async () => {
    const gone = await startSupabaseAuth()
    const token = await gone.token()
    const checker = createVerifier({ url: gone.url, publishableKey: 'key' }, null)
    await gone.close()
    await assert.rejects(checker.verify(token), { code: 'unavailable' })
    const { user } = auth
    auth.user = { status: 500, body: {} }
    const broken = await create()
      .verify(await auth.token())
      .catch((error: { code: string }) => error.code)
    auth.user = user
    assert.equal(broken, 'unavailable')
  })
})

test('through Supabase somebody new comes in with an invite, and without one not', async () => {
  const auth = await startSupabaseAuth()
  const database = await createTestDatabase()
  const supabase = { url: auth.url, publishableKey: 'publishable', secretKey: 'secret-of-the-server' }
  const app = await startTestApp(database, { config: { supabase } })
  const owner = await signInOperator(database)
  await foundNamespace(owner.scope, { name: 'acme' })
  const { code } = await createInvite(owner.scope, { namespace: 'acme', role: 'member' })
  const access_token = await auth.token()

  const stranger = createBrowser(app)
  const page = await stranger.get('/login?next=/account')
  const refused = await stranger.post('/login/supabase', { access_token })
  const forged = await stranger.post('/login/supabase', { access_token: `${access_token}x` })
  const withoutForm = await stranger.post('/login/supabase', { access_token, csrf: '' })
  const invited = createBrowser(app)
  await invited.get(`/invite/${code}`)
  const toSignIn = await invited.post(`/invite/${code}`)
  await invited.get('/login')
  const welcome = await invited.post('/login/supabase', { access_token })
  const home = await invited.get('/')
  await stranger.get('/login?next=/account')
  const again = await stranger.post('/login/supabase', { access_token })
  await app.close()
  await database.drop()
  await auth.close()

  const policy = page.headers.get('content-security-policy') ?? ''
  assert.match(policy, new RegExp(`connect-src 'self' ${auth.url.origin};`))
  assert.match(page.html, /\/assets\/supabase-[0-9a-f]{10}\.js/)
  assert.doesNotMatch(page.html, /secret-of-the-server/)
  assert.deepEqual([refused.status, forged.status, withoutForm.status], [403, 403, 403])
  assert.match(refused.text, /by invitation only/)
  assert.equal(stranger.cookies.has('__Host-patchcord'), true, 'only at the end')
  assert.equal(toSignIn.location, '/login')
  assert.deepEqual([welcome.status, welcome.location], [303, '/'])
  assert.match(home.text, /You are signed in as Ada\./)
  assert.match(home.text, /acme/)
  assert.doesNotMatch(home.headers.get('content-security-policy') ?? '', /http/)
  assert.deepEqual([again.status, again.location], [303, '/account'], 'who is known needs no invite')
})

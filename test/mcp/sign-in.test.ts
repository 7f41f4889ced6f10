import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { StreamableHTTPClientTransport as ModernTransport } from '@modelcontextprotocol/client'
import { StreamableHTTPClientTransport as FirstTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { createTokenText } from '../../server/domain/tokens.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { CLIENT_KINDS, type ClientKind, createClient, sendRaw } from '../helpers/mcp.ts'
import { seed } from '../helpers/seed.ts'

const PATHS = ['/mcp', '/mcp/bearer']
/** What a client may try before it knows that there is nothing to sign in to: the call and some well-known addresses. */
const REQUESTS_MAX = 12

/** A client that can sign in with OAuth, and would open a browser; its tokens are those of a sign-in of before. */
function createSignIn(accessToken: string | undefined) {
  const opened: string[] = []
  const tokens = accessToken === undefined ? undefined : { access_token: accessToken, token_type: 'Bearer' }
  const provider = {
    redirectUrl: 'http://127.0.0.1:9/callback',
    clientMetadata: { redirect_uris: ['http://127.0.0.1:9/callback'], client_name: 'test' },
    clientInformation: () => undefined,
    saveClientInformation: () => opened.push('a client was registered'),
    tokens: () => tokens,
    saveTokens: () => opened.push('a token was given'),
    redirectToAuthorization: (url: URL) => opened.push(url.href),
    saveCodeVerifier: () => {},
    codeVerifier: () => 'verifier',
  }
  return { opened, provider }
}

describe('a client that can sign in with OAuth, at a server that takes tokens only,', { timeout: 120_000 }, () => {
  let database: TestDatabase
  let app: TestApp
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database, { limits: { unauthenticatedPerMinute: 1_000 } })
  })
  after(async () => {
    await app.close()
    await database.drop()
  })

  async function connect(kind: ClientKind, path: string, accessToken: string | undefined) {
    const { opened, provider } = createSignIn(accessToken)
    const requests: { url: URL; status: number }[] = []
    const recording: typeof fetch = async (input, init) => {
      const response = await fetch(input, init)
      requests.push({ url: new URL(String(input)), status: response.status })
      return response
    }
    const sdk = createClient(kind)
    const options = { fetch: recording, authProvider: provider as never }
    const url = new URL(path, app.url)
    const transport = kind === 'v1' ? new FirstTransport(url, options) : new ModernTransport(url, options)
    const error = await (sdk.connect as (to: unknown) => Promise<void>)(transport).then(
      () => null,
      (thrown: Error) => thrown,
    )
    await sdk.close()
    return { opened, requests, error }
  }

  for (const kind of CLIENT_KINDS) {
    test(`is led nowhere: it ends with an error after a few requests, and no browser opens (${kind})`, async () => {
      for (const path of PATHS) {
        for (const accessToken of [undefined, createTokenText()]) {
          const { opened, requests, error } = await connect(kind, path, accessToken)
          assert.ok(error instanceof Error)
          assert.deepEqual(opened, [])
          assert.ok(requests.length > 0 && requests.length <= REQUESTS_MAX, `${requests.length} requests`)
          for (const { url, status } of requests) {
            assert.deepEqual([url.origin, status], [app.url, url.pathname === path ? 401 : 404], url.href)
          }
          const calls = requests.filter(({ url }) => url.pathname === path)
          assert.ok(calls.length <= 2, `${calls.length} attempts`)
        }
      }
    })

    test(`works with a token of ours in place of one of a sign-in (${kind})`, async () => {
      const { alice } = await seed(database, `oauth-${kind.replace(' ', '-')}`, ['alice'])
      for (const path of PATHS) {
        const { opened, error } = await connect(kind, path, alice.token)
        assert.deepEqual([opened, error], [[], null])
      }
    })
  }

  test('finds 401 and a plain challenge first, whatever it asks for, and JSON where others have metadata', async () => {
    const { alice } = await seed(database, 'challenge', ['alice'])
    for (const path of PATHS) {
      for (const method of ['GET', 'POST', 'DELETE', 'HEAD']) {
        for (const token of [undefined, createTokenText()]) {
          const { status, headers } = await sendRaw(app, { method, path, ...(token && { token }) })
          assert.deepEqual([status, headers['www-authenticate']], [401, 'Bearer'], `${method} ${path}`)
        }
      }
      assert.equal((await sendRaw(app, { method: 'GET', path, token: alice.token })).status, 405)
      for (const name of ['oauth-protected-resource', 'oauth-authorization-server', 'openid-configuration']) {
        for (const place of [`/.well-known/${name}`, `/.well-known/${name}${path}`, `${path}/.well-known/${name}`]) {
          const { status, headers, text } = await sendRaw(app, { method: 'GET', path: place })
          assert.deepEqual([status, headers['content-type']], [404, 'application/json; charset=utf-8'], place)
          assert.equal(JSON.parse(text).error.code, 'not_found')
        }
      }
    }
    for (const path of ['/register', '/authorize', '/token']) {
      assert.equal((await sendRaw(app, { path, body: {} })).status, 404)
    }
  })
})

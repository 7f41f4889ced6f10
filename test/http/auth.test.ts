import assert from 'node:assert/strict'
import { once } from 'node:events'
import { get, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { createTokenText, issueToken, revokeToken } from '../../server/domain/tokens.ts'
import { call, startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { seed } from '../helpers/seed.ts'

const MISSING = {
  error: {
    code: 'token_missing',
    message: 'This call needs an agent token.',
    hint: 'Send the header "Authorization: Bearer pc_…".',
  },
}
const REJECTED = {
  error: {
    code: 'token_rejected',
    message: 'The token is not valid or has expired.',
    hint: 'Ask for a new token and put it into .mcp.json.',
  },
}
const PLACEHOLDER = {
  error: {
    code: 'token_rejected',
    message: 'The token is a placeholder that was not expanded.',
    hint: 'Set the environment variable that .mcp.json names before the client starts.',
  },
}

describe('authentication', () => {
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

  test('without a token the answer is 401, JSON and nothing else', async () => {
    for (const headers of [{}, { authorization: 'Basic YTpi' }, { authorization: 'Bearer' }, { authorization: '' }]) {
      const answer = await call(app, 'GET', '/api/whoami', { headers })
      assert.equal(answer.status, 401)
      assert.deepEqual(answer.json, MISSING)
      assert.equal(answer.headers.get('www-authenticate'), 'Bearer')
    }
  })

  test('past the limit a refusal comes late however its path is spelled, and what needs no token at once', async () => {
    const own = await startTestApp(database, { limits: { unauthenticatedPerMinute: 1 } })
    try {
      const { port } = own.app.server.address() as AddressInfo
      const ask = async (path: string) => {
        const startMs = performance.now()
        const asked = get({ port, host: '127.0.0.1', path, agent: false })
        const [answer] = (await once(asked, 'response')) as [IncomingMessage]
        answer.resume()
        return [answer.statusCode, performance.now() - startMs > 200]
      }
      assert.equal((await ask('/api/whoami'))[0], 401)
      const paths = ['/api/whoami', '/%61pi/whoami', '/ap%69/%77hoami?x=1', '/%6dcp', '/mcp#x', '/%6Dcp?x']
      for (const path of [...paths, `${own.url}/api/whoami`, `${own.url}/%61pi/whoami`, '/api/%', '/%zz'])
        assert.deepEqual(await ask(path), [429, true], path)
      assert.equal((await ask('/health'))[0], 200)
    } finally {
      await own.close()
    }
  })

  test('a token that is malformed, unknown or expired is rejected with the same answer', async () => {
    const { alice } = await seed(database, 'expired', ['alice'])
    await database.admin`update patchcord.tokens set expires_at = now() - interval '1 s' where id = ${alice.tokenId}`
    for (const token of ['x', 'pc_short', createTokenText(), `${createTokenText().slice(0, -1)}!`, alice.token]) {
      const answer = await call(app, 'GET', '/api/whoami', { token })
      assert.equal(answer.status, 401)
      assert.deepEqual(answer.json, REJECTED)
    }
  })

  test('a literal placeholder is told that it was not expanded, and is not repeated', async () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the placeholder itself is what is sent
    for (const token of ['${TOKEN}', '${PATCHCORD_TOKEN:-pc_secret}', '$TOKEN']) {
      const answer = await call(app, 'GET', '/api/whoami', { token })
      assert.equal(answer.status, 401)
      assert.deepEqual(answer.json, PLACEHOLDER)
    }
  })

  test('a revoked token is 403 token_revoked from the next request on', async () => {
    const { alice } = await seed(database, 'revoked', ['alice'])
    assert.equal((await call(app, 'GET', '/api/whoami', alice)).status, 200)
    await revokeToken(database.admin, alice.tokenId)
    const answer = await call(app, 'GET', '/api/whoami', alice)
    assert.equal(answer.status, 403)
    assert.equal(answer.json.error.code, 'token_revoked')
  })

  test('the token of a deleted agent is 404 agent_gone', async () => {
    const { alice } = await seed(database, 'gone', ['alice'])
    await database.admin`update patchcord.agents set deleted_at = now() where id = ${alice.agentId}`
    const answer = await call(app, 'GET', '/api/whoami', alice)
    assert.equal(answer.status, 404)
    assert.equal(answer.json.error.code, 'agent_gone')
  })

  test('the scheme is read in any case', async () => {
    const { alice } = await seed(database, 'scheme', ['alice'])
    const headers = { authorization: `bearer   ${alice.token} ` }
    assert.equal((await call(app, 'GET', '/api/whoami', { headers })).status, 200)
  })

  test('a token in the URL opens nothing', async () => {
    const { alice } = await seed(database, 'url', ['alice'])
    const answer = await call(app, 'GET', `/api/whoami?token=${alice.token}&access_token=${alice.token}`)
    assert.deepEqual(answer.json, MISSING)
  })

  test('authentication comes before the body is looked at', async () => {
    for (const body of ['{', 'x'.repeat(2_000_000)]) {
      const answer = await call(app, 'POST', '/api/messages', { body })
      assert.equal(answer.status, 401)
      assert.deepEqual(answer.json, MISSING)
    }
  })

  test('every call needs a token, also from this machine, and whatever a proxy says of an address', async () => {
    const { paths } = (await call(app, 'GET', '/openapi.json')).json as { paths: Record<string, object> }
    const calls = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => [method.toUpperCase(), path.replace('{id}', createTokenText())] as const),
    )
    const guarded = [...calls, ['POST', '/mcp'], ['GET', '/mcp/bearer']].filter(([, path]) => path !== '/health')
    assert.ok(guarded.length > 15)
    const addresses = [
      {},
      { 'x-forwarded-for': '127.0.0.1' },
      { 'x-real-ip': '::1', 'x-forwarded-host': 'localhost', forwarded: 'for=127.0.0.1;host=localhost' },
      { host: 'localhost', 'x-forwarded-for': '127.0.0.1, 127.0.0.1', 'cf-connecting-ip': '127.0.0.1' },
    ]
    for (const [method, path] of guarded as [string, string][]) {
      for (const headers of addresses) {
        const answer = await call(app, method, path, { headers })
        assert.deepEqual([answer.status, answer.json], [401, MISSING], `${method} ${path}`)
      }
    }
  })

  test('both tokens of one agent are the same agent', async () => {
    const { alice } = await seed(database, 'two', ['alice'])
    const second = await issueToken(database.admin, { namespace: 'two', agent: 'alice', label: 'laptop' })
    const answer = await call(app, 'GET', '/api/whoami', second)
    assert.equal(answer.json.agent_id, alice.agent)
    assert.equal(answer.json.token_label, 'laptop')
  })
})

describe('requests without a valid token', () => {
  let database: TestDatabase
  let app: TestApp
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database)
  })
  after(async () => {
    await app.close()
    await database.drop()
  })

  test('are 20 a minute for each address, whatever X-Forwarded-For says, while a valid token goes on', async () => {
    const { alice } = await seed(database, 'acme', ['alice'])
    const ask = (index: number) => {
      const headers = { 'x-forwarded-for': `10.0.0.${index}`, forwarded: `for=10.0.0.${index}` }
      const token = index % 2 === 0 ? createTokenText() : undefined
      return call(app, 'GET', '/api/whoami', { token, headers })
    }
    for (let index = 0; index < 20; index++) assert.equal((await ask(index)).status, 401)
    for (let index = 20; index < 24; index++) {
      const answer = await ask(index)
      assert.equal(answer.status, 429)
      assert.equal(answer.json.error.code, 'rate_limited')
      assert.equal(answer.json.error.message, 'Too many requests without a valid token from this address.')
      const seconds = Number(answer.headers.get('retry-after'))
      assert.ok(Number.isInteger(seconds) && seconds >= 1 && seconds <= 60, `retry-after ${seconds}`)
    }
    assert.equal((await call(app, 'GET', '/api/whoami', alice)).status, 200)
    const mcp = await call(app, 'POST', '/mcp', { body: {} })
    assert.equal(mcp.status, 429)
    assert.ok(Number(mcp.headers.get('retry-after')) >= 1)
    assert.equal((await call(app, 'GET', '/health')).status, 200)
  })
})

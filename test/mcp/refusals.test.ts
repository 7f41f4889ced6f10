import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { connect } from '../../server/db/connect.ts'
import { createTokenText, revokeToken } from '../../server/domain/tokens.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import {
  CLIENT_KINDS,
  connectMcp,
  messageIn,
  type RawRequest,
  sendRaw,
  toolCall,
  toToolResult,
} from '../helpers/mcp.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const PATHS = ['/mcp', '/mcp/bearer']
const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']
const LIST = { jsonrpc: '2.0', id: 1, method: 'tools/list' }

describe('what MCP refuses', { timeout: 120_000 }, () => {
  let database: TestDatabase
  let app: TestApp
  let alice: SeededAgent

  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database, { limits: { unauthenticatedPerMinute: 1_000 } })
    ;({ alice } = await seed(database, 'acme', ['alice', 'bob']))
  })
  after(async () => {
    await app.close()
    await database.drop()
  })

  /** The JSON of an error of ours, which is all there may be. */
  async function refuse(raw: RawRequest) {
    const { status, headers, text } = await sendRaw(app, raw)
    const { error, ...more } = JSON.parse(text) as { error: Record<string, unknown> }
    assert.deepEqual(more, {})
    for (const key of Object.keys(error)) assert.ok(['code', 'message', 'hint'].includes(key), key)
    assert.doesNotMatch(text + JSON.stringify(headers), /resource_metadata|well-known/)
    return { status, code: error.code, text }
  }

  test('nobody enters without a token, by whatever method', async () => {
    for (const path of PATHS) {
      for (const method of METHODS) {
        const { status, code } = await refuse({ method, path, ...(method === 'GET' ? {} : { body: LIST }) })
        assert.deepEqual([status, code], [401, 'token_missing'], `${method} ${path}`)
      }
    }
  })

  test('a token that is unknown, mistyped or revoked does not enter, and a placeholder is named', async () => {
    const { carol } = await seed(database, 'revoked', ['carol'])
    await revokeToken(database.admin, carol.tokenId)
    const cases: [string, number, string][] = [
      [createTokenText(), 401, 'token_rejected'],
      [`${alice.token.slice(0, -1)}!`, 401, 'token_rejected'],
      [carol.token, 403, 'token_revoked'],
      ['$' + '{TOKEN}', 401, 'token_rejected'],
    ]
    for (const [token, status, code] of cases) {
      const answer = await refuse({ token, body: LIST })
      assert.deepEqual([answer.status, answer.code], [status, code])
      assert.ok(!answer.text.includes(token), 'a token is not repeated')
    }
    assert.match((await refuse({ token: '$' + '{TOKEN}', body: LIST })).text, /placeholder that was not expanded/)
  })

  test('the token is looked at before the body', async () => {
    assert.equal((await refuse({ body: '{"broken' })).status, 401)
    assert.equal((await refuse({ body: 'x'.repeat(3_000_000) })).status, 401)
  })

  test('strange hosts and origins are refused before the token is looked at', async () => {
    const { status: host } = await refuse({ body: LIST, headers: { host: 'evil.example' } })
    assert.equal(host, 421)
    const { status: origin } = await refuse({
      body: LIST,
      token: alice.token,
      headers: { origin: 'https://evil.example' },
    })
    assert.equal(origin, 403)
  })

  test('guessing is limited by address, and a valid token still enters', async (t) => {
    const own = await startTestApp(database, { limits: { unauthenticatedPerMinute: 2 } })
    t.after(() => own.close())
    const statuses: number[] = []
    for (let i = 0; i < 3; i++) statuses.push((await sendRaw(own, { token: createTokenText(), body: LIST })).status)
    assert.deepEqual(statuses, [401, 401, 429])
    const { headers } = await sendRaw(own, { token: createTokenText(), body: LIST })
    assert.ok(Number(headers['retry-after']) > 0)
    assert.equal((await sendRaw(own, { token: alice.token, body: LIST })).status, 200)
  })

  test('with a token, methods other than POST are answered 405', async () => {
    for (const path of PATHS) {
      for (const method of ['GET', 'DELETE', 'PUT']) {
        assert.equal((await sendRaw(app, { method, path, token: alice.token })).status, 405, `${method} ${path}`)
      }
    }
  })

  test('a broken body is answered as JSON-RPC', async () => {
    const cases: [RawRequest, number, number][] = [
      [{ body: '{"jsonrpc": "2.0", ' }, 400, -32_700],
      [{ body: '' }, 400, -32_700],
      [{ body: `"${'x'.repeat(3_000_000)}"` }, 413, -32_000],
      [{ body: 'hello', headers: { 'content-type': 'text/plain' } }, 415, -32_000],
    ]
    for (const [raw, status, code] of cases) {
      const answer = await sendRaw(app, { token: alice.token, ...raw })
      const message = JSON.parse(answer.text)
      assert.deepEqual([answer.status, message.jsonrpc, message.id, message.error.code], [status, '2.0', null, code])
    }
  })

  test('bodies of every shape are answered, and the server lives on', async () => {
    const deep = `${'['.repeat(200_000)}${']'.repeat(200_000)}`
    const deepCall = JSON.stringify(toolCall('legacy', 1, 'inbox', {}).body).replace(
      '"arguments":{}',
      `"arguments":{"done":${deep}}`,
    )
    const shapes = [
      'null',
      '1',
      '"x"',
      '[]',
      '[[]]',
      '[null]',
      '{}',
      '{"jsonrpc":"2.0"}',
      '{"method":1}',
      deep,
      deepCall,
    ]
    shapes.push('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":{"a":1},"arguments":[]}}')
    shapes.push('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}', '{"__proto__":{"x":1},"id":1}')
    for (const body of shapes) {
      const { status, text } = await sendRaw(app, { token: alice.token, body })
      assert.ok(status < 500, body.slice(0, 40))
      assert.doesNotMatch(text, /RangeError|TypeError|node_modules| at /, body.slice(0, 40))
    }
    assert.equal((await sendRaw(app, { token: alice.token, body: LIST })).status, 200)
  })

  for (const kind of CLIENT_KINDS) {
    test(`an unknown tool or argument is answered with the right name (${kind})`, async (t) => {
      const client = await connectMcp(app, alice.token, kind)
      t.after(() => client.close())
      await assert.rejects(client.call('send_mesage', {}), /Unknown tool "send_mesage". Did you mean send_message\?/)
      await assert.rejects(client.call('frobnicate', {}), /There are inbox, send_message, reply/)
      const cases: [string, Record<string, unknown>, RegExp][] = [
        [
          'send_message',
          { to_agent: 'bob', content: 'x' },
          /^send_message: Unknown argument "to_agent"\. "to_agent" is "to" here\.$/,
        ],
        ['recall', { from_agent: 'bob' }, /"from_agent" is "from" here\./],
        ['recall', { treads: 'x' }, /"treads" is "thread" here\./],
        ['unsend', { zzzzzz: 1, message_id: alice.agentId }, /Unknown argument "zzzzzz"\. Arguments: message_id\./],
        ['send_message', { to: 'bob' }, /^send_message: content: .*\. Arguments: to, content, /],
        ['send_message', { to: 'bob', content: '' }, /content: /],
        ['send_message', { to: 'bob', content: 'x', kind: 'order' }, /kind: /],
        ['wait_for_message', { timeout_seconds: 291 }, /timeout_seconds: /],
        ['reply', { message_id: 'nonsense', content: 'x' }, /message_id: /],
        ['inbox', { done: 'x' }, /done: /],
      ]
      for (const [name, args, expected] of cases) {
        const { isError, code, text } = await client.call(name, args)
        assert.deepEqual([isError, code], [true, 'invalid'], text)
        assert.match(text, expected)
      }
    })

    test(`an unknown recipient is answered with the nearest names, and nothing is stored (${kind})`, async (t) => {
      const client = await connectMcp(app, alice.token, kind)
      t.after(() => client.close())
      const { isError, code, text } = await client.call('send_message', { to: 'bob, bbo', content: 'hi' })
      assert.deepEqual([isError, code], [true, 'not_found'])
      assert.match(text, /^Unknown agent "bbo"\. Nothing was stored\. Did you mean bob\?$/)
      const capital = await client.call('send_message', { to: 'Bob', content: 'hi' })
      assert.match(capital.text, /use "bob"/)
      const long = await client.call('send_message', { to: 'bob', content: 'x'.repeat(50_001) })
      assert.deepEqual([long.isError, long.code], [true, 'too_large'])
      assert.equal((await client.call('recall')).text, '0 messages, newest first')
    })
  }

  test('an error that nobody foresaw is logged once, and none of its text reaches a model', async (t) => {
    const secret = 'secret_internal_name'
    const own = await createTestDatabase()
    const { dora } = await seed(own, 'broken', ['dora'])
    await own.admin.unsafe(`
      create or replace function patchcord.fetch_inbox(p_hash text, p_done uuid[]) returns jsonb language plpgsql
      as $$ begin raise exception '${secret} at 10.0.0.1'; end $$`)
    const broken = await startTestApp(own)
    t.after(async () => {
      await broken.close()
      await own.drop()
    })
    for (const era of ['legacy', 'modern'] as const) {
      broken.logs.length = 0
      const answer = await sendRaw(broken, { token: dora.token, ...toolCall(era, 1, 'inbox', {}) })
      const { isError, code, text } = toToolResult(messageIn(answer.text).result)
      assert.deepEqual([isError, code], [true, 'internal'])
      assert.doesNotMatch(answer.text, new RegExp(`${secret}|10\\.0\\.0\\.1|plpgsql| at `))
      assert.match(text, /^The server failed on this call and has logged why\./)
      const logged = broken.logs.filter((line) => line.includes(secret))
      assert.equal(logged.length, 1)
    }
  })

  test('a database that cannot be reached is said in a sentence, with no name of it', async (t) => {
    const probe = createServer().listen(0, '127.0.0.1')
    await once(probe, 'listening')
    const { port } = probe.address() as AddressInfo
    probe.close()
    const login = { user: 'patchcord_api', password: 'x', database: 'nowhere' }
    const api = connect({ host: '127.0.0.1', port, ...login }, { max: 1, applicationName: 'test' })
    const down = await startTestApp({ api })
    t.after(async () => {
      await down.close()
      await api.end()
    })
    const { status, headers, text } = await sendRaw(down, { token: alice.token, ...toolCall('modern', 1, 'inbox', {}) })
    assert.equal(status, 503, text)
    assert.ok(Number(headers['retry-after']) > 0)
    assert.equal(JSON.parse(text).error.code, 'unavailable')
    assert.doesNotMatch(text, /nowhere|patchcord_api|127\.0\.0\.1|ECONNREFUSED/)
  })
})

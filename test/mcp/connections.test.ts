import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { CLIENT_KINDS, connectMcp, messageIn, REVISION, sendRaw, toolCall, toToolResult } from '../helpers/mcp.ts'
import { seed } from '../helpers/seed.ts'

const PATHS = ['/mcp', '/mcp/bearer']
/** A session that this server has never opened: it opens none. */
const STALE = { 'mcp-session-id': '6f1d7a52-1c1e-4f1b-9d52-0c8a6a1f0f5e' }
/** As long as a client may take to ask again for a stream that it was refused. */
const RETRY_MS = 3_000

describe('an MCP connection, which the server keeps nothing of,', { concurrency: 8, timeout: 120_000 }, () => {
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

  for (const kind of CLIENT_KINDS) {
    test(`goes on when the server was restarted under it, without connecting anew (${kind})`, async (t) => {
      const { alice } = await seed(database, `restart-${kind.replace(' ', '-')}`, ['alice', 'bob'])
      const first = await startTestApp(database)
      const client = await connectMcp(first, alice.token, kind)
      t.after(() => client.close())
      await client.call('inbox')
      await first.close()
      // By then the client has noticed that its sockets are closed.
      await sleep(500)
      const second = await startTestApp(database, { port: Number(new URL(first.url).port) })
      t.after(() => second.close())
      assert.match((await client.call('send_message', { to: 'bob', content: 'still here' })).text, /^Sent to bob /)
      assert.equal((await client.sdk.listTools()).tools.length, 8)
    })

    test(`is served by two instances in turn (${kind})`, async (t) => {
      const { alice, bob } = await seed(database, `turns-${kind.replace(' ', '-')}`, ['alice', 'bob'])
      const other = await startTestApp(database)
      t.after(() => other.close())
      const asked: string[] = []
      const takeTurns: typeof fetch = async (input, init) => {
        const { url } = asked.length % 2 === 0 ? app : other
        asked.push(url)
        return await fetch(new URL(new URL(String(input)).pathname, url), init)
      }
      const sender = await connectMcp(app, alice.token, kind, takeTurns)
      const receiver = await connectMcp(app, bob.token, kind, takeTurns)
      t.after(() => Promise.all([sender.close(), receiver.close()]))
      for (let count = 0; count < 3; count++) {
        const sent = await sender.call('send_message', { to: 'bob', content: `number ${count}`, kind: 'report' })
        assert.match(sent.text, /^Sent to bob /)
        assert.match(
          (await receiver.call('wait_for_message', { timeout_seconds: 5 })).text,
          new RegExp(`number ${count}`),
        )
      }
      assert.ok(asked.filter((url) => url === other.url).length >= 4)
    })

    test(`asks once for the stream that it is refused, and lives on (${kind})`, async (t) => {
      const { alice } = await seed(database, `stream-${kind.replace(' ', '-')}`, ['alice'])
      const methods: string[] = []
      const recording: typeof fetch = async (input, init) => {
        methods.push(init?.method ?? 'GET')
        return await fetch(input, init)
      }
      const client = await connectMcp(app, alice.token, kind, recording)
      t.after(() => client.close())
      const errors: Error[] = []
      client.sdk.onerror = (error) => errors.push(error)
      await client.call('inbox')
      await sleep(RETRY_MS)
      await client.call('inbox')
      assert.ok(methods.filter((method) => method === 'GET').length <= 1, methods.join(' '))
      assert.deepEqual(errors, [])
    })

    test(`whose client gave up before the answer came loses no message (${kind})`, async (t) => {
      const { alice, bob } = await seed(database, `slow-${kind.replace(' ', '-')}`, ['alice', 'bob'])
      const [sender, client] = [await connectMcp(app, alice.token), await connectMcp(app, bob.token, kind)]
      t.after(() => Promise.all([sender.close(), client.close()]))
      const sent = await sender.call('send_message', { to: 'bob', content: 'do you hear me?' })
      await database.admin.begin(async (sql) => {
        await sql`select from patchcord.deliveries where to_agent_uuid = ${bob.agentId} for update`
        await assert.rejects(client.call('inbox', {}, { timeout: 1_500 }), /timed? ?out/i)
      })
      const status = async () => (await sender.call('message_status', { message_id: sent.facts.message_id })).text
      for (let tries = 0; tries < 500 && !/fetched/.test(await status()); tries++) await sleep(10)
      assert.match(
        await status(),
        /\nbob: open \(accepted [^,]+, fetched [^,]+\)$/,
        'the answer that nobody read was made',
      )
      const { text } = await client.call('inbox')
      assert.match(text, /\nalice: \d+ s ago, shown \d+ s ago\n<message-[^>]+>\ndo you hear me\?\n/)
    })
  }

  test('ignores the id of a session that it never opened, with initialize, a list and a call', async () => {
    const { alice } = await seed(database, 'stale', ['alice'])
    const clientInfo = { name: 'test', version: '1' }
    const initialize = {
      jsonrpc: '2.0',
      id: 1,
      method: 'initialize',
      params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo },
    }
    for (const path of PATHS) {
      const start = await sendRaw(app, { token: alice.token, path, body: initialize, headers: STALE })
      assert.deepEqual([start.status, messageIn(start.text).result.serverInfo.name], [200, 'patchcord'])
      assert.equal(start.headers['mcp-session-id'], undefined, 'no session is opened')
      const list = { jsonrpc: '2.0', id: 2, method: 'tools/list' }
      const listed = await sendRaw(app, { token: alice.token, path, body: list, headers: STALE })
      assert.deepEqual([listed.status, messageIn(listed.text).result.tools.length], [200, 8])
      for (const era of ['legacy', 'modern'] as const) {
        const { body, headers } = toolCall(era, 3, 'inbox', {})
        const called = await sendRaw(app, { token: alice.token, path, body, headers: { ...headers, ...STALE } })
        assert.equal(called.status, 200)
        assert.match(toToolResult(messageIn(called.text).result).text, /^alice@stale /)
      }
    }
  })

  test('is refused with 401 for its token alone, never for a session that was lost', async () => {
    const { alice } = await seed(database, 'lost', ['alice'])
    const call = toolCall('legacy', 1, 'inbox', {})
    const headers = { ...call.headers, ...STALE }
    const refused = await sendRaw(app, { body: call.body, headers })
    assert.deepEqual([refused.status, JSON.parse(refused.text).error.code], [401, 'token_missing'])
    assert.equal((await sendRaw(app, { token: alice.token, method: 'DELETE', headers: STALE })).status, 405)
    assert.equal((await sendRaw(app, { token: alice.token, body: call.body, headers })).status, 200)
  })

  test('reads the revision of a call with white space around it, and refuses one that its header does not tell', async () => {
    const { alice } = await seed(database, 'revision', ['alice'])
    const { body, headers } = toolCall('modern', 1, 'inbox', {})
    const ask = async (revision: Record<string, string>) => {
      const { 'mcp-protocol-version': _, ...others } = headers as Record<string, string>
      return await sendRaw(app, { token: alice.token, body, headers: { ...others, ...revision } })
    }
    const padded = await ask({ 'mcp-protocol-version': ` \t${REVISION} \t ` })
    assert.deepEqual([padded.status, messageIn(padded.text).result.isError ?? false], [200, false])
    for (const revision of [{}, { 'mcp-protocol-version': '2025-11-25' }, { 'mcp-protocol-version': '2099-01-01' }]) {
      const { status, text } = await ask(revision as Record<string, string>)
      assert.equal(status, 400, text)
      const { error } = JSON.parse(text)
      assert.ok(typeof error.code === 'number' && /version/i.test(error.message), text)
    }
  })
})

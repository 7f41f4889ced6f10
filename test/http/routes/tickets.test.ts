import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { call, startTestApp } from '../../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../../helpers/database.ts'
import { seed } from '../../helpers/seed.ts'

describe('/api/whoami and /api/realtime/ticket', () => {
  let database: TestDatabase
  before(async () => {
    database = await createTestDatabase()
  })
  after(() => database.drop())

  test('whoami is the agent, its namespace and the token', async () => {
    const { alice } = await seed(database, 'who', ['alice'])
    const app = await startTestApp(database)
    const answer = await call(app, 'GET', '/api/whoami', alice)
    await app.close()
    assert.equal(answer.status, 200)
    assert.deepEqual(answer.json, {
      agent_id: 'alice',
      namespace_id: 'who',
      token_label: 'default',
      token_expires_at: null,
    })
  })

  test('a ticket opens the own topic on this server for at most ten minutes', async () => {
    const { alice } = await seed(database, 'ticket', ['alice'])
    const app = await startTestApp(database)
    const { status, json } = await call(app, 'GET', '/api/realtime/ticket', alice)
    const claims = await app.deps.signer?.verify(json.jwt)
    await app.close()
    assert.equal(status, 200)
    assert.deepEqual([json.agent_id, json.namespace_ids], ['alice', ['ticket']])
    assert.equal(json.realtime_url, `${app.url.replace('http', 'ws')}/realtime/v1/websocket`)
    assert.equal(json.topics[0].name, `realtime:agent:${alice.namespaceId}:${alice.agentId}`)
    assert.ok(json.jwt_expires_in <= 600)
    assert.deepEqual([claims?.ns, claims?.agent, claims?.token], [alice.namespaceId, alice.agentId, alice.tokenId])
  })

  test('behind a public URL listeners are sent there, whatever the Host header says', async () => {
    const { alice } = await seed(database, 'public', ['alice'])
    for (const [publicUrl, expected] of [
      ['https://patchcord.example.com', 'wss://patchcord.example.com/realtime/v1/websocket'],
      ['http://box.lan:8787/', 'ws://box.lan:8787/realtime/v1/websocket'],
      ['https://example.com/patchcord/', 'wss://example.com/patchcord/realtime/v1/websocket'],
    ] as const) {
      const app = await startTestApp(database, { config: { publicUrl: new URL(publicUrl) } })
      const { json } = await call(app, 'GET', '/api/realtime/ticket', alice)
      await app.close()
      assert.equal(json.realtime_url, expected)
    }
  })

  test('a server without a signing key says so with 501', async () => {
    const { alice } = await seed(database, 'keyless', ['alice'])
    const app = await startTestApp(database, { signer: null })
    const answer = await call(app, 'GET', '/api/realtime/ticket', alice)
    const stranger = await call(app, 'GET', '/api/realtime/ticket')
    const socket = await call(app, 'GET', '/realtime/v1/websocket')
    await app.close()
    assert.equal(answer.status, 501)
    assert.deepEqual(answer.json, {
      error: {
        code: 'realtime_not_configured',
        message: 'This server is not configured for realtime.',
        hint: 'The operator sets SUPABASE_JWT_SECRET or PATCHCORD_SIGNING_KEY.',
      },
    })
    assert.equal(stranger.status, 401)
    assert.equal(socket.status, 404)
  })
})

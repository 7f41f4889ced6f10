import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { sendMessage } from '../../server/domain/messages.ts'
import { issueToken } from '../../server/domain/tokens.ts'
import type { Wake } from '../../server/wakes/bus.ts'
import { type Answer, call, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { startInstance } from '../helpers/instance.ts'
import { connectMcp, idIn } from '../helpers/mcp.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const LIMITS = { sendBurst: 10_000, newPerRecipientMax: 3 }
const CALLS = 50

/** Two whole servers on one database: a client that got no answer asks whichever it reaches. */
describe('an idempotency key', { timeout: 120_000 }, () => {
  let database: TestDatabase
  let apps: [TestApp, TestApp]
  const wakes: Wake[] = []
  before(async () => {
    database = await createTestDatabase()
    const [here, there] = await Promise.all([1, 2].map(() => startInstance(database, { limits: LIMITS })))
    apps = [here as TestApp, there as TestApp]
    for (const { deps } of apps) deps.bus.onPublish((published) => wakes.push(...published))
  })
  after(async () => {
    await Promise.all(apps.map((app) => app.close()))
    await database.drop()
  })

  /** The same call again and again at once, by turns on both instances, the key by turns in the header and in the body. */
  const repeat = (token: string, path: string, key: string, bodyOf: (index: number) => object): Promise<Answer[]> =>
    Promise.all(
      Array.from({ length: CALLS }, (_, index) => {
        const app = apps[index % 2] as TestApp
        return index % 4 < 2
          ? call(app, 'POST', path, { token, body: bodyOf(index), headers: { 'idempotency-key': key } })
          : call(app, 'POST', path, { token, body: { ...bodyOf(index), idempotency_key: key } })
      }),
    )
  const rowsTo = async (agent: SeededAgent) => {
    const rows = await database.admin`select id from patchcord.agent_messages where to_agent_uuid = ${agent.agentId}`
    return rows.map(({ id }) => id as string)
  }
  const tallyOf = (values: unknown[]) => {
    const tally: Record<string, number> = {}
    for (const value of values) tally[String(value)] = (tally[String(value)] ?? 0) + 1
    return tally
  }

  test('of 50 sends at once over two instances: one is stored and wakes once, all get its answer', async () => {
    const { alice, bob } = await seed(database, 'send', ['alice', 'bob'])
    for (let round = 0; round < 3; round++) {
      const before = await rowsTo(bob)
      const answers = await repeat(alice.token, '/api/messages', `key ${round}`, () => ({
        to: 'bob',
        content: `${round}`,
        kind: 'report',
        expires_in: 600,
      }))
      const [id, ...others] = (await rowsTo(bob)).filter((each) => !before.includes(each))
      assert.deepEqual(others, [])
      assert.deepEqual(tallyOf(answers.map(({ status, json }) => `${status} ${json.message_id}`)), {
        [`201 ${id}`]: CALLS,
      })
      assert.deepEqual(tallyOf(answers.map(({ json }) => json.replayed)), { false: 1, true: CALLS - 1 })
      assert.equal(new Set(answers.map(({ json }) => json.expires_at)).size, 1)
      assert.equal(wakes.filter((wake) => wake.id === id).length, 1)
    }
  })

  test('of 50 replies at once: one is stored, and the message is answered once', async () => {
    const { alice, bob } = await seed(database, 'reply', ['alice', 'bob'])
    const { message_id: asked } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'why?' }))
    await bob((scope) => fetchInbox(scope, {}))
    const answers = await repeat(bob.token, `/api/messages/${asked}/reply`, 'key', () => ({ content: 'because' }))
    const [id, ...others] = await rowsTo(alice)
    assert.deepEqual(others, [])
    assert.deepEqual(tallyOf(answers.map(({ status, json }) => `${status} ${json.state} ${json.sent?.message_id}`)), {
      [`200 answered ${id}`]: CALLS,
    })
    assert.equal(wakes.filter((wake) => wake.id === id).length, 1)
  })

  test('of 50 sends with one key and two texts at once: one text is stored; the other is a conflict, always', async () => {
    const { alice, bob } = await seed(database, 'texts', ['alice', 'bob'])
    const answers = await repeat(alice.token, '/api/messages', 'key', (index) => ({
      to: 'bob',
      content: index % 3 === 0 ? 'one' : 'two',
      kind: 'report',
    }))
    assert.equal((await rowsTo(bob)).length, 1)
    const [stored] = await database.admin`
      select content from patchcord.message_bodies where from_agent_uuid = ${alice.agentId}`
    for (const [index, { status, json }] of answers.entries()) {
      const isStored = (index % 3 === 0 ? 'one' : 'two') === stored?.content
      assert.deepEqual([status, json.error?.code], isStored ? [201, undefined] : [409, 'conflict'])
    }
  })

  test('whatever else differs is another body: recipient, thread, kind, urgency, deadline, and a reply is no send', async () => {
    const { alice, bob } = await seed(database, 'bodies', ['alice', 'bob', 'carol'])
    const body = { to: 'bob', content: 'x', kind: 'report', idempotency_key: 'key' }
    const send = async (more: object) =>
      (await call(apps[1], 'POST', '/api/messages', { token: alice.token, body: { ...body, ...more } })).status
    assert.equal(await send({}), 201)
    assert.equal(await send({}), 201)
    const others = [
      { to: 'carol' },
      { thread: 't' },
      { kind: 'message' },
      { urgency: 'fyi' },
      { expires_in: 60 },
      { content: 'y' },
    ]
    for (const more of others) assert.equal(await send(more), 409, JSON.stringify(more))
    const { message_id: asked } = await bob((scope) =>
      sendMessage(scope, { to: 'alice', content: '?', kind: 'report' }),
    )
    await alice((scope) => fetchInbox(scope, {}))
    const reply = { token: alice.token, body: { content: 'x', idempotency_key: 'key' } }
    assert.equal((await call(apps[0], 'POST', `/api/messages/${asked}/reply`, reply)).status, 409)
    assert.equal((await rowsTo(bob)).length, 1)
  })

  test('belongs to the agent, not to its token, and to no other agent', async () => {
    const { alice, bob } = await seed(database, 'agent', ['alice', 'bob', 'carol'])
    const { token: rotated } = await issueToken(database.admin, { namespace: 'agent', agent: 'alice' })
    const body = { to: 'carol', content: 'x', kind: 'report', idempotency_key: 'key' }
    const send = async (app: TestApp, token: string) => (await call(app, 'POST', '/api/messages', { token, body })).json
    const first = await send(apps[0], alice.token)
    const again = await send(apps[1], rotated)
    assert.deepEqual([again.message_id, again.replayed], [first.message_id, true])
    const other = await send(apps[1], bob.token)
    assert.notEqual(other.message_id, first.message_id)
    assert.equal(other.replayed, false)
  })

  test('is free again after a refusal, which is not kept', async () => {
    const { alice, bob } = await seed(database, 'refused', ['alice', 'bob'])
    const body = { to: 'bob', content: 'x', idempotency_key: 'key' }
    const send = async (app: TestApp, more = {}) =>
      (await call(app, 'POST', '/api/messages', { token: alice.token, body: { ...body, ...more } })).status
    await bob((scope) => sendMessage(scope, { to: 'alice', content: 'read this first' }))
    assert.equal(await send(apps[0]), 409, 'gated')
    assert.equal(await send(apps[1], { to: 'nobody' }), 404)
    assert.equal(await send(apps[1]), 201)
    for (let i = 0; i < 2; i++) await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
    const full = { idempotency_key: 'full' }
    assert.equal(await send(apps[0], full), 429)
    await bob((scope) => fetchInbox(scope, {}))
    assert.equal(await send(apps[1], full), 201)
  })

  test('is forgotten after 24 hours, on both', async () => {
    const { alice } = await seed(database, 'day', ['alice', 'bob'])
    const body = { to: 'bob', content: 'x', kind: 'report', idempotency_key: 'key' }
    const send = async (app: TestApp) => (await call(app, 'POST', '/api/messages', { token: alice.token, body })).json
    const first = await send(apps[0])
    await database.admin`
      update patchcord.idempotency_keys set created_at = created_at - interval '23 hours 59 minutes'
      where agent_uuid = ${alice.agentId}`
    assert.equal((await send(apps[1])).message_id, first.message_id)
    await database.admin`
      update patchcord.idempotency_keys set created_at = created_at - interval '2 minutes' where agent_uuid = ${alice.agentId}`
    const second = await send(apps[1])
    assert.notEqual(second.message_id, first.message_id)
    assert.equal((await send(apps[0])).message_id, second.message_id)
  })

  test('is the same over REST and MCP', async (t) => {
    const { alice, bob } = await seed(database, 'mcp', ['alice', 'bob'])
    const client = await connectMcp(apps[1], alice.token)
    t.after(() => client.close())
    const body = { to: 'bob', content: 'x', kind: 'report' }
    const headers = { 'idempotency-key': 'key' }
    const { json } = await call(apps[0], 'POST', '/api/messages', { token: alice.token, body, headers })
    const again = await client.call('send_message', { ...body, idempotency_key: 'key' })
    assert.equal(idIn(again.text), json.message_id)
    assert.match(again.text, /^Already sent, with the same idempotency key, to bob /)
    assert.equal((await rowsTo(bob)).length, 1)
  })
})

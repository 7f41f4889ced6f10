import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { type ChannelHandlers, openChannel } from '../../server/db/listen.ts'
import { waitForMessage } from '../../server/domain/inbox.ts'
import { sendMessage } from '../../server/domain/messages.ts'
import { listRecentRevocations, revokeToken } from '../../server/domain/tokens.ts'
import { createBus, type Wake } from '../../server/wakes/bus.ts'
import { startPeers } from '../../server/wakes/peers.ts'
import { startReadBack } from '../../server/wakes/read-back.ts'
import { startRevocations } from '../../server/wakes/revocations.ts'
import { createWaiters } from '../../server/wakes/waiters.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { DEFAULT_LIMITS, seed } from '../helpers/seed.ts'

const LOG = { warn: (_details: object, message: string) => assert.fail(message) }

/** What one server process has of the wake path, with `listeners` (agent ids) connected to it. */
function createInstance(listeners: string[] = []) {
  const waiters = createWaiters(DEFAULT_LIMITS)
  const bus = createBus(waiters)
  const delivered: Wake[] = []
  bus.addSink({ deliver: (wake) => delivered.push(wake), agentIds: () => listeners })
  return { waiters, bus, delivered, listeners }
}

async function until(what: () => boolean, timeoutMs = 10_000): Promise<void> {
  const deadline = Date.now() + timeoutMs
  while (!what()) {
    if (Date.now() > deadline) throw new Error(`not within ${timeoutMs} ms`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())
const open = (name: string, handlers: ChannelHandlers) => openChannel(database.apiTarget, name, handlers)

test('a send on one instance wakes a listener and a waiter on the other', async () => {
  const [here, there] = [createInstance(), createInstance()]
  const options = { open, onListening: () => {}, log: LOG }
  const peers = await Promise.all([here, there].map(({ bus }) => startPeers({ ...options, bus })))
  const { alice, bob, carol } = await seed(database, 'peers', ['alice', 'bob', 'carol'], { bus: here.bus })
  const waiting = waitForMessage(
    { ...bob.scope, bus: there.bus },
    there.waiters,
    { timeout_seconds: 60 },
    new AbortController().signal,
  )
  await until(() => [...there.waiters.agentIds()].length > 0)
  await alice((scope) => sendMessage(scope, { to: 'bob, carol', content: 'both' }))
  assert.equal((await waiting).message?.content, 'both')
  await until(() => there.delivered.length > 0)
  assert.deepEqual(
    there.delivered.map((wake) => wake.toAgentId),
    [carol.agentId],
  )
  assert.equal(here.delivered.length, 2)
  await Promise.all(peers.map((each) => each.close()))
})

test('200 sends at once reach the other instance, each once', async () => {
  const [here, there] = [createInstance(), createInstance()]
  const options = { open, onListening: () => {}, log: LOG }
  const peers = await Promise.all([here, there].map(({ bus }) => startPeers({ ...options, bus })))
  const { alice } = await seed(database, 'burst', ['alice', 'bob'], { bus: here.bus, limits: { sendBurst: 1000 } })
  await Promise.all(
    Array.from({ length: 200 }, () => alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))),
  )
  await until(() => there.delivered.length === 200)
  assert.equal(new Set(there.delivered.map((wake) => wake.id)).size, 200)
  await Promise.all(peers.map((each) => each.close()))
})

test('a wake whose NOTIFY never came arrives within 3 s, once', async () => {
  const there = createInstance()
  const { alice, bob } = await seed(database, 'lost', ['alice', 'bob'])
  there.listeners.push(bob.agentId)
  const readBack = startReadBack({ sql: database.api, bus: there.bus, log: LOG })
  const { message_id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
  const startedAt = performance.now()
  await until(() => there.delivered.length > 0)
  assert.ok(performance.now() - startedAt < 3_000)
  readBack.now()
  await readBack.close()
  assert.deepEqual(
    there.delivered.map((wake) => [wake.id, wake.from]),
    [[message_id, 'alice']],
  )
})

test('a wait whose NOTIFY never came ends with its message within 3 s', async () => {
  const there = createInstance()
  const { alice, bob } = await seed(database, 'lost-wait', ['alice', 'bob'])
  const readBack = startReadBack({ sql: database.api, bus: there.bus, log: LOG })
  const scope = { ...bob.scope, bus: there.bus }
  const waiting = waitForMessage(scope, there.waiters, { timeout_seconds: 15 }, new AbortController().signal)
  await until(() => [...there.waiters.agentIds()].length > 0)
  // Its first look into the inbox finds nothing: only a wake can end it now.
  await new Promise((resolve) => setTimeout(resolve, 200))
  await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
  const startedAt = performance.now()
  const { end, message } = await waiting
  await readBack.close()
  assert.deepEqual([end, message?.content], ['message', 'x'])
  assert.ok(performance.now() - startedAt < 3_000)
})

test('more wakes than one page of the read-back arrive, each once, for those who listen', async () => {
  const there = createInstance()
  const { alice, bob, carol } = await seed(database, 'pages', ['alice', 'bob', 'carol'])
  there.listeners.push(bob.agentId)
  // One moment for all of them: pages must not depend on it.
  await database.admin`
    with body as (
      insert into patchcord.message_bodies (from_namespace_uuid, from_agent_uuid, content)
      select ${alice.namespaceId}, ${alice.agentId}, 'x' from generate_series(1, 2500) returning id
    ), message as (
      insert into patchcord.agent_messages (id, from_namespace_uuid, to_namespace_uuid, from_agent_uuid, to_agent_uuid,
        namespace_id, from_agent, to_agent, kind, urgency, wake_at)
      select body.id, ${alice.namespaceId}, ${alice.namespaceId}, ${alice.agentId}, a.id, 'pages', 'alice', a.name, 'report',
        'normal', statement_timestamp()
      from body, patchcord.agents a where a.id = any (${[bob.agentId, carol.agentId]}::uuid[])
      returning id, to_agent_uuid, from_agent_uuid, wake_at
    )
    insert into patchcord.deliveries (message_id, to_agent_uuid, from_agent_uuid, wake_at) select * from message`
  const readBack = startReadBack({ sql: database.api, bus: there.bus, log: LOG, intervalMs: 100 })
  await until(() => there.delivered.length >= 2_500)
  await new Promise((resolve) => setTimeout(resolve, 300))
  await readBack.close()
  assert.equal(there.delivered.length, 2_500)
  assert.equal(new Set(there.delivered.map((wake) => wake.id)).size, 2_500)
})

test('a held wake arrives when it comes due', async () => {
  const there = createInstance()
  const limits = { turnsUnattendedMax: 1, turnsWindowSeconds: 3 }
  const { alice, bob } = await seed(database, 'held', ['alice', 'bob'], { limits })
  there.listeners.push(bob.agentId, alice.agentId)
  const readBack = startReadBack({ sql: database.api, bus: there.bus, log: LOG, intervalMs: 100 })
  const send = (from: typeof alice, to: string) =>
    from((scope) => sendMessage(scope, { to, content: 'x' })).catch(() =>
      from((scope) => sendMessage(scope, { to, content: 'x' })),
    )
  await send(alice, 'bob')
  await send(bob, 'alice')
  const held = await send(alice, 'bob')
  assert.ok(held.recipients[0]?.held_until)
  await new Promise((resolve) => setTimeout(resolve, 500))
  assert.ok(!there.delivered.some((wake) => wake.id === held.message_id))
  await until(() => there.delivered.some((wake) => wake.id === held.message_id))
  await readBack.close()
})

test('revocations are asked for only while something hangs on a token, and a failure to read them passes', async () => {
  const { alice, bob } = await seed(database, 'revoke', ['alice', 'bob'])
  const held = new Set<string>()
  const closed: string[] = []
  const warnings: string[] = []
  let asked = 0
  const revocations = startRevocations({
    holders: [
      { tokenIds: () => [], closeTokens: () => undefined },
      { tokenIds: () => held, closeTokens: (ids) => closed.push(...ids) },
    ],
    async listRecent(seconds, tokenIds) {
      if (++asked === 1) throw new Error('the database is away')
      return await listRecentRevocations(database.api, seconds, tokenIds)
    },
    log: { warn: (_details, message) => warnings.push(message) },
  })
  await revokeToken(database.admin, alice.tokenId)
  await new Promise((resolve) => setTimeout(resolve, 1_200))
  assert.equal(asked, 0)
  held.add(bob.tokenId)
  await until(() => closed.length > 0)
  await revocations.close()
  assert.equal(warnings.length, 1)
  assert.ok(closed.includes(alice.tokenId) && !closed.includes(bob.tokenId))
})

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Limits } from '../../server/config.ts'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { asTicket, type Session, tryAs } from './rls/world.ts'

const SECRET = 'the text that no wake may carry'
/** The first turn is held already, for a time that a test can wait for. */
const SHORT_BUDGET: Partial<Limits> = { turnsUnattendedMax: 1, turnsWindowSeconds: 3 }
const DUE_MS_MAX = 30_000

describe('the broadcast row', () => {
  let database: TestDatabase
  before(async () => {
    database = await createTestDatabase()
    await database.admin`update patchcord.settings set sends_broadcast = true`
  })
  after(() => database.drop())

  const topicOf = (agent: SeededAgent) => `agent:${agent.namespaceId}:${agent.agentId}`

  /** Rows of an agent's topic, whoever wrote them. */
  const rowsFor = async (agent: SeededAgent) =>
    await database.superuser`
      select topic, event, extension, private, payload from realtime.messages
      where topic = ${topicOf(agent)} order by inserted_at`

  /** How many rows of the topic a session sees while Realtime asks for that topic. */
  const countAs = (session: Session, topic: string) =>
    tryAs(database.superuser, session, async (sql) => {
      await sql`select set_config('realtime.topic', ${topic}, true)`
      return (await sql`select from realtime.messages where topic = ${topic}`).count
    })

  /** Sends back and forth until a message is held; its id. */
  const exchangeUntilHeld = async (alice: SeededAgent, bob: SeededAgent) => {
    for (let turn = 0; turn < 5; turn++) {
      const [from, to] = turn % 2 === 0 ? [alice, bob] : [bob, alice]
      const sent = await from((scope) => sendMessage(scope, { to: to.agent, content: SECRET }))
      if (sent.recipients[0]?.held_until) return { id: sent.message_id, to }
      await to((scope) => fetchInbox(scope, {}))
    }
    throw new Error('no message was held')
  }

  test('a send writes one private wake per recipient, with our id and without the text', async () => {
    const { alice, bob, carol, dave } = await seed(database, 'acme', ['alice', 'bob', 'carol', 'dave'])
    const sent = await alice((scope) =>
      sendMessage(scope, { to: 'bob, carol', content: SECRET, thread: 'deploy', kind: 'question', urgency: 'urgent' }),
    )
    for (const agent of [bob, carol]) {
      const shared = { from: 'alice', kind: 'question', urgency: 'urgent', thread: 'deploy' }
      const payload = { id: sent.message_id, to: agent.agent, ...shared }
      const row = { topic: topicOf(agent), event: 'wake', extension: 'broadcast', private: true, payload }
      const rows = await rowsFor(agent)
      assert.deepEqual(
        rows.map((each) => ({ ...each })),
        [row],
      )
      assert.doesNotMatch(JSON.stringify(rows), new RegExp(SECRET))
    }
    assert.equal((await rowsFor(alice)).length + (await rowsFor(dave)).length, 0)
  })

  test('the ticket of the recipient reads it back, nobody else does, and not after its end', async () => {
    const { alice, bob } = await seed(database, 'read', ['alice', 'bob'])
    const { eve } = await seed(database, 'read-other', ['eve'])
    await alice((scope) => sendMessage(scope, { to: 'bob', content: SECRET }))
    const topic = topicOf(bob)
    const claimless = { role: 'patchcord_ticket', claims: null }
    const seen = {
      own: await countAs(asTicket(bob, 600), topic),
      sender: await countAs(asTicket(alice, 600), topic),
      foreigner: await countAs(asTicket(eve, 600), topic),
      expired: await countAs(asTicket(bob, -1), topic),
      claimless: await countAs(claimless, topic),
      anonymous: await countAs({ role: 'anon', claims: null }, topic),
    }
    assert.deepEqual(seen, { own: 1, sender: 0, foreigner: 0, expired: 0, claimless: 0, anonymous: 0 })
  })

  test('a ticket does not read rows of another topic while it asks for its own', async () => {
    const { alice, bob, carol } = await seed(database, 'narrow', ['alice', 'bob', 'carol'])
    await alice((scope) => sendMessage(scope, { to: 'bob, carol', content: SECRET }))
    const foreign = await tryAs(database.superuser, asTicket(bob, 600), async (sql) => {
      await sql`select set_config('realtime.topic', ${topicOf(bob)}, true)`
      return (await sql`select from realtime.messages where topic = ${topicOf(carol)}`).count
    })
    assert.equal(foreign, 0)
  })

  test('a refused send, a note to oneself and a silent resolve write no row', async () => {
    const { alice, bob } = await seed(database, 'silent', ['alice', 'bob'])
    const sent = await alice((scope) => sendMessage(scope, { to: 'bob', content: SECRET, thread: 'job' }))
    await assert.rejects(
      bob((scope) => sendMessage(scope, { to: 'alice', content: 'gated' })),
      { code: 'gated' },
    )
    await assert.rejects(
      bob((scope) => sendMessage(scope, { to: 'alice, zoe', content: 'x' })),
      { code: 'not_found' },
    )
    await bob((scope) => sendMessage(scope, { to: 'bob', content: 'note' }))
    await bob((scope) => replyToMessage(scope, { message_id: sent.message_id, content: 'closed', resolve: true }))
    assert.equal((await rowsFor(alice)).length, 0)
    assert.equal((await rowsFor(bob)).length, 1)
  })

  test('a replayed send writes no second row', async () => {
    const { alice, bob } = await seed(database, 'replay', ['alice', 'bob'])
    const send = () => alice((scope) => sendMessage(scope, { to: 'bob', content: SECRET, idempotency_key: 'k' }))
    await send()
    assert.equal((await send()).replayed, true)
    assert.equal((await rowsFor(bob)).length, 1)
  })

  test('a held message gets its row when its release comes due, once, whoever releases', async () => {
    const { alice, bob } = await seed(database, 'held', ['alice', 'bob'], { limits: SHORT_BUDGET })
    const { id, to } = await exchangeUntilHeld(alice, bob)
    const wakes = async () => (await rowsFor(to)).filter((row) => row.payload.id === id).length
    const readBack = () => database.api`select patchcord.read_back(60, null)`
    await readBack()
    assert.equal(await wakes(), 0)
    const deadline = Date.now() + DUE_MS_MAX
    while ((await wakes()) === 0 && Date.now() < deadline) {
      await Promise.all(Array.from({ length: 4 }, readBack))
      await sleep(100)
    }
    await readBack()
    assert.equal(await wakes(), 1)
  })

  test('a held message that was fetched or taken back before its time gets no row', async () => {
    const { alice, bob } = await seed(database, 'held-read', ['alice', 'bob'], { limits: SHORT_BUDGET })
    const { id, to } = await exchangeUntilHeld(alice, bob)
    await to((scope) => fetchInbox(scope, {}))
    await database.admin`update patchcord.deliveries set wake_at = clock_timestamp() where message_id = ${id}`
    await database.api`select patchcord.read_back(60, null)`
    assert.equal((await rowsFor(to)).filter((row) => row.payload.id === id).length, 0)
    const [left] = await database.admin`select held from patchcord.deliveries where message_id = ${id}`
    assert.equal(left?.held, false)
  })

  test('with the setting off nothing is written, neither at the send nor at the release', async () => {
    const { alice, bob } = await seed(database, 'off', ['alice', 'bob'], { limits: SHORT_BUDGET })
    await database.admin`update patchcord.settings set sends_broadcast = false`
    try {
      const { id } = await exchangeUntilHeld(alice, bob)
      await database.admin`update patchcord.deliveries set wake_at = clock_timestamp() where message_id = ${id}`
      await database.api`select patchcord.read_back(60, null)`
      assert.equal((await rowsFor(alice)).length + (await rowsFor(bob)).length, 0)
    } finally {
      await database.admin`update patchcord.settings set sends_broadcast = true`
    }
  })
})

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { sendMessage } from '../../server/domain/messages.ts'
import { createRealtimeSource, type RealtimeSource } from '../../server/domain/realtime.ts'
import { PatchcordError } from '../../server/errors.ts'
import type { Wake } from '../../server/wakes/bus.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { type Client, type Endpoint, inSeconds, startEndpoint } from './endpoint-helper.ts'

const HEARTBEAT = { topic: 'phoenix', event: 'heartbeat', payload: {}, ref: 'quiet' }

describe('replay of a private topic', () => {
  let database: TestDatabase
  let count = 0
  before(async () => {
    database = await createTestDatabase()
  })
  after(() => database.drop())

  const topicOf = ({ namespaceId, agentId }: SeededAgent) => `realtime:agent:${namespaceId}:${agentId}`
  const send = async (from: SeededAgent, to: SeededAgent) =>
    (await from((scope) => sendMessage(scope, { to: to.agent, content: 'hi' }))).message_id

  async function withEndpoint(source: RealtimeSource, work: (endpoint: Endpoint) => Promise<void>): Promise<void> {
    const endpoint = await startEndpoint({ source })
    try {
      await work(endpoint)
    } finally {
      await endpoint.stop()
    }
    assert.deepEqual(endpoint.errors, [])
  }

  /** A join of the agent's topic; its reply's status or reason. */
  async function join(endpoint: Endpoint, client: Client, agent: SeededAgent, replay: object): Promise<string> {
    const { namespaceId: ns, agentId, tokenId: token } = agent
    const jwt = await endpoint.sign({ role: 'patchcord_ticket', exp: inSeconds(60), ns, agent: agentId, token })
    const payload = { config: { private: true, broadcast: { replay } }, access_token: jwt }
    client.send({ topic: topicOf(agent), event: 'phx_join', payload, ref: '1', join_ref: '1' })
    const reply = JSON.parse(await client.next()).payload
    return reply.response.reason ?? reply.status
  }

  /** The wakes that came so far: id, and whether it was replayed. */
  async function heard(client: Client): Promise<string[]> {
    client.send(HEARTBEAT)
    const wakes: string[] = []
    for (let frame = await client.next(); !frame.includes('"ref":"quiet"'); frame = await client.next()) {
      const { meta } = JSON.parse(frame).payload
      wakes.push(meta.replayed ? `${meta.id} replayed` : meta.id)
    }
    return wakes
  }

  const agents = () => seed(database, `replay-${++count}`, ['alice', 'bob', 'carol'], { limits: { sendBurst: 100 } })

  test("the newest wakes of the agent since the time come oldest first, and nobody else's", () =>
    withEndpoint(createRealtimeSource(database.api), async (endpoint) => {
      const { alice, bob, carol } = await agents()
      await send(alice, bob)
      await new Promise((resolve) => setTimeout(resolve, 20))
      const since = Date.now()
      const ids = [await send(alice, bob), await send(carol, bob), await send(alice, bob)]
      await send(alice, carol)
      await send(bob, bob)
      const client = await endpoint.open()
      assert.equal(await join(endpoint, client, bob, { since, limit: 2 }), 'ok')
      assert.deepEqual(
        await heard(client),
        ids.slice(1).map((id) => `${id} replayed`),
      )
      assert.equal(await join(endpoint, client, bob, { since }), 'ok')
      assert.match(await client.next(), /phx_close/)
      assert.deepEqual(
        await heard(client),
        ids.map((id) => `${id} replayed`),
      )
      client.close()
    }))

  test('what waits for a join whose past is read without end is bounded', async () => {
    let onRead: () => void = () => undefined
    const source: RealtimeSource = {
      ...createRealtimeSource(database.api),
      async listRecentWakes() {
        onRead()
        await new Promise((resolve) => setTimeout(resolve, 200))
        return []
      },
    }
    await withEndpoint(source, async (endpoint) => {
      const { alice, bob } = await agents()
      await send(alice, bob)
      const [wake] = alice.wakes
      onRead = () => {
        for (let index = 0; index < 3_000; index++) endpoint.hub.deliver({ ...(wake as Wake), id: `${index}` })
      }
      const client = await endpoint.open()
      assert.equal(await join(endpoint, client, bob, { since: 0 }), 'ok')
      const ids = await heard(client)
      assert.ok(ids.length >= 100 && ids.length <= 1_000, `${ids.length} wakes`)
      client.close()
    })
  })

  test('no more than 25 are replayed, none that is held, and none older than three days', () =>
    withEndpoint(createRealtimeSource(database.api), async (endpoint) => {
      const { alice, bob, carol } = await agents()
      const ids: string[] = []
      for (let index = 0; index < 30; index++) ids.push(await send(alice, bob))
      const client = await endpoint.open()
      assert.equal(await join(endpoint, client, bob, { since: 0, limit: 1_000 }), 'ok')
      assert.deepEqual(
        await heard(client),
        ids.slice(-25).map((id) => `${id} replayed`),
      )
      const [held, old, recent] = [await send(alice, carol), await send(alice, carol), await send(alice, carol)]
      await database.superuser`update patchcord.agent_messages set wake_at = now() + interval '1 hour' where id = ${held}`
      await database.superuser`update patchcord.agent_messages set wake_at = now() - interval '73 hours' where id = ${old}`
      const other = await endpoint.open()
      assert.equal(await join(endpoint, other, carol, { since: 0 }), 'ok')
      assert.deepEqual(await heard(other), [`${recent} replayed`])
      client.close()
      other.close()
    }))

  test('a wake that comes while the past is read comes once: replayed, or live behind it', async () => {
    const source = createRealtimeSource(database.api)
    const { alice, bob } = await agents()
    const first = await send(alice, bob)
    let endpoint: Endpoint | null = null
    const slow: RealtimeSource = {
      ...source,
      async listRecentWakes(...given) {
        const wakes = await source.listRecentWakes(...given)
        const second = await send(alice, bob)
        for (const wake of alice.wakes) endpoint?.hub.deliver(wake)
        await new Promise((resolve) => setTimeout(resolve, 50))
        assert.deepEqual(
          alice.wakes.map(({ id }) => id),
          [first, second],
        )
        return wakes
      },
    }
    await withEndpoint(slow, async (each) => {
      endpoint = each
      const client = await each.open()
      assert.equal(await join(each, client, bob, { since: 0 }), 'ok')
      const [, second] = alice.wakes.map(({ id }) => id)
      assert.deepEqual(await heard(client), [`${first} replayed`, second])
      client.close()
    })
  })

  test('parameters that are none are refused, and so is a join whose past cannot be read', async () => {
    const { bob } = await agents()
    const away = () => Promise.reject(new PatchcordError('unavailable', 'away'))
    await withEndpoint({ ...createRealtimeSource(database.api), listRecentWakes: away }, async (endpoint) => {
      const client = await endpoint.open()
      for (const replay of [
        { since: '5' },
        { since: 1.5 },
        { limit: 3 },
        { since: 5, limit: 0 },
        { since: 5, limit: 'x' },
        [],
      ]) {
        assert.equal(
          await join(endpoint, client, bob, replay),
          'UnableToReplayMessages: Replay params are not valid',
          JSON.stringify(replay),
        )
      }
      assert.match(await join(endpoint, client, bob, { since: 5 }), /^UnableToConnectToProject: /)
      assert.deepEqual([...endpoint.hub.agentIds()], [])
      client.close()
    })
  })
})

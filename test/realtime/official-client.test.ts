import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import {
  clientVersion,
  nameOf,
  type OpenClient,
  SECRET,
  subscribe,
  topicOf,
  until,
  untilChanges,
  untilChangesLive,
  untilStatus,
  untilWakes,
  type Vsn,
  World,
} from './official-client-helper.ts'

/** A ticket's life where a test waits for its end; `exp` is in whole seconds, so it may be one less. */
const SHORT_SECONDS = 4
const HEARTBEAT_MS = 500
/** The server's own. */
const CHANGES_POLL_MS = 500

for (const vsn of ['1.0.0', '2.0.0'] as const) describeClient(vsn)

function describeClient(vsn: Vsn): void {
  describe(`@supabase/realtime-js ${clientVersion} with serializer ${vsn}`, { concurrency: true }, () => {
    let database: TestDatabase
    let namespaceCount = 0
    before(async () => {
      database = await createTestDatabase()
    })
    after(() => database.drop())

    function clientTest(name: string, work: (world: World) => Promise<void>): void {
      test(name, async () => {
        const world = await World.start(database, `official-${++namespaceCount}`, vsn)
        try {
          await work(world)
        } finally {
          await world.close()
        }
      })
    }

    clientTest('hears the wakes of its own agent and no others', hearsItsOwn)
    clientTest('is told why the topic of another agent is refused', isRefused)
    clientTest('stays joined beyond the end of its ticket, when its accessToken has fresh ones', refreshes)
    clientTest('is told when its ticket ends, and hears again when it subscribes with another', expires)
    clientTest('comes back by itself after a restart and hears the next wake', survivesRestart)
    clientTest('comes back after a restart with the apikey of a ticket that has run out', survivesItsTicket)
    clientTest('comes back though its first apikey has run out, when accessToken renews that, too', renewsApikey)
    clientTest('that has only its apikey is let in, and hears nothing', hearsNothingByApikey)
    clientTest('hears the inserts of its own agent’s rows through postgres_changes and no others', hearsItsInserts)
    clientTest('hears inserts after a new token and after a restart, too', keepsHearingInserts)
    clientTest('hears what it missed, marked as replayed, when it asks for that', hearsReplay)
    clientTest('that joins before its token is there is refused, and heard at its second attempt', joinsTooEarly)
  })
}

const cannotRead = (name: string) =>
  `CHANNEL_ERROR: Unauthorized: You do not have permissions to read from this Channel topic: ${name}`

/** To two agents in turn; the ids of what each must hear. */
async function sendToBoth(world: World): Promise<{ alice: string[]; bob: string[] }> {
  const { alice, bob, carol } = world.agents
  const sent = { alice: [] as string[], bob: [] as string[] }
  for (let round = 0; round < 5; round++) {
    sent.alice.push(await world.send(carol, alice))
    sent.bob.push(await world.send(carol, bob))
  }
  return sent
}

async function hearsItsOwn(world: World): Promise<void> {
  const { alice, bob } = world.agents
  const toAlice = await world.join(await world.fetchTicket(alice))
  const toBob = await world.join(await world.fetchTicket(bob))
  const sent = await sendToBoth(world)
  const heard = { alice: await untilWakes(toAlice.heard, 5), bob: await untilWakes(toBob.heard, 5) }
  assert.deepEqual(heard, sent)
  const id = sent.alice[0]
  const payload = { id, from: 'carol', to: 'alice', kind: 'message', urgency: 'normal' }
  assert.deepEqual(toAlice.heard.wakes[0], { type: 'broadcast', event: 'wake', meta: { id }, payload })
  assert.deepEqual([toAlice.heard.statuses, toAlice.heard.system], [['SUBSCRIBED'], []])
  assert.equal(toAlice.opened.binaryCount, world.vsn === '2.0.0' ? 5 : 0)
  assertNothingLeaked(toAlice.opened, sent.bob)
}

/** On the wire: what is not for its channels the client drops without a word. */
function assertNothingLeaked({ frames }: OpenClient, ids: string[]): void {
  const leaked = frames.filter((frame) => [SECRET, ...ids].some((text) => frame.includes(text)))
  assert.deepEqual(leaked, [])
}

async function isRefused(world: World): Promise<void> {
  const { alice, bob, carol } = world.agents
  const [own, other] = [await world.fetchTicket(alice), await world.fetchTicket(bob)]
  const opened = world.open(own)
  await opened.client.setAuth(own.jwt)
  const heard = subscribe(opened, topicOf(other))
  await until(heard, ({ statuses }) => statuses.length > 0)
  const id = await world.send(carol, bob)
  const ownHeard = subscribe(opened, topicOf(own))
  await untilStatus(ownHeard, 'SUBSCRIBED')
  await world.send(carol, alice)
  await untilWakes(ownHeard, 1)
  assert.equal(heard.statuses[0], cannotRead(nameOf(topicOf(other))))
  assertNothingLeaked(opened, [id])
}

async function refreshes(world: World): Promise<void> {
  const { alice, carol } = world.agents
  const ticket = await world.fetchTicket(alice)
  let fetchCount = 0
  const accessToken = async () => {
    fetchCount++
    return await world.shorten((await world.fetchTicket(alice)).jwt, SHORT_SECONDS)
  }
  const opened = world.open(ticket, { accessToken, heartbeatIntervalMs: HEARTBEAT_MS })
  await opened.client.setAuth()
  const heard = subscribe(opened, topicOf(ticket))
  await untilStatus(heard, 'SUBSCRIBED')
  await sleep(2.5 * SHORT_SECONDS * 1000)
  const id = await world.send(carol, alice)
  assert.deepEqual(await untilWakes(heard, 1), [id])
  assert.deepEqual([heard.statuses, heard.system, opened.connectionCount], [['SUBSCRIBED'], [], 1])
  assert.ok(fetchCount > 2)
}

async function expires(world: World): Promise<void> {
  const { alice, carol } = world.agents
  const ticket = await world.fetchTicket(alice)
  const opened = world.open(ticket)
  await opened.client.setAuth(await world.shorten(ticket.jwt, SHORT_SECONDS))
  const heard = subscribe(opened, topicOf(ticket))
  await untilStatus(heard, 'SUBSCRIBED')
  await opened.client.setAuth(await world.shorten(ticket.jwt, 2 * SHORT_SECONDS))
  await sleep(SHORT_SECONDS * 1000)
  const first = await world.send(carol, alice)
  assert.deepEqual(await untilWakes(heard, 1), [first])
  await untilStatus(heard, 'CLOSED')
  assert.deepEqual(heard.statuses, ['SUBSCRIBED', 'CLOSED'])
  const message = heard.system[0]?.message ?? ''
  assert.match(message, /^Token has expired \d+ seconds ago$/)
  const channel = nameOf(topicOf(ticket))
  assert.deepEqual(heard.system, [{ message, status: 'error', extension: 'system', channel }])

  await opened.client.setAuth((await world.fetchTicket(alice)).jwt)
  const again = subscribe(opened, topicOf(ticket))
  await untilStatus(again, 'SUBSCRIBED')
  const second = await world.send(carol, alice)
  assert.deepEqual(await untilWakes(again, 1), [second])
  assert.deepEqual([heard.wakes.length, opened.connectionCount], [1, 1])
}

async function survivesRestart(world: World): Promise<void> {
  const { alice, carol } = world.agents
  const { heard } = await world.join(await world.fetchTicket(alice))
  await world.restart()
  await untilStatus(heard, 'SUBSCRIBED', 2)
  const id = await world.send(carol, alice)
  assert.deepEqual(await untilWakes(heard, 1), [id])
  assert.match(heard.statuses.join(), /^SUBSCRIBED,CHANNEL_ERROR: socket closed: 1012,SUBSCRIBED$/)
}

/** The client keeps its URL for good: nobody renews what stands in it. */
async function survivesItsTicket(world: World): Promise<void> {
  const { alice, carol } = world.agents
  const issued = await world.fetchTicket(alice)
  const ticket = await world.age(issued, issued.jwt_expires_in - SHORT_SECONDS)
  const accessToken = async () => (await world.fetchTicket(alice)).jwt
  const opened = world.open(ticket, { accessToken, heartbeatIntervalMs: HEARTBEAT_MS })
  await opened.client.setAuth()
  const heard = subscribe(opened, topicOf(ticket))
  await untilStatus(heard, 'SUBSCRIBED')
  await sleep(SHORT_SECONDS * 1000)
  await assert.rejects(world.shorten(ticket.jwt, SHORT_SECONDS), /Token has expired/)
  await world.restart()
  await untilStatus(heard, 'SUBSCRIBED', 2)
  const id = await world.send(carol, alice)
  assert.deepEqual(await untilWakes(heard, 1), [id])
  assert.equal(opened.params.apikey, ticket.apikey)
}

/** Without a token the client sends its apikey in place of one, and Realtime does so for a join without any. */
async function hearsNothingByApikey(world: World): Promise<void> {
  const { alice, carol } = world.agents
  const ticket = await world.fetchChangesTicket(alice)
  const topic = topicOf(ticket)
  const opened = world.open(ticket)
  const refused = subscribe(opened, topic)
  const open = subscribe(opened, { name: 'realtime:open', config: { ...topic.config, private: false } })
  await untilChangesLive(open)
  await until(refused, ({ statuses }) => statuses.length > 0)
  const listening = await world.join(ticket)
  await untilChangesLive(listening.heard)
  const id = await world.send(carol, alice)
  await untilWakes(listening.heard, 1)
  await untilChanges(listening.heard, 1)
  await sleep(2 * CHANGES_POLL_MS)
  assert.equal(refused.statuses[0], cannotRead(nameOf(topic)))
  assert.deepEqual([open.statuses, open.wakes, open.changes, refused.changes], [['SUBSCRIBED'], [], [], []])
  assertNothingLeaked(opened, [id])
}

/** An apikey of ours lives for a day at most; whoever runs for longer changes it together with the token. */
async function renewsApikey(world: World): Promise<void> {
  const { alice, carol } = world.agents
  const ticket = await world.fetchTicket(alice)
  const accessToken = async () => {
    const fresh = await world.fetchTicket(alice)
    opened.params.apikey = fresh.apikey
    return fresh.jwt
  }
  const apikey = await world.shorten(ticket.apikey, SHORT_SECONDS)
  const opened = world.open({ ...ticket, apikey }, { accessToken, heartbeatIntervalMs: HEARTBEAT_MS })
  await opened.client.setAuth()
  opened.params.apikey = apikey
  const heard = subscribe(opened, topicOf(ticket))
  await untilStatus(heard, 'SUBSCRIBED')
  await sleep(SHORT_SECONDS * 1000)
  await world.restart()
  await untilStatus(heard, 'SUBSCRIBED', 2)
  const id = await world.send(carol, alice)
  assert.deepEqual(await untilWakes(heard, 1), [id])
}

/** Without `await setAuth()` the client sends its join before it has asked for a token. */
async function joinsTooEarly(world: World): Promise<void> {
  const { alice, carol } = world.agents
  const ticket = await world.fetchTicket(alice)
  const opened = world.open(ticket, { accessToken: async () => (await world.fetchTicket(alice)).jwt })
  const heard = subscribe(opened, topicOf(ticket))
  await untilStatus(heard, 'SUBSCRIBED')
  const id = await world.send(carol, alice)
  assert.deepEqual(await untilWakes(heard, 1), [id])
  assert.deepEqual(heard.statuses, [cannotRead(nameOf(topicOf(ticket))), 'SUBSCRIBED'])
}

async function hearsReplay(world: World): Promise<void> {
  const { alice, bob, carol } = world.agents
  const since = Date.now() - 60_000
  const missed = [await world.send(carol, alice), await world.send(carol, alice)]
  await world.send(carol, bob)
  const ticket = await world.fetchTicket(alice)
  const { name, config } = topicOf(ticket)
  const broadcast = { ...config.broadcast, replay: { since, limit: 10 } }
  const opened = world.open(ticket)
  await opened.client.setAuth(ticket.jwt)
  const heard = subscribe(opened, { name, config: { ...config, broadcast } })
  await untilWakes(heard, 2)
  const live = await world.send(carol, alice)
  await untilWakes(heard, 3)
  const metas = heard.wakes.map(({ meta }) => meta)
  assert.deepEqual(metas, [...missed.map((id) => ({ id, replayed: true })), { id: live }])
}

async function hearsItsInserts(world: World): Promise<void> {
  const { alice, bob } = world.agents
  const toAlice = await world.join(await world.fetchChangesTicket(alice))
  const toBob = await world.join(await world.fetchChangesTicket(bob))
  await untilChangesLive(toAlice.heard)
  await untilChangesLive(toBob.heard)
  const sent = await sendToBoth(world)
  const heard = { alice: await untilChanges(toAlice.heard, 5), bob: await untilChanges(toBob.heard, 5) }
  assert.deepEqual(heard, sent)
  const [first] = toAlice.heard.changes
  assert.ok(first)
  const { new: record, commit_timestamp: committedAt, ...rest } = first
  const table = { schema: 'patchcord', table: 'agent_messages' }
  assert.deepEqual(rest, { ...table, eventType: 'INSERT', old: {}, errors: null })
  assert.match(committedAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  const names = { namespace_id: alice.namespace, from_agent: 'carol', to_agent: 'alice' }
  const expected = { id: sent.alice[0], ...names, to_agent_uuid: alice.agentId, kind: 'message', thread: null }
  assert.deepEqual(pick(record, Object.keys(expected)), expected)
  assertNothingLeaked(toAlice.opened, sent.bob)
  const channel = nameOf(topicOf(await world.fetchTicket(alice)))
  const live = { message: 'Subscribed to PostgreSQL', status: 'ok', extension: 'postgres_changes', channel }
  assert.deepEqual([toAlice.heard.statuses, toAlice.heard.system], [['SUBSCRIBED'], [live]])
}

function pick(record: Record<string, unknown>, keys: string[]): Record<string, unknown> {
  return Object.fromEntries(keys.map((key) => [key, record[key]]))
}

async function keepsHearingInserts(world: World): Promise<void> {
  const { alice, carol } = world.agents
  const { opened, heard } = await world.join(await world.fetchChangesTicket(alice))
  await untilChangesLive(heard)
  await opened.client.setAuth(await world.shorten((await world.fetchTicket(alice)).jwt, 300))
  await untilChangesLive(heard, 2)
  const first = await world.send(carol, alice)
  await untilChanges(heard, 1)
  await world.restart()
  await untilChangesLive(heard, 3)
  const second = await world.send(carol, alice)
  assert.deepEqual(await untilChanges(heard, 2), [first, second])
}

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { sendMessage } from '../../server/domain/messages.ts'
import { listSecurityEvents } from '../../server/domain/security-log.ts'
import { issueToken, listTokens } from '../../server/domain/tokens.ts'
import { type Answer, call, type TestApp, type TestAppOptions } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { startInstance } from '../helpers/instance.ts'
import { sendRaw, toolCall } from '../helpers/mcp.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

/** A bucket that does not fill while the test runs, however slow the machine. */
const NO_REFILL = { sendPerSecond: 0.000001 }
const LEASE = { session: 's', client: 'c', machine: 'm', announced: [] }

/** Two whole servers on one database: what one of them has counted, the other knows. */
describe('limits hold across instances', () => {
  let database: TestDatabase
  before(async () => {
    database = await createTestDatabase()
  })
  after(() => database.drop())

  async function startTwo(t: { after(close: () => Promise<void>): void }, limits: TestAppOptions['limits'] = {}) {
    const apps = await Promise.all([1, 2].map(() => startInstance(database, { limits: { ...NO_REFILL, ...limits } })))
    t.after(async () => {
      await Promise.all(apps.map((app) => app.close()))
    })
    return apps as [TestApp, TestApp]
  }

  /** One report each, by turns over the instances, all at once. */
  const sendAll = (apps: TestApp[], senders: SeededAgent[], count: number, to = 'bob'): Promise<Answer[]> =>
    Promise.all(
      Array.from({ length: count }, (_, index) =>
        call(apps[index % apps.length] as TestApp, 'POST', '/api/messages', {
          token: (senders[Math.floor(index / 2) % senders.length] as SeededAgent).token,
          body: { to, content: `${index}`, kind: 'report' },
        }),
      ),
    )

  const tallyOf = (answers: Answer[]): Record<string, number> => {
    const tally: Record<string, number> = {}
    for (const { status, json } of answers) {
      const key = `${status} ${json.error?.code ?? ''}`.trim()
      tally[key] = (tally[key] ?? 0) + 1
    }
    return tally
  }

  test('of 50 sends at once over two instances against a bucket of 30, exactly 30 pass', async (t) => {
    const apps = await startTwo(t)
    const { alice, bob } = await seed(database, 'bucket', ['alice', 'bob'])
    assert.deepEqual(tallyOf(await sendAll(apps, [alice], 50)), { '201': 30, '429 rate_limited': 20 })
    const rows = await database.admin`select from patchcord.agent_messages where to_agent_uuid = ${bob.agentId}`
    assert.equal(rows.length, 30)
  })

  test('of 50 sends of five agents at once against an inbox with room for ten, exactly ten pass; the rest hear why', async (t) => {
    const apps = await startTwo(t)
    const names = ['alice', 'bob', 'carol', 'dave', 'eve', 'frank'] as const
    const { bob, ...senders } = await seed(database, 'cap', names)
    await plantNew(senders.alice, bob, 990)
    const answers = await sendAll(apps, Object.values(senders), 50)
    assert.deepEqual(tallyOf(answers), { '201': 10, '429 inbox_full': 40 })
    const refused = answers.find(({ status }) => status === 429)
    assert.match(refused?.json.error.message, /^Not sent: the inbox of bob is full\.$/)
    assert.equal(refused?.headers.get('retry-after'), '60')
    const [count] = await database.admin`
      select count(*)::int as new from patchcord.deliveries where to_agent_uuid = ${bob.agentId} and state = 'new'`
    assert.equal(count?.new, 1_000)
    // A list is all or nothing, and a note to oneself needs no room.
    const list = await sendAll(apps, [senders.alice], 1, 'carol, bob')
    assert.deepEqual(tallyOf(list), { '429 inbox_full': 1 })
    await bob((scope) => sendMessage(scope, { to: 'bob', content: 'note' }))
    await bob((scope) => fetchInbox(scope, {}))
    assert.deepEqual(tallyOf(await sendAll(apps, [senders.carol], 1)), { '201': 1 })
  })

  /** Many messages that nobody has fetched, past every limit. */
  async function plantNew(from: SeededAgent, to: SeededAgent, count: number): Promise<void> {
    await database.admin`
      with body as (
        insert into patchcord.message_bodies (from_namespace_uuid, from_agent_uuid, content)
        select ${from.namespaceId}, ${from.agentId}, 'x' from generate_series(1, ${count}) returning id
      ), message as (
        insert into patchcord.agent_messages (id, from_namespace_uuid, to_namespace_uuid, from_agent_uuid, to_agent_uuid,
          namespace_id, from_agent, to_agent, kind, urgency, wake_at)
        select body.id, ${from.namespaceId}, ${from.namespaceId}, ${from.agentId}, ${to.agentId}, ${from.namespace},
          ${from.agent}, ${to.agent}, 'report', 'normal', statement_timestamp()
        from body returning id, to_agent_uuid, from_agent_uuid, wake_at
      )
      insert into patchcord.deliveries (message_id, to_agent_uuid, from_agent_uuid, wake_at) select * from message`
  }

  test('the hundredth refused call within a minute bans the token for five minutes, on every instance and for every call', async (t) => {
    const apps = await startTwo(t, { sendBurst: 1 })
    const { alice } = await seed(database, 'ban', ['alice', 'bob'])
    const other = await issueToken(database.admin, { namespace: 'ban', agent: 'alice', label: 'other' })
    assert.deepEqual(tallyOf(await sendAll(apps, [alice], 100)), { '201': 1, '429 rate_limited': 99 })
    assert.equal((await call(apps[0], 'GET', '/api/whoami', alice)).status, 200, '99 were refused')
    const [last] = await sendAll(apps, [alice], 1)
    assert.match(last?.json.error.message, /^This token is banned until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\.$/)

    const until = Date.parse(last?.json.error.message.slice(27, 47))
    assert.ok(Math.abs(until - Date.now() - 300_000) < 30_000)
    for (const app of apps) {
      const answers = [
        await call(app, 'GET', '/api/whoami', alice),
        await call(app, 'PUT', '/api/lease', { token: alice.token, body: LEASE }),
        ...(await sendAll([app], [alice], 1)),
      ]
      for (const { status, headers, json } of answers) {
        assert.deepEqual([status, json.error.code], [429, 'rate_limited'])
        const seconds = Number(headers.get('retry-after'))
        assert.ok(seconds > 250 && seconds <= 300, `${seconds}`)
        assert.match(json.error.message, /^This token is banned until /)
      }
      const mcp = await sendRaw(app, { token: alice.token, ...toolCall('legacy', 1, 'inbox', {}) })
      assert.equal(mcp.status, 429)
      assert.match(mcp.text, /banned until/)
      assert.ok(Number(mcp.headers['retry-after']) > 250)
    }
    assert.equal((await call(apps[0], 'GET', '/api/whoami', other)).status, 200, 'another token of the agent goes on')

    const tokens = await listTokens(database.admin, { namespace: 'ban' })
    const banned = tokens.filter(({ banned_until }) => banned_until !== null).map(({ id }) => id)
    assert.deepEqual(banned, [alice.tokenId])
    const events = (await listSecurityEvents(database.admin)).filter(({ event }) => event === 'token_banned')
    assert.deepEqual(
      events.map(({ namespace, agent, token_id, by_role }) => [namespace, agent, token_id, by_role]),
      [['ban', 'alice', alice.tokenId, 'patchcord_api']],
    )
    await database.admin`
      update patchcord.tokens set banned_until = clock_timestamp() - interval '1 s', bucket = 5 where id = ${alice.tokenId}`
    assert.deepEqual(tallyOf(await sendAll(apps, [alice], 1)), { '201': 1 })
    assert.ok(
      (await listTokens(database.admin, { namespace: 'ban' })).every(({ banned_until }) => banned_until === null),
    )
  })

  test('refusals of more than a minute do not add up, and calls that pass between them do not take them back', async (t) => {
    const apps = await startTwo(t, { sendBurst: 1, refusalsPerMinuteMax: 10 })
    const { alice, bob } = await seed(database, 'minute', ['alice', 'bob'])
    assert.deepEqual(tallyOf(await sendAll(apps, [alice, bob], 10, 'bob, alice')), { '201': 2, '429 rate_limited': 8 })
    const isBanned = async (agent: SeededAgent) => (await call(apps[1], 'GET', '/api/whoami', agent)).status === 429
    await database.admin`update patchcord.tokens set bucket = 1 where id = any (${[alice.tokenId, bob.tokenId]}::uuid[])`
    await sendAll(apps, [bob], 7, 'alice')
    assert.equal(await isBanned(bob), false, '9 were refused')
    await sendAll(apps, [bob], 1, 'alice')
    assert.equal(await isBanned(bob), true, 'the one that passed between them changes nothing')
    await sendAll(apps, [alice], 5)
    await database.admin`
      update patchcord.tokens set refused_since = refused_since - interval '61 s' where id = ${alice.tokenId}`
    await sendAll(apps, [alice], 9)
    assert.equal(await isBanned(alice), false, '9 were refused within a minute')
    await sendAll(apps, [alice], 1)
    assert.equal(await isBanned(alice), true)
  })

  test('waits over the cap of an agent count too', async (t) => {
    const [here] = await startTwo(t, { waitersPerAgentMax: 1, refusalsPerMinuteMax: 3 })
    const { alice } = await seed(database, 'waits', ['alice'])
    const wait = () =>
      sendRaw(here, { token: alice.token, ...toolCall('legacy', 1, 'wait_for_message', { timeout_seconds: 20 }) })
    const first = wait()
    while ([...here.deps.waiters.agentIds()].length === 0) await new Promise((resolve) => setTimeout(resolve, 5))
    for (let i = 0; i < 3; i++) assert.match((await wait()).text, /already waits 1 times/)
    assert.equal((await wait()).status, 429)
    here.deps.waiters.close()
    assert.match((await first).text, /restarting/)
  })
})

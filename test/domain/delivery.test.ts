import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { listAgents } from '../../server/domain/agents.ts'
import { getMessageStatus, settleMessage, unsendMessage } from '../../server/domain/delivery.ts'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { sendMessage } from '../../server/domain/messages.ts'
import { endLease, renewLease } from '../../server/domain/presence.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const LEASE = { session: 's1', client: 'claude-code', machine: 'laptop' }

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())

const status = (who: SeededAgent, message_id: string) => who((scope) => getMessageStatus(scope, { message_id }))

test('the sender sees each observed step with its time, and no step that was not observed', async () => {
  const { alice, bob } = await seed(database, 'steps', ['alice', 'bob'])
  const { message_id: id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
  const steps = async () => (await status(alice, id)).recipients[0]?.steps.map((each) => each.step)
  assert.deepEqual(await steps(), ['accepted'])
  await bob((scope) => renewLease(scope, { ...LEASE, announced: [id] }))
  assert.deepEqual(await steps(), ['accepted', 'notified'])
  await bob((scope) => fetchInbox(scope, {}))
  assert.deepEqual(await steps(), ['accepted', 'notified', 'fetched'])
  await bob((scope) => settleMessage(scope, { message_id: id, state: 'done' }))
  assert.deepEqual(await steps(), ['accepted', 'notified', 'fetched', 'done'])
})

test('a stranger, a colleague and an unknown id get the same answer', async () => {
  const { alice, carol } = await seed(database, 'strangers', ['alice', 'bob', 'carol'])
  const { eve } = await seed(database, 'strangers-2', ['eve'])
  const { message_id: id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
  const unknown = '01900000-0000-7000-8000-000000000000'
  const errors = await Promise.all(
    [status(carol, id), status(eve, id), status(carol, unknown)].map((each) => each.catch((error) => error.message)),
  )
  assert.equal(new Set(errors).size, 1)
  assert.equal(errors[0], 'There is no such message.')
})

test('a message can be taken back only while it is new, and then its recipient never sees it', async () => {
  const { alice, bob, carol } = await seed(database, 'unsend', ['alice', 'bob', 'carol'])
  const { message_id } = await alice((scope) => sendMessage(scope, { to: 'bob, carol', content: 'oops' }))
  await bob((scope) => fetchInbox(scope, {}))
  const unsent = await alice((scope) => unsendMessage(scope, { message_id }))
  assert.deepEqual(unsent.recipients, [
    { agent: 'bob', state: 'open' },
    { agent: 'carol', state: 'unsent' },
  ])
  assert.equal((await carol((scope) => fetchInbox(scope, {}))).new.length, 0)
  await assert.rejects(status(carol, message_id), { code: 'not_found' })
  await assert.rejects(
    bob((scope) => unsendMessage(scope, { message_id })),
    { code: 'not_found' },
  )
  const second = await alice((scope) => sendMessage(scope, { to: 'carol', content: 'seen' }))
  await carol((scope) => fetchInbox(scope, {}))
  await assert.rejects(
    alice((scope) => unsendMessage(scope, { message_id: second.message_id })),
    { code: 'conflict' },
  )
})

test('an agent is wakeable while a lease lives, online after a call, and the evidence is shown', async () => {
  const { alice, bob } = await seed(database, 'lease', ['alice', 'bob', 'carol'])
  const reach = async (name: string) =>
    (await alice((scope) => listAgents(scope, { all: true }))).agents.find((agent) => agent.agent === name)
  assert.equal((await reach('bob'))?.reach, 'offline')
  await bob((scope) => renewLease(scope, { ...LEASE, announced: [] }))
  const live = await reach('bob')
  assert.deepEqual([live?.reach, live?.client, live?.machine], ['wakeable', 'claude-code', 'laptop'])
  await database.admin`
    update patchcord.leases set expires_at = clock_timestamp() where agent_uuid = ${bob.agentId}`
  assert.equal((await reach('bob'))?.reach, 'online')
  await bob((scope) => renewLease(scope, { ...LEASE, announced: [] }))
  await bob((scope) => endLease(scope, { session: 's1' }))
  assert.equal((await reach('bob'))?.reach, 'online')
  const here = await alice((scope) => listAgents(scope, {}))
  assert.deepEqual([here.agents.map((agent) => agent.agent), here.offline_left_out], [['alice', 'bob'], 1])
})

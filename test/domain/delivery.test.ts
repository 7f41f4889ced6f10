import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { listAgents } from '../../server/domain/agents.ts'
import { getMessageStatus, settleMessage, unsendMessage } from '../../server/domain/delivery.ts'
import { fetchInbox, waitForMessage } from '../../server/domain/inbox.ts'
import { createLeaseBatch } from '../../server/domain/lease.ts'
import { replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { endLease, renewLease } from '../../server/domain/presence.ts'
import { createBus } from '../../server/wakes/bus.ts'
import { createWaiters } from '../../server/wakes/waiters.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { DEFAULT_LIMITS, type SeededAgent, seed } from '../helpers/seed.ts'

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

/** The steps of a message with its one recipient, by name, each with its time. */
const stepsOf = async (who: SeededAgent, message_id: string) =>
  (await status(who, message_id)).recipients[0]?.steps ?? []
const namesOf = (steps: { step: string }[]) => steps.map(({ step }) => step)

test('deferred, answered and resolved each keep their own time', async () => {
  const { alice, bob } = await seed(database, 'times', ['alice', 'bob'])
  const { message_id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
  await bob((scope) => fetchInbox(scope, {}))
  await bob((scope) => replyToMessage(scope, { message_id, defer: true }))
  const [deferred] = (await stepsOf(alice, message_id)).slice(-1)
  assert.equal(deferred?.step, 'deferred')
  await bob((scope) => settleMessage(scope, { message_id, state: 'deferred' }))
  await bob((scope) => replyToMessage(scope, { message_id, content: 'y' }))
  const [answered] = (await stepsOf(alice, message_id)).slice(-1)
  assert.equal(answered?.step, 'answered')
  await bob((scope) => replyToMessage(scope, { message_id, resolve: true }))
  const steps = await stepsOf(alice, message_id)
  assert.deepEqual(namesOf(steps), ['accepted', 'fetched', 'deferred', 'answered', 'resolved'])
  assert.deepEqual(steps.slice(2, 4), [deferred, answered])
  assert.equal((await status(alice, message_id)).recipients[0]?.state, 'resolved')
  const times = steps.map(({ at }) => at)
  assert.deepEqual([...times].sort(), times)
})

test('a message that is done and then resolved was done first, and an answer that comes twice keeps the first time', async () => {
  const { alice, bob } = await seed(database, 'twice', ['alice', 'bob'])
  const { message_id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
  await bob((scope) => fetchInbox(scope, {}))
  await bob((scope) => settleMessage(scope, { message_id, state: 'done' }))
  const done = await stepsOf(alice, message_id)
  await bob((scope) => replyToMessage(scope, { message_id, content: 'y' }))
  const answered = await stepsOf(alice, message_id)
  assert.deepEqual(namesOf(answered), ['accepted', 'fetched', 'done', 'answered'])
  assert.deepEqual(answered.slice(0, 3), done)
  assert.equal((await status(alice, message_id)).recipients[0]?.state, 'done')
  await bob((scope) => replyToMessage(scope, { message_id, content: 'once more' }))
  assert.deepEqual(await stepsOf(alice, message_id), answered)
  await bob((scope) => replyToMessage(scope, { message_id, resolve: true }))
  assert.deepEqual(namesOf(await stepsOf(alice, message_id)), ['accepted', 'fetched', 'done', 'answered', 'resolved'])
})

test('an answer is a step whatever the message is by then: resolved in silence, or deferred with a word', async () => {
  const { alice, bob } = await seed(database, 'answers', ['alice', 'bob'])
  const send = () => alice((scope) => sendMessage(scope, { to: 'bob', content: 'x', kind: 'report' }))
  const [resolved, deferred] = [(await send()).message_id, (await send()).message_id]
  await bob((scope) => fetchInbox(scope, {}))
  await bob((scope) => replyToMessage(scope, { message_id: resolved, resolve: true }))
  await bob((scope) => replyToMessage(scope, { message_id: resolved, content: 'after all' }))
  assert.deepEqual(namesOf(await stepsOf(alice, resolved)), ['accepted', 'fetched', 'resolved', 'answered'])
  await bob((scope) => replyToMessage(scope, { message_id: deferred, content: 'tomorrow', defer: true }))
  const [, , , answered] = await stepsOf(alice, deferred)
  assert.equal(answered?.step, 'answered')
  assert.equal((await status(alice, deferred)).recipients[0]?.state, 'deferred')
  await bob((scope) => replyToMessage(scope, { message_id: deferred, content: 'now' }))
  const steps = await stepsOf(alice, deferred)
  assert.deepEqual(namesOf(steps), ['accepted', 'fetched', 'deferred', 'answered'])
  assert.deepEqual(steps[3], answered)
  assert.equal((await status(alice, deferred)).recipients[0]?.state, 'answered')
})

test('an answer that is taken back unread was none: what it answered is as it was before, or has the other answer', async () => {
  const { alice, bob } = await seed(database, 'back', ['alice', 'bob'])
  const send = () => alice((scope) => sendMessage(scope, { to: 'bob', content: 'x', kind: 'report' }))
  const ids = [await send(), await send(), await send(), await send()].map((sent) => sent.message_id)
  const [, deferred, done, twice] = ids as [string, string, string, string]
  await bob((scope) => fetchInbox(scope, {}))
  await bob((scope) => replyToMessage(scope, { message_id: deferred, defer: true }))
  await bob((scope) => settleMessage(scope, { message_id: done, state: 'done' }))
  const before = await Promise.all(ids.map((id) => status(alice, id)))
  const answer = async (message_id: string) =>
    (await bob((scope) => replyToMessage(scope, { message_id, content: 'y' }))).sent?.message_id as string
  const kept = await answer(twice)
  const first = await stepsOf(alice, twice)
  for (const id of ids) {
    const message_id = await answer(id)
    assert.ok(namesOf(await stepsOf(alice, id)).includes('answered'))
    await bob((scope) => unsendMessage(scope, { message_id }))
  }
  const after = await Promise.all(ids.map((id) => status(alice, id)))
  assert.deepEqual(after.slice(0, 3), before.slice(0, 3))
  assert.deepEqual([after[3]?.recipients[0]?.state, await stepsOf(alice, twice)], ['answered', first])
  assert.deepEqual((await bob((scope) => fetchInbox(scope, {}))).counts, { new: 0, open: 1, deferred: 1 })
  await alice((scope) => fetchInbox(scope, {}))
  await assert.rejects(
    bob((scope) => unsendMessage(scope, { message_id: kept })),
    { code: 'conflict' },
  )
  assert.deepEqual(await stepsOf(alice, twice), first)
})

test('a note to oneself was deferred and fetched by nobody', async () => {
  const { alice } = await seed(database, 'note', ['alice'])
  const { message_id } = await alice((scope) => sendMessage(scope, { to: 'alice', content: 'x' }))
  assert.deepEqual(namesOf(await stepsOf(alice, message_id)), ['accepted', 'deferred'])
  await alice((scope) => settleMessage(scope, { message_id, state: 'done' }))
  assert.deepEqual(namesOf(await stepsOf(alice, message_id)), ['accepted', 'deferred', 'done'])
})

test('a line that is reported after the fetch is no step: it may have been written after it', async () => {
  const { alice, bob } = await seed(database, 'late', ['alice', 'bob'])
  const { message_id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
  await bob((scope) => fetchInbox(scope, {}))
  await bob((scope) => renewLease(scope, { ...LEASE, announced: [message_id] }))
  assert.deepEqual(namesOf(await stepsOf(alice, message_id)), ['accepted', 'fetched'])
})

test('a report that was asked for before the fetch and stored after it is a step, at the time it was asked for', async () => {
  const { alice, bob, carol } = await seed(database, 'batched', ['alice', 'bob', 'carol'])
  const send = async () =>
    (await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x', kind: 'report' }))).message_id
  const [line, unsent] = [await send(), await send()]
  const batch = createLeaseBatch(database.api, { intervalMs: 600 })
  await batch.renew(carol.tokenHash, { ...LEASE, announced: [] })
  const report = batch.renew(bob.tokenHash, { ...LEASE, announced: [line, unsent] })
  await sleep(100)
  await alice((scope) => unsendMessage(scope, { message_id: unsent }))
  await bob((scope) => fetchInbox(scope, {}))
  assert.deepEqual(namesOf(await stepsOf(alice, line)), ['accepted', 'fetched'], 'the batch still waits')
  await report
  await batch.close()
  const steps = await stepsOf(alice, line)
  assert.deepEqual(namesOf(steps), ['accepted', 'notified', 'fetched'])
  assert.ok((steps[1]?.at ?? '') < (steps[2]?.at ?? ''))
  assert.deepEqual(namesOf(await stepsOf(alice, unsent)), ['accepted', 'notified', 'unsent'])
})

test('a line that is reported after the deadline is no step, also before a sweep has seen it', async () => {
  const { alice, bob } = await seed(database, 'overdue', ['alice', 'bob'])
  const { message_id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x', expires_in: 60 }))
  await database.admin`
    update patchcord.deliveries set expires_at = clock_timestamp() where message_id = ${message_id}`
  await sleep(20)
  await bob((scope) => renewLease(scope, { ...LEASE, announced: [message_id] }))
  assert.deepEqual(namesOf(await stepsOf(alice, message_id)), ['accepted'])
  await database.api`select patchcord.read_back(60, null)`
  assert.deepEqual(namesOf(await stepsOf(alice, message_id)), ['accepted', 'expired'])
})

test('only what is still new wakes anybody later', async () => {
  const { alice, bob } = await seed(database, 'held', ['alice', 'bob', 'carol', 'dave'])
  const send = () =>
    alice((scope) => sendMessage(scope, { to: 'bob, carol', content: 'x', kind: 'report', idempotency_key: 'k' }))
  const { message_id } = await send()
  await database.admin`
    update patchcord.deliveries set held = true, wake_at = clock_timestamp() + interval '10 min'
    where message_id = ${message_id}`
  const heldOf = ({ recipients }: { recipients: { agent: string; held_until: string | null }[] }) =>
    recipients.filter(({ held_until }) => held_until !== null).map(({ agent }) => agent)
  assert.deepEqual(heldOf(await status(alice, message_id)), ['bob', 'carol'])
  await bob((scope) => fetchInbox(scope, {}))
  assert.deepEqual(heldOf(await status(alice, message_id)), ['carol'])
  assert.deepEqual(heldOf(await send()), ['carol'])
  await alice((scope) => unsendMessage(scope, { message_id }))
  assert.deepEqual([...heldOf(await status(alice, message_id)), ...heldOf(await send())], [])
})

test('a line that is reported again keeps its first time', async () => {
  const { alice, bob } = await seed(database, 'again', ['alice', 'bob'])
  const { message_id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
  const report = () => bob((scope) => renewLease(scope, { ...LEASE, announced: [message_id] }))
  await report()
  const first = await stepsOf(alice, message_id)
  assert.deepEqual(namesOf(first), ['accepted', 'notified'])
  await report()
  assert.deepEqual(await stepsOf(alice, message_id), first)
})

test('a wait that took the wake and answers with the message notifies; a fetch through no wake does not', async () => {
  const waiters = createWaiters(DEFAULT_LIMITS)
  const { alice, bob } = await seed(database, 'wait', ['alice', 'bob'], { bus: createBus(waiters) })
  const wait = () =>
    bob((scope) => waitForMessage(scope, waiters, { timeout_seconds: 60 }, new AbortController().signal))
  const before = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'before', kind: 'report' }))
  assert.equal((await wait()).message?.content, 'before')
  assert.deepEqual(namesOf(await stepsOf(alice, before.message_id)), ['accepted', 'fetched'])

  const waiting = wait()
  while ([...waiters.agentIds()].length === 0) await sleep(5)
  await sleep(100)
  const during = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'during', kind: 'report' }))
  assert.equal((await waiting).message?.content, 'during')
  const steps = await stepsOf(alice, during.message_id)
  assert.deepEqual(namesOf(steps), ['accepted', 'notified', 'fetched'])
  assert.ok((steps[1]?.at ?? '') <= (steps[2]?.at ?? ''))
})

test('a wait that is woken by one message and answers with another has notified of neither', async () => {
  const waiters = createWaiters(DEFAULT_LIMITS)
  const { alice, bob } = await seed(database, 'other', ['alice', 'bob'], { bus: createBus(waiters) })
  const waiting = bob((scope) => waitForMessage(scope, waiters, { timeout_seconds: 60 }, new AbortController().signal))
  while ([...waiters.agentIds()].length === 0) await sleep(5)
  await sleep(100)
  const silent = { ...alice.scope, bus: createBus(createWaiters(DEFAULT_LIMITS)) }
  const urgent = await sendMessage(silent, { to: 'bob', content: 'urgent', urgency: 'urgent', kind: 'report' })
  const normal = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'normal', kind: 'report' }))
  assert.equal((await waiting).message?.message_id, urgent.message_id)
  assert.deepEqual(namesOf(await stepsOf(alice, urgent.message_id)), ['accepted', 'fetched'])
  assert.deepEqual(namesOf(await stepsOf(alice, normal.message_id)), ['accepted'])
})

test('a send that comes again under its key tells what has become of the message since', async () => {
  const { alice, bob } = await seed(database, 'replayed', ['alice', 'bob', 'carol'])
  const send = () =>
    alice((scope) => sendMessage(scope, { to: 'bob, carol', content: 'x', idempotency_key: 'k', expires_in: 60 }))
  const first = await send()
  await bob((scope) => fetchInbox(scope, {}))
  await bob((scope) => renewLease(scope, { ...LEASE, announced: [] }))
  const { recipients, replayed, ...same } = await send()
  assert.deepEqual({ recipients: first.recipients, replayed: false, ...same }, first)
  assert.equal(replayed, true)
  assert.deepEqual(
    recipients.map(({ agent, state, reach }) => [agent, state, reach]),
    [
      ['bob', 'open', 'wakeable'],
      ['carol', 'new', 'offline'],
    ],
  )
})

test('a reply that comes again under its key tells what the message is by now', async () => {
  const { alice, bob } = await seed(database, 'replayed-reply', ['alice', 'bob'])
  const { message_id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
  await bob((scope) => fetchInbox(scope, {}))
  const reply = () => bob((scope) => replyToMessage(scope, { message_id, content: 'y', idempotency_key: 'k' }))
  assert.equal((await reply()).state, 'answered')
  await bob((scope) => replyToMessage(scope, { message_id, resolve: true }))
  const { state, sent } = await reply()
  assert.deepEqual([state, sent?.replayed], ['resolved', true])
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

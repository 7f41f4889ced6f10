import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { fetchInbox, fetchNextMessage, peekInbox, waitForMessage } from '../../server/domain/inbox.ts'
import { replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { revokeToken } from '../../server/domain/tokens.ts'
import { createBus, type Wake } from '../../server/wakes/bus.ts'
import { createWaiters } from '../../server/wakes/waiters.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { DEFAULT_LIMITS, type SeededAgent, seed } from '../helpers/seed.ts'

const PEEK = { status: 'new', limit: 20, count_only: '0' } as const

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())

const report = (from: SeededAgent, to: string, content: string, urgency: 'fyi' | 'normal' | 'urgent' = 'normal') =>
  from((scope) => sendMessage(scope, { to, content, urgency, kind: 'report' }))

test('20 new messages are shown at once, urgent first, then oldest; the rest are counted and stay new', async () => {
  const { alice, bob } = await seed(database, 'page', ['alice', 'bob'], { limits: { sendBurst: 100 } })
  for (let i = 0; i < 24; i++) await report(alice, 'bob', `n${i}`)
  await report(alice, 'bob', 'now!', 'urgent')
  const first = await bob((scope) => fetchInbox(scope, {}))
  assert.deepEqual(
    first.new.map((message) => message.content),
    ['now!', ...Array.from({ length: 19 }, (_, i) => `n${i}`)],
  )
  assert.equal(first.new_left, 5)
  assert.deepEqual(first.counts, { new: 25, open: 0, deferred: 0 })
  const second = await bob((scope) => fetchInbox(scope, {}))
  assert.deepEqual(
    second.new.map((message) => message.content),
    ['n19', 'n20', 'n21', 'n22', 'n23'],
  )
})

test('one answer stays within its size whatever the texts are, and always shows at least one message', async () => {
  const { alice, bob } = await seed(database, 'size', ['alice', 'bob'])
  for (let i = 0; i < 6; i++) await report(alice, 'bob', '漢'.repeat(9_000))
  const sizes: number[] = []
  for (let left = 6; left > 0; ) {
    const inbox = await bob((scope) => fetchInbox(scope, { done: [] }))
    sizes.push(inbox.new.length)
    left = inbox.new_left
  }
  assert.deepEqual(sizes, [1, 1, 1, 1, 1, 1])
})

test('what was fetched within a minute is shown in full again, later as one line', async () => {
  const { alice, bob } = await seed(database, 'again', ['alice', 'bob'])
  const { message_id: id } = await report(alice, 'bob', 'did you get this?')
  await bob((scope) => fetchInbox(scope, {}))
  const second = await bob((scope) => fetchInbox(scope, {}))
  assert.equal(second.again[0]?.content, 'did you get this?')
  assert.ok((second.again[0]?.shown_seconds_ago ?? -1) >= 0)
  assert.deepEqual([second.open.length, second.open_left, second.counts.open], [0, 0, 1])
  await database.admin`
    update patchcord.deliveries set fetched_at = fetched_at - interval '61 s' where message_id = ${id}`
  const third = await bob((scope) => fetchInbox(scope, {}))
  assert.deepEqual([third.again.length, third.open[0]?.preview], [0, 'did you get this?'])
})

test('done settles what was shown, and says so for each id; a new or foreign one is left alone', async () => {
  const { alice, bob, carol } = await seed(database, 'done', ['alice', 'bob', 'carol'])
  const shown = await report(alice, 'bob', 'one')
  await bob((scope) => fetchInbox(scope, {}))
  const unseen = await report(alice, 'bob', 'two')
  const foreign = await report(alice, 'carol', 'three')
  const ids = [shown.message_id, unseen.message_id, foreign.message_id]
  const inbox = await bob((scope) => fetchInbox(scope, { done: ids }))
  assert.deepEqual(
    inbox.settled.map((each) => each.state),
    ['done', 'new', null],
  )
  assert.deepEqual(
    inbox.new.map((message) => message.content),
    ['two'],
  )
  assert.equal((await carol((scope) => fetchInbox(scope, {}))).new.length, 1)
})

test('a peek changes nothing, shows no new text, and counts due messages only', async () => {
  const { alice, bob } = await seed(database, 'peek', ['alice', 'bob'])
  const due = await report(alice, 'bob', 'secret text')
  const held = await report(alice, 'bob', 'held')
  await database.admin`
    update patchcord.deliveries set wake_at = clock_timestamp() + interval '1 hour' where message_id = ${held.message_id}`
  for (let i = 0; i < 2; i++) {
    const peek = await bob((scope) => peekInbox(scope, PEEK))
    assert.equal(peek.pending_count, 1)
    assert.deepEqual(peek.pending, [{ message_id: due.message_id, from: 'alice', sent_at: due.sent_at }])
  }
  const count = await bob((scope) => peekInbox(scope, { ...PEEK, limit: 0, count_only: '1' }))
  assert.equal(count.pending.length, 1)
  await bob((scope) => fetchInbox(scope, {}))
  assert.equal((await bob((scope) => peekInbox(scope, PEEK))).pending_count, 0)
  const open = await bob((scope) => peekInbox(scope, { ...PEEK, status: 'open' }))
  assert.deepEqual(
    open.pending.map((each) => each.preview),
    ['secret text', 'held'],
  )
})

test('next takes one message of the sender or thread that was named', async () => {
  const { alice, bob, carol } = await seed(database, 'next', ['alice', 'bob', 'carol'])
  await report(alice, 'bob', 'from alice')
  await report(carol, 'bob', 'from carol')
  assert.equal((await bob((scope) => fetchNextMessage(scope, { from: 'carol' })))?.content, 'from carol')
  assert.equal(await bob((scope) => fetchNextMessage(scope, { from: 'carol@next' })), null)
  await assert.rejects(
    bob((scope) => fetchNextMessage(scope, { from: 'carol@elsewhere' })),
    { code: 'not_found' },
  )
  assert.equal(await bob((scope) => fetchNextMessage(scope, { thread: 'none' })), null)
  assert.equal((await bob((scope) => fetchNextMessage(scope, {})))?.content, 'from alice')
  await assert.rejects(
    bob((scope) => fetchNextMessage(scope, { from: 'carl' })),
    { code: 'not_found', hint: 'Did you mean carol?' },
  )
})

test('a wait ends with the message that comes, and its wake reaches no listener', async () => {
  const waiters = createWaiters(DEFAULT_LIMITS)
  const bus = createBus(waiters)
  const delivered: Wake[] = []
  bus.addSink({ deliver: (wake) => delivered.push(wake), agentIds: () => [] })
  const { alice, bob } = await seed(database, 'wait', ['alice', 'bob'], { bus })
  const signal = new AbortController().signal
  const waiting = bob((scope) => waitForMessage(scope, waiters, { timeout_seconds: 60 }, signal))
  while ([...waiters.agentIds()].length === 0) await new Promise((resolve) => setTimeout(resolve, 5))
  await report(alice, 'bob', 'wake up')
  const waited = await waiting
  assert.deepEqual([waited.end, waited.message?.content, delivered.length], ['message', 'wake up', 0])
  assert.deepEqual([...waiters.agentIds()], [])
})

test('a wake that a wait took and does not answer with goes to the listener: after another message, and after a failure', async () => {
  const waiters = createWaiters(DEFAULT_LIMITS)
  const bus = createBus(waiters)
  const delivered: string[] = []
  bus.addSink({ deliver: (wake) => delivered.push(wake.id), agentIds: () => [] })
  const { alice, bob } = await seed(database, 'wait-gives-back', ['alice', 'bob'], { bus })
  const signal = new AbortController().signal
  const begin = async () => {
    const waiting = bob((scope) => waitForMessage(scope, waiters, { timeout_seconds: 60 }, signal))
    while ([...waiters.agentIds()].length === 0) await new Promise((resolve) => setTimeout(resolve, 5))
    return waiting.catch((error) => error)
  }
  // Two messages in one commit after the other: the wait is woken by the first and fetches the urgent one.
  const first = begin()
  await new Promise((resolve) => setTimeout(resolve, 100))
  const silent = { ...alice.scope, bus: createBus(createWaiters(DEFAULT_LIMITS)) }
  const urgent = await sendMessage(silent, { to: 'bob', content: 'urgent', urgency: 'urgent', kind: 'report' })
  const normal = await report(alice, 'bob', 'normal')
  assert.equal((await first).message?.message_id, urgent.message_id)
  assert.deepEqual(delivered, [normal.message_id])
  await bob((scope) => fetchInbox(scope, {}))

  const second = begin()
  await new Promise((resolve) => setTimeout(resolve, 100))
  await revokeToken(database.admin, bob.tokenId)
  const lost = await report(alice, 'bob', 'for whoever listens')
  assert.equal((await second).code, 'token_revoked')
  assert.deepEqual(delivered, [normal.message_id, lost.message_id])
})

test('a wait ends at its time-out, at shutdown and when its caller goes, and leaves no waiter behind', async () => {
  const waiters = createWaiters(DEFAULT_LIMITS)
  const { bob } = await seed(database, 'wait-ends', ['bob'], { bus: createBus(waiters) })
  const wait = (timeout_seconds: number, signal: AbortSignal) =>
    bob((scope) => waitForMessage(scope, waiters, { timeout_seconds }, signal))
  const gone = new AbortController()
  assert.equal((await wait(1, new AbortController().signal)).end, 'timeout')
  const aborted = wait(60, gone.signal)
  setTimeout(() => gone.abort(), 50)
  assert.equal((await aborted).end, 'aborted')
  const closing = wait(60, new AbortController().signal)
  setTimeout(() => waiters.close(), 50)
  assert.equal((await closing).end, 'restarting')
  assert.deepEqual([...waiters.agentIds()], [])
})

test('a deferred message stays in the inbox until it is answered', async () => {
  const { alice, bob } = await seed(database, 'defer', ['alice', 'bob'])
  const { message_id } = await report(alice, 'bob', 'later please')
  await bob((scope) => fetchInbox(scope, {}))
  await bob((scope) => replyToMessage(scope, { message_id, defer: true }))
  const inbox = await bob((scope) => fetchInbox(scope, {}))
  assert.deepEqual([inbox.counts.deferred, inbox.deferred[0]?.preview], [1, 'later please'])
  assert.equal(alice.wakes.length + bob.wakes.length, 1)
  await bob((scope) => replyToMessage(scope, { message_id, content: 'now' }))
  assert.equal((await bob((scope) => fetchInbox(scope, {}))).counts.deferred, 0)
})

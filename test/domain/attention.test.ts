import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { fetchInbox, type InboxMessage } from '../../server/domain/inbox.ts'
import { replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { reportPresence } from '../../server/domain/presence.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())

const send = (from: SeededAgent, to: string, content = 'x', kind: 'message' | 'report' = 'message') =>
  from((scope) => sendMessage(scope, { to, content, kind }))

test('the gate refuses once with the unread messages, which are fetched by that, and then opens', async () => {
  const { alice, bob } = await seed(database, 'gate', ['alice', 'bob'])
  await send(bob, 'alice', 'stop, I found it')
  const refusal = await send(alice, 'bob', 'do it').catch((error) => error)
  assert.equal(refusal.code, 'gated')
  const [shown] = refusal.details.messages as InboxMessage[]
  assert.equal(shown?.content, 'stop, I found it')
  assert.equal((await send(alice, 'bob', 'do it anyway')).recipients.length, 1)
  assert.equal((await alice((scope) => fetchInbox(scope, {}))).again.length, 1)
})

test('a gated recipient refuses the whole list; a report and a star do not gate', async () => {
  const { alice, bob, carol } = await seed(database, 'gate-list', ['alice', 'bob', 'carol'])
  await send(bob, 'alice', 'unread')
  assert.equal((await send(alice, '*')).recipients.length, 2)
  assert.equal((await send(alice, 'bob', 'x', 'report')).recipients.length, 1)
  await assert.rejects(send(alice, 'carol, bob'), { code: 'gated' })
  assert.equal((await carol((scope) => fetchInbox(scope, {}))).new.length, 1)
})

/** Every way to mark a message, but for what the gate is not about: a report and a star. */
const MARKED = (['fyi', 'normal', 'urgent'] as const).flatMap((urgency) =>
  (['message', 'question', 'heads-up', 'request', 'report'] as const).map((kind) => ({ urgency, kind })),
)

test('no mark of a message opens the gate, passes the rate or gets into a full inbox', async () => {
  const { alice, bob, carol } = await seed(database, 'marks', ['alice', 'bob', 'carol'], {
    limits: { sendBurst: 100, sendPerSecond: 0.001, newPerRecipientMax: 1, refusalsPerMinuteMax: 10_000 },
  })
  const sendMarked = (from: SeededAgent, to: string, mark: (typeof MARKED)[number], index: number) =>
    from((scope) =>
      sendMessage(scope, { to, content: 'x', ...mark, thread: 'marks', expires_in: 60, idempotency_key: `k${index}` }),
    ).then(
      () => 'sent',
      (error) => error.code,
    )
  for (const [index, mark] of MARKED.entries()) {
    if (mark.kind === 'report') continue
    await bob((scope) => sendMessage(scope, { to: 'alice', content: 'read me first', kind: 'report' }))
    assert.equal(await sendMarked(alice, 'bob', mark, index), 'gated', JSON.stringify(mark))
  }
  await send(carol, 'bob')
  for (const [index, mark] of MARKED.entries()) {
    assert.equal(await sendMarked(alice, 'bob', mark, index), 'inbox_full', JSON.stringify(mark))
  }
  assert.equal((await bob((scope) => fetchInbox(scope, {}))).new.length, 1)
  while ((await sendMarked(alice, 'bob', { urgency: 'fyi', kind: 'report' }, Math.random())) !== 'rate_limited');
  await bob((scope) => fetchInbox(scope, {}))
  for (const [index, mark] of MARKED.entries()) {
    assert.equal(await sendMarked(alice, 'bob', mark, index), 'rate_limited', JSON.stringify(mark))
  }
})

test('the rate is 30 at once; the 31st is told when to come back, and a gated send costs too', async () => {
  const { alice, bob } = await seed(database, 'rate', ['alice', 'bob'])
  await send(bob, 'alice', 'unread')
  await assert.rejects(send(alice, 'bob'), { code: 'gated' })
  for (let i = 0; i < 29; i++) await send(alice, 'bob')
  const refused = await send(alice, 'bob').catch((error) => error)
  assert.equal(refused.code, 'rate_limited')
  assert.ok(refused.retryAfterSeconds >= 1 && refused.retryAfterSeconds <= 2)
})

test('a full inbox refuses in words, and stores nothing', async () => {
  const { alice, bob } = await seed(database, 'full', ['alice', 'bob'], { limits: { newPerRecipientMax: 3 } })
  for (let i = 0; i < 3; i++) await send(alice, 'bob')
  await assert.rejects(send(alice, 'bob'), { code: 'inbox_full' })
  await bob((scope) => fetchInbox(scope, {}))
  await send(alice, 'bob')
})

test('a send to everybody leaves out whose inbox is full and names them; with all of them full it is refused', async () => {
  const limits = { newPerRecipientMax: 2 }
  const { alice, bob, carol } = await seed(database, 'full-star', ['alice', 'bob', 'carol'], { limits })
  for (let i = 0; i < 2; i++) await send(alice, 'bob')
  const star = () => alice((scope) => sendMessage(scope, { to: '*', content: 'all', idempotency_key: 'k' }))
  const sent = await star()
  assert.deepEqual(
    sent.recipients.map(({ agent }) => agent),
    ['carol'],
  )
  assert.deepEqual(sent.left_out, [{ agent: 'bob', reason: 'inbox_full' }])
  assert.deepEqual((await star()).left_out, sent.left_out, 'and again under its key')
  await assert.rejects(send(alice, 'carol, bob'), { code: 'inbox_full' })
  assert.equal((await carol((scope) => fetchInbox(scope, {}))).new.length, 1)
  assert.equal((await bob((scope) => fetchInbox(scope, {}))).new.length, 2)
  for (const to of ['bob', 'bob', 'carol', 'carol']) await send(alice, to)
  const refused = await send(alice, '*').catch((error) => error)
  assert.deepEqual([refused.code, refused.details?.full], ['inbox_full', ['bob', 'carol']])
})

/** Ping-pong until a message is held; how many were sent before that one. */
async function playUntilHeld(one: SeededAgent, other: SeededAgent): Promise<number> {
  let sent = await send(one, other.agent)
  const players = [other, one]
  for (let count = 1; count < 100; count++) {
    if (sent.recipients[0]?.held_until) return count - 1
    const player = players[(count - 1) % 2] as SeededAgent
    const { message_id } = sent
    await player((scope) => fetchInbox(scope, {}))
    const reply = await player((scope) => replyToMessage(scope, { message_id, content: 'pong' }))
    assert.ok(reply.sent)
    sent = reply.sent
  }
  throw new Error('nothing was held')
}

test('past 60 turns of a pair that reported no person, and past 20 of one that did, a message is stored and wakes nobody', async () => {
  const limits = { sendBurst: 1000 }
  const unattended = await seed(database, 'loop', ['alice', 'bob'], { limits })
  assert.equal(await playUntilHeld(unattended.alice, unattended.bob), 61)
  const { alice, bob } = await seed(database, 'loop-attended', ['alice', 'bob'], { limits })
  await alice((scope) => reportPresence(scope, { state: 'busy', human_prompt: true }))
  assert.equal(await playUntilHeld(alice, bob), 21)
  for (const agent of [alice, bob]) await agent((scope) => fetchInbox(scope, {}))
  const before = alice.wakes.length
  await send(alice, 'bob', 'held too')
  assert.equal(alice.wakes.length, before, 'a further message the same way is held')
  await send(alice, 'bob', 'report', 'report')
  assert.equal(alice.wakes.length, before + 1, 'a report goes through')
  await bob((scope) => reportPresence(scope, { state: 'busy', human_prompt: true }))
  await send(alice, 'bob', 'fresh')
  assert.equal(alice.wakes.length, before + 2, 'a person on either side gives a fresh budget')
})

test('many messages in one direction are no loop', async () => {
  const { alice, bob } = await seed(database, 'one-way', ['alice', 'bob'], {
    limits: { sendBurst: 1000, turnsMax: 2 },
  })
  await bob((scope) => reportPresence(scope, { state: 'busy', human_prompt: true }))
  for (let i = 0; i < 10; i++) assert.equal((await send(alice, 'bob')).recipients[0]?.held_until, null)
})

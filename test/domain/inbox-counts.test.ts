import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { settleMessage, settleMessages, unsendMessage } from '../../server/domain/delivery.ts'
import { fetchInbox, peekInbox } from '../../server/domain/inbox.ts'
import { replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { renewLease } from '../../server/domain/presence.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const LEASE = { session: 's1', client: 'claude-code', machine: 'laptop' }

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())

const report = async (from: SeededAgent, to: string, content: string) =>
  (await from((scope) => sendMessage(scope, { to, content, kind: 'report' }))).message_id

/** What a hook counts, what it lists, and the count alone, of one state: all the same, or it fails. */
async function countOf(who: SeededAgent, status: 'new' | 'open' | 'deferred'): Promise<string[]> {
  const peek = (more: { limit: number; count_only: '0' | '1' }) => who((scope) => peekInbox(scope, { status, ...more }))
  const [listed, counted] = [await peek({ limit: 100, count_only: '0' }), await peek({ limit: 0, count_only: '1' })]
  const ids = listed.pending.map((each) => each.message_id)
  assert.deepEqual(
    counted.pending.map((each) => each.message_id),
    ids,
  )
  assert.deepEqual([listed.pending_count, counted.pending_count], [ids.length, ids.length])
  return ids
}

/** A message in every state in which one can be, and in some two; the ids of those that wait. */
async function fill(alice: SeededAgent, bob: SeededAgent) {
  const settled: string[] = []
  for (const state of ['done', 'deferred'] as const) {
    const id = await report(alice, 'bob', state)
    await bob((scope) => fetchInbox(scope, {}))
    await bob((scope) => settleMessage(scope, { message_id: id, state }))
    settled.push(id)
  }
  for (const state of ['answered', 'resolved', 'open'] as const) {
    const id = await report(alice, 'bob', state)
    await bob((scope) => fetchInbox(scope, {}))
    const resolve = state === 'resolved'
    if (state !== 'open') await bob((scope) => replyToMessage(scope, { message_id: id, content: 'x', resolve }))
    settled.push(id)
  }
  const note = (await bob((scope) => sendMessage(scope, { to: 'bob', content: 'a note' }))).message_id
  // Sent to bob, and by him: what a resolve tells waits silently.
  const asked = await report(bob, 'alice', 'closed by alice')
  await alice((scope) => fetchInbox(scope, {}))
  await alice((scope) => replyToMessage(scope, { message_id: asked, content: 'closed', resolve: true }))
  const unsent = await report(alice, 'bob', 'unsent')
  await alice((scope) => unsendMessage(scope, { message_id: unsent }))
  const expired = await report(alice, 'bob', 'expired')
  await database.admin`
    update patchcord.deliveries set expires_at = clock_timestamp() - interval '1 s' where message_id = ${expired}`
  const fresh = [await report(alice, 'bob', 'new'), await report(alice, 'bob', 'announced')]
  await bob((scope) => renewLease(scope, { ...LEASE, announced: fresh.slice(1) }))
  return { fresh, open: settled.slice(4), deferred: [settled[1] as string, note] }
}

test('what is counted is what is listed and what is shown, in every state, and nothing is counted for ever', async () => {
  const { alice, bob } = await seed(database, 'count', ['alice', 'bob'])
  const { fresh, open, deferred } = await fill(alice, bob)
  assert.deepEqual(await countOf(bob, 'new'), fresh)
  assert.deepEqual(await countOf(bob, 'open'), open)
  assert.deepEqual((await countOf(bob, 'deferred')).sort(), [...deferred].sort())
  const inbox = await bob((scope) => fetchInbox(scope, {}))
  assert.deepEqual(
    inbox.new.map((message) => message.message_id),
    fresh,
  )
  assert.deepEqual([inbox.counts, inbox.new_left], [{ new: 2, open: 1, deferred: 2 }, 0])
  assert.deepEqual(await countOf(bob, 'new'), [], 'a hook has nothing more to tell')
  assert.deepEqual((await countOf(bob, 'open')).length, 3)
  const all = [...fresh, ...open, ...deferred]
  const end = await bob((scope) => fetchInbox(scope, { done: all }))
  assert.deepEqual(end.counts, { new: 0, open: 0, deferred: 0 })
  for (const state of ['new', 'open', 'deferred'] as const) assert.deepEqual(await countOf(bob, state), [])
})

test('an empty list of ids is no message, and never all of them', async () => {
  const { alice, bob } = await seed(database, 'none', ['alice', 'bob'])
  const [seen, unseen] = [await report(alice, 'bob', 'seen'), 'unseen']
  await bob((scope) => fetchInbox(scope, {}))
  await report(alice, 'bob', unseen)
  await bob((scope) => settleMessages(scope, { message_ids: [], state: 'done' }))
  await bob((scope) => renewLease(scope, { ...LEASE, announced: [] }))
  assert.deepEqual(await countOf(bob, 'open'), [seen])
  assert.equal((await countOf(bob, 'new')).length, 1)
  const [row] = await database.admin`
    select count(*) filter (where notified_at is not null) as notified, count(*) filter (where done_at is not null) as done
    from patchcord.deliveries where to_agent_uuid = ${bob.agentId}`
  assert.deepEqual({ ...row }, { notified: 0, done: 0 })
  const inbox = await bob((scope) => fetchInbox(scope, { done: [] }))
  assert.deepEqual([inbox.settled, inbox.counts], [[], { new: 1, open: 1, deferred: 0 }])
})

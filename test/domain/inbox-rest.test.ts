import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Scope } from '../../server/db/scope.ts'
import { createAgent, listAgents } from '../../server/domain/agents.ts'
import { fetchInbox, type Inbox } from '../../server/domain/inbox.ts'
import { recallMessages, replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { hashToken, issueToken } from '../../server/domain/tokens.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const LIMITS = { limits: { sendBurst: 1_000, newPerRecipientMax: 1_000 } }

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())

const report = async (from: SeededAgent, to: string, content: string) =>
  (await from((scope) => sendMessage(scope, { to, content, kind: 'report' }))).message_id

const fetchOf = async (who: SeededAgent) => await who((scope) => fetchInbox(scope, {}))

/** `who` has resolved one message of `from` for each of these texts. */
async function resolveAll(who: SeededAgent, from: SeededAgent, texts: string[]): Promise<string[]> {
  const ids: string[] = []
  for (const content of texts) {
    const message_id = await report(from, who.agent, 'please')
    await fetchOf(who)
    await who((scope) => replyToMessage(scope, { message_id, resolve: true, content }))
    ids.push(message_id)
  }
  return ids
}

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => String(from + index))
const contentsOf = (messages: Inbox['new']) => messages.map(({ content }) => content)

test('an inbox among hundreds of agents is that of its caller, names who is near, and counts all others', async () => {
  const { alice } = await seed(database, 'crowd', ['alice'])
  await database.admin`
    insert into patchcord.agents (namespace_uuid, name) select ${alice.namespaceId}, 'a' || i from generate_series(1, 620) i`
  const join = async (name: string): Promise<Scope> => {
    await createAgent(database.admin, { namespace: 'crowd', name })
    const { token } = await issueToken(database.admin, { namespace: 'crowd', agent: name })
    return { ...alice.scope, tokenHash: hashToken(token) }
  }
  const [yan, zoe] = [await join('yan'), await join('zoe')]
  await report(alice, 'zoe', 'from alice')
  await sendMessage(yan, { to: 'zoe', content: 'from yan', kind: 'report' })
  const inbox = await fetchInbox(zoe, {})
  assert.deepEqual(contentsOf(inbox.new), ['from alice', 'from yan'])
  assert.deepEqual([inbox.you.agent, inbox.you.is_you, inbox.you.reach], ['zoe', true, 'online'])
  const names = inbox.agents.map(({ agent, reach, is_you }) => `${agent} ${reach} ${is_you}`)
  assert.deepEqual(names, ['alice online false', 'yan online false'])
  assert.deepEqual([inbox.offline_left_out, inbox.agents_left_out], [620, 0])
  const all = await fetchInbox(zoe, { all_agents: true })
  assert.deepEqual(
    all.agents.slice(0, 2).map(({ agent }) => agent),
    ['alice', 'yan'],
  )
  assert.deepEqual([all.offline_left_out, all.agents.length + all.agents_left_out], [0, 622])
  const listed = await listAgents(zoe, { all: true })
  assert.equal(listed.agents.length, 623)
  assert.deepEqual(
    listed.agents.filter(({ is_you }) => is_you).map(({ agent }) => agent),
    ['zoe'],
  )
})

test('notices of resolves fill no inbox', async () => {
  const { alice, bob, carol } = await seed(database, 'unfilled', ['alice', 'bob', 'carol'], {
    limits: { newPerRecipientMax: 3 },
  })
  await resolveAll(bob, alice, ['1', '2', '3', '4'])
  for (const content of ['a', 'b', 'c']) await report(carol, 'alice', content)
  await assert.rejects(report(carol, 'alice', 'd'), { code: 'inbox_full' })
  const { new: fresh, notices } = await fetchOf(alice)
  assert.deepEqual([fresh.length, notices.length], [3, 4])
})

test('notices are shown five at a time, each once, and the rest are counted', async () => {
  const { alice, bob } = await seed(database, 'five', ['alice', 'bob'], LIMITS)
  await resolveAll(bob, alice, numbers(0, 12))
  const pages: [string[], number][] = []
  for (let page = 0; page < 4; page++) {
    const { notices, notices_left: left, counts } = await fetchOf(alice)
    assert.equal(counts.new, 0)
    pages.push([notices.map(({ content }) => content), left])
  }
  assert.deepEqual(pages, [
    [numbers(0, 5), 7],
    [numbers(5, 10), 2],
    [numbers(10, 12), 0],
    [[], 0],
  ])
})

test('what is resolved already tells its sender nothing more, even when it is resolved twice at once', async () => {
  const { alice, bob } = await seed(database, 'twice', ['alice', 'bob'], LIMITS)
  const message_id = await report(alice, 'bob', 'please')
  await fetchOf(bob)
  const resolve = (content?: string) =>
    bob((scope) => replyToMessage(scope, { message_id, resolve: true, ...(content && { content }) }))
  const ends = await Promise.allSettled(numbers(0, 6).map((content) => resolve(content)))
  const refused = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason.code] : []))
  assert.deepEqual(refused, Array(5).fill('conflict'))
  await assert.rejects(resolve('once more'), { code: 'conflict' })
  assert.equal((await resolve()).state, 'resolved')
  const { notices, notices_left: left } = await fetchOf(alice)
  assert.deepEqual([notices.length, left], [1, 0])
  // It is no end of the talk: an answer is a message.
  await bob((scope) => replyToMessage(scope, { message_id, content: 'after all' }))
  assert.deepEqual(contentsOf((await fetchOf(alice)).new), ['after all'])
})

test('a long text of a resolve is cut with its length, and recall shows the rest', async () => {
  const { alice, bob } = await seed(database, 'long', ['alice', 'bob'], LIMITS)
  const text = numbers(0, 600).join(' ')
  await resolveAll(bob, alice, ['short', text])
  const [short, long] = (await fetchOf(alice)).notices
  assert.deepEqual([short?.content, short?.content_length], ['short', 5])
  assert.deepEqual([long?.content, long?.content_length], [text.slice(0, 500), text.length])
  const rest = { message_id: long?.message_id as string, offset: 500 }
  const recalled = await alice((scope) => recallMessages(scope, rest))
  assert.equal(recalled.messages[0]?.content, text.slice(500))
})

test('a notice for which there is no room stays new, and none is empty', async () => {
  const { alice, bob } = await seed(database, 'room', ['alice', 'bob'], LIMITS)
  const texts = numbers(0, 8).map((number) => `${number} ${'漢'.repeat(450)}`)
  await resolveAll(bob, alice, texts)
  for (let page = 0; page < 3; page++) await report(bob, 'alice', '漢'.repeat(9_000))
  const seen: string[] = []
  for (let page = 0; page < 8; page++) {
    const { new: fresh, notices, notices_left: left } = await fetchOf(alice)
    if (fresh.length > 0) assert.ok(notices.length < 5, `${notices.length} beside a full page`)
    for (const { content } of notices) assert.ok(content.length >= 100, `${content.length} characters`)
    seen.push(...notices.map(({ content }) => content.slice(0, 1)))
    assert.equal(seen.length + left, 8)
  }
  assert.deepEqual(seen, numbers(0, 8))
})

test('who lost an answer sees in the next ones what it showed, not what an earlier one did', async () => {
  const { alice, bob } = await seed(database, 'lost', ['alice', 'bob'], LIMITS)
  for (const content of numbers(0, 42)) await report(alice, 'bob', content)
  assert.deepEqual(contentsOf((await fetchOf(bob)).new), numbers(0, 20))
  assert.deepEqual(contentsOf((await fetchOf(bob)).new), numbers(20, 40), 'lost')
  const third = await fetchOf(bob)
  assert.deepEqual([contentsOf(third.new), contentsOf(third.again)], [numbers(40, 42), numbers(22, 40)])
  const fourth = await fetchOf(bob)
  assert.deepEqual([contentsOf(fourth.again), fourth.open_left], [numbers(22, 42), 22])
})

test('of what was shown within one second the latest is shown again first, where not all of it has room', async () => {
  const { alice, bob } = await seed(database, 'second', ['alice', 'bob'], LIMITS)
  // Shown urgent first: what was sent later was shown earlier.
  const early = await report(alice, 'bob', `early ${'漢'.repeat(4_000)}`)
  await database.admin`
    update patchcord.deliveries set wake_at = null where message_id = ${early}`
  const late = await report(alice, 'bob', `late ${'漢'.repeat(4_000)}`)
  await fetchOf(bob)
  await database.admin`
    update patchcord.deliveries set wake_at = clock_timestamp() where message_id = ${early}`
  await fetchOf(bob)
  await database.admin`
    update patchcord.deliveries set fetched_at = date_trunc('second', clock_timestamp()) - interval '2 s' where message_id = ${late}`
  await database.admin`
    update patchcord.deliveries set fetched_at = date_trunc('second', clock_timestamp()) - interval '1.9 s' where message_id = ${early}`
  const { again } = await fetchOf(bob)
  assert.equal(again.at(-1)?.message_id, early)
  assert.ok(
    again.every(({ message_id }) => message_id === early),
    'and the other has no room',
  )
})

test('open lines are the fifty oldest, whatever the order in which they were shown', async () => {
  const { alice, bob } = await seed(database, 'oldest', ['alice', 'bob'], LIMITS)
  for (const content of numbers(0, 60)) await report(alice, 'bob', content)
  for (let page = 0; page < 3; page++) await fetchOf(bob)
  await database.admin`
    update patchcord.deliveries set fetched_at = clock_timestamp() - interval '1 hour' where to_agent_uuid = ${bob.agentId}`
  const { open, open_left: left } = await fetchOf(bob)
  const shown = open.map(({ preview }) => preview)
  assert.deepEqual(shown, numbers(0, shown.length))
  assert.equal(shown.length + left, 60)
  const newest = await bob((scope) => recallMessages(scope, { limit: left }))
  assert.deepEqual(newest.messages.map(({ content }) => content).reverse(), numbers(shown.length, 60))
})

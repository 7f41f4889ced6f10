import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { getMessageStatus, unsendMessage } from '../../server/domain/delivery.ts'
import { fetchInbox, fetchNextMessage, peekInbox, waitForMessage } from '../../server/domain/inbox.ts'
import { recallMessages, replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { call, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { startInstance } from '../helpers/instance.ts'
import { connectMcp, idIn } from '../helpers/mcp.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const PEEK = { status: 'new', limit: 20, count_only: '0' } as const
const SOON_MS = 15_000

/** Two whole servers on one database: both sweep. */
describe('a message that expires', () => {
  let database: TestDatabase
  let here: TestApp
  let there: TestApp
  before(async () => {
    database = await createTestDatabase()
    here = await startInstance(database)
    there = await startInstance(database)
  })
  after(async () => {
    await Promise.all([here.close(), there.close()])
    await database.drop()
  })

  const stateOf = async (agent: SeededAgent, message_id: string) =>
    (await agent((scope) => getMessageStatus(scope, { message_id }))).recipients.map(({ agent, state }) => [
      agent,
      state,
    ])
  const pending = async (agent: SeededAgent) => (await agent((scope) => peekInbox(scope, PEEK))).pending
  const sweep = () => database.api`select patchcord.read_back(60, null) as wakes`
  /** As if its deadline were over. */
  const pass = (id: string) => database.admin`
    update patchcord.deliveries set expires_at = clock_timestamp() - interval '1 ms' where message_id = ${id}`

  async function until(what: string, isTrue: () => Promise<boolean>): Promise<void> {
    const deadline = Date.now() + SOON_MS
    while (!(await isTrue())) {
      if (Date.now() > deadline) assert.fail(`never came true: ${what}`)
      await sleep(20)
    }
  }

  test('unfetched at its deadline it ends with that time, and its sender is woken by one notice of the server', async (t) => {
    const { alice, bob } = await seed(database, 'ends', ['alice', 'bob'])
    const client = await connectMcp(here, alice.token)
    t.after(() => client.close())
    const sent = await client.call('send_message', { to: 'bob', content: 'now or never', expires_in: 1 })
    assert.match(sent.text, /^Sent to bob \[[0-9a-f-]{36}\]: offline, never seen: .*; expires unread in [01] s$/)
    const id = idIn(sent.text)
    const waited = await client.call('wait_for_message', { timeout_seconds: 30 })
    assert.match(waited.text, new RegExp(`^patchcord: expired, \\d+ s ago, in reply to ${id}\\n<message-`))
    assert.match(waited.text, new RegExp(`bob did not fetch message ${id} in time: it has expired`))
    const { recipients } = await alice((scope) => getMessageStatus(scope, { message_id: id }))
    assert.deepEqual(
      recipients[0]?.steps.map(({ step, at }) => [step, Date.parse(at) - Date.parse(sent.facts.sent_at)]),
      [
        ['accepted', 0],
        ['expired', 1_000],
      ],
    )
    assert.deepEqual(await pending(bob), [])
    assert.deepEqual((await bob((scope) => fetchInbox(scope, {}))).counts, { new: 0, open: 0, deferred: 0 })
    assert.deepEqual((await alice((scope) => fetchInbox(scope, {}))).counts, { new: 0, open: 0, deferred: 0 })
    await assert.rejects(
      bob((scope) => recallMessages(scope, { message_id: id })),
      { code: 'not_found' },
    )
    const { json } = await call(there, 'GET', `/api/messages/${id}/status`, alice)
    assert.deepEqual([json.recipients[0].state, json.recipients[0].expires_at], ['expired', null])
  })

  test('from its deadline on it is shown to nobody, also before a sweep has seen it', async () => {
    const { alice, bob } = await seed(database, 'strict', ['alice', 'bob'])
    const { message_id: id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x', expires_in: 600 }))
    assert.equal((await pending(bob)).length, 1)
    await database.admin.begin(async (sql) => {
      // Held, so that no sweep can take it; readers go by what is committed.
      await sql`select from patchcord.message_bodies where id = ${id} for update`
      await pass(id)
      assert.deepEqual(await pending(bob), [])
      assert.equal(await bob((scope) => fetchNextMessage(scope, {})), null)
      assert.equal((await bob((scope) => fetchInbox(scope, {}))).counts.new, 0)
      assert.deepEqual(await stateOf(alice, id), [['bob', 'new']])
      // A gate of it would show its text.
      await bob((scope) => sendMessage(scope, { to: 'alice', content: 'y' }))
    })
    await until('expired', async () => (await stateOf(alice, id))[0]?.[1] === 'expired')
  })

  test('one that was fetched in time does not expire; one notice names all who did not', async () => {
    const { alice, bob, carol } = await seed(database, 'some', ['alice', 'bob', 'carol', 'dave'])
    const { message_id: id } = await alice((scope) =>
      sendMessage(scope, { to: 'bob, carol, dave', content: 'x', thread: 'deploy', expires_in: 600 }),
    )
    await carol((scope) => fetchInbox(scope, {}))
    await pass(id)
    await until('expired', async () => (await stateOf(alice, id))[0]?.[1] === 'expired')
    assert.deepEqual(await stateOf(alice, id), [
      ['bob', 'expired'],
      ['carol', 'open'],
      ['dave', 'expired'],
    ])
    const notice = (await pending(alice))[0]
    assert.deepEqual([(await pending(alice)).length, notice?.from], [1, 'patchcord'])
    // It gates nothing and costs no turn; the text is new to its recipient, so recall does not show it yet.
    await alice((scope) => sendMessage(scope, { to: 'bob', content: 'never mind' }))
    const [pair] = await database.admin`
      select turns from patchcord.pairs where ${alice.agentId} in (low_uuid, high_uuid) and ${bob.agentId} in (low_uuid, high_uuid)`
    assert.equal(pair?.turns, 0)
    await assert.rejects(
      alice((scope) => recallMessages(scope, { message_id: notice?.message_id ?? '' })),
      { code: 'not_found' },
    )
    await assert.rejects(
      alice((scope) => unsendMessage(scope, { message_id: notice?.message_id ?? '' })),
      { code: 'conflict' },
    )
    const [shown] = (await alice((scope) => fetchInbox(scope, {}))).new
    assert.match(shown?.content ?? '', /^bob, dave did not fetch message /)
    assert.deepEqual([shown?.from, shown?.kind, shown?.thread, shown?.reply_to], ['patchcord', 'expired', 'deploy', id])
    // Shown once, and settled by that; nobody reads an answer to it.
    const inbox = await alice((scope) => fetchInbox(scope, {}))
    assert.deepEqual([inbox.new.length, inbox.again.length, inbox.counts.open], [0, 0, 0])
    await assert.rejects(
      alice((scope) => replyToMessage(scope, { message_id: shown?.message_id ?? '', content: 'ok' })),
      { code: 'conflict', message: /notice of the server/ },
    )
    const { messages } = await alice((scope) => recallMessages(scope, { message_id: shown?.message_id }))
    assert.equal(messages[0]?.from, 'patchcord')
  })

  test('while one recipient is just fetching it, a sweep leaves the whole message, and there is one notice in the end', async () => {
    const { alice, bob } = await seed(database, 'busy', ['alice', 'bob', 'carol'])
    const { message_id: id } = await alice((scope) =>
      sendMessage(scope, { to: 'bob, carol', content: 'x', expires_in: 600 }),
    )
    await database.admin`update patchcord.deliveries set expires_at = clock_timestamp() where message_id = ${id}`
    await database.admin.begin(async (sql) => {
      await sql`select from patchcord.deliveries where message_id = ${id} and to_agent_uuid = ${bob.agentId} for update`
      for (let i = 0; i < 3; i++) await sweep()
      const states = (await stateOf(alice, id)).map(([, state]) => state)
      assert.deepEqual(states, ['new', 'new'])
    })
    await sweep()
    assert.deepEqual(
      (await stateOf(alice, id)).map(([, state]) => state),
      ['expired', 'expired'],
    )
    const { new: notices } = await alice((scope) => fetchInbox(scope, {}))
    assert.deepEqual(
      notices.map(({ reply_to }) => reply_to),
      [id],
    )
    assert.match(notices[0]?.content ?? '', /^bob, carol did not fetch/)
  })

  test('however many instances sweep at once, each message gives one notice', async () => {
    const { alice } = await seed(database, 'sweeps', ['alice', 'bob', 'carol'], { limits: { sendBurst: 1_000 } })
    const ids: string[] = []
    for (let i = 0; i < 60; i++) {
      const sent = await alice((scope) => sendMessage(scope, { to: 'bob, carol', content: 'x', expires_in: 600 }))
      ids.push(sent.message_id)
    }
    await database.admin`
      update patchcord.deliveries set expires_at = clock_timestamp() where message_id = any (${ids}::uuid[])`
    await Promise.all(Array.from({ length: 10 }, sweep))
    await sweep()
    const rows = await database.admin`
      select reply_to, count(*)::integer as count from patchcord.agent_messages
      where kind = 'expired' and to_agent_uuid = ${alice.agentId} group by reply_to`
    assert.deepEqual(
      rows.map(({ reply_to, count }) => `${reply_to} ${count}`).sort(),
      ids.map((id) => `${id} 1`).sort(),
    )
    const [states] = await database.admin`
      select array_agg(distinct state) as all from patchcord.deliveries where message_id = any (${ids}::uuid[])`
    assert.deepEqual(states?.all, ['expired'])
  })

  test('a sweep and a fetch at once: each message is either shown or expired with a notice, never both', async () => {
    const { alice, bob } = await seed(database, 'race', ['alice', 'bob'], { limits: { sendBurst: 1_000 } })
    const tally: Record<string, number> = {}
    for (let round = 0; round < 60; round++) {
      const { message_id: id } = await alice((scope) =>
        sendMessage(scope, { to: 'bob', content: 'x', expires_in: 600 }),
      )
      // Both look at the row in the millisecond in which it ends.
      const [, inbox] = await Promise.all([
        database.admin`update patchcord.deliveries set expires_at = clock_timestamp() + interval '2 ms' where message_id = ${id}`,
        sleep(round % 4).then(() => bob((scope) => fetchInbox(scope, {}))),
        sleep(round % 5).then(sweep),
      ])
      await sleep(3)
      await sweep()
      const [state] = (await stateOf(alice, id)).map(([, state]) => state)
      const isShown = inbox.new.some(({ message_id }) => message_id === id)
      const notices = (await alice((scope) => fetchInbox(scope, {}))).new.length
      const key = `${isShown ? 'shown' : 'hidden'} ${state} ${notices}`
      tally[key] = (tally[key] ?? 0) + 1
    }
    const strange = Object.keys(tally).filter((key) => key !== 'shown open 0' && key !== 'hidden expired 1')
    assert.deepEqual(strange, [], JSON.stringify(tally))
  })

  test('a wait for one sender goes on past a notice; a note to oneself does not expire', async () => {
    const { alice } = await seed(database, 'wait-on', ['alice', 'bob'])
    const note = await alice((scope) => sendMessage(scope, { to: 'alice', content: 'note', expires_in: 1 }))
    const sent = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x', expires_in: 1 }))
    const { waiters } = here.deps
    const waiting = { timeout_seconds: 4, from: 'bob' }
    const waited = await waitForMessage(alice.scope, waiters, waiting, new AbortController().signal)
    assert.equal(waited.end, 'timeout')
    assert.deepEqual(await stateOf(alice, sent.message_id), [['bob', 'expired']])
    assert.deepEqual(await stateOf(alice, note.message_id), [['alice', 'deferred']])
  })

  test('expires_in is a whole number of seconds up to 30 days, over REST and MCP', async (t) => {
    const { alice } = await seed(database, 'bounds', ['alice', 'bob'])
    const client = await connectMcp(here, alice.token)
    t.after(() => client.close())
    for (const expires_in of [0, -1, 1.5, '60', 30 * 86_400 + 1]) {
      const body = { to: 'bob', content: 'x', expires_in }
      assert.equal(
        (await call(here, 'POST', '/api/messages', { token: alice.token, body })).status,
        400,
        `${expires_in}`,
      )
      assert.equal((await client.call('send_message', body)).code, 'invalid', `${expires_in}`)
    }
    const body = { to: 'bob', content: 'x', expires_in: 60 }
    const sent = await call(here, 'POST', '/api/messages', { token: alice.token, body })
    assert.equal(sent.status, 201)
    assert.equal(Date.parse(sent.json.expires_at) - Date.parse(sent.json.sent_at), 60_000)
    const status = await client.call('message_status', { message_id: sent.json.message_id })
    assert.match(status.text, /\nbob: new \(accepted [0-9T:.-]+Z\); expires unread in \d+ s$/)
  })
})

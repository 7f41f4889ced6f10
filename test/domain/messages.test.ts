import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { recallMessages, replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { seed } from '../helpers/seed.ts'

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())

test('a message is stored once, wakes its recipient after commit, and is shown with its text', async () => {
  const { alice, bob } = await seed(database, 'store', ['alice', 'bob'])
  const sent = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'hello "é" ✓\nline two' }))
  assert.deepEqual(
    sent.recipients.map(({ agent, reach }) => ({ agent, reach })),
    [{ agent: 'bob', reach: 'offline' }],
  )
  assert.deepEqual(alice.wakes, [
    {
      id: sent.message_id,
      toNamespaceId: bob.namespaceId,
      toAgentId: bob.agentId,
      from: 'alice',
      to: 'bob',
      namespace: 'store',
      kind: 'message',
      urgency: 'normal',
      thread: null,
    },
  ])
  const inbox = await bob((scope) => fetchInbox(scope, {}))
  assert.equal(inbox.new[0]?.content, 'hello "é" ✓\nline two')
  assert.equal(inbox.new[0]?.from, 'alice')
  assert.deepEqual(inbox.counts, { new: 1, open: 0, deferred: 0 })
})

test('a reply settles what it answers, inherits the thread and wakes the asker', async () => {
  const { alice, bob } = await seed(database, 'reply', ['alice', 'bob'])
  const sent = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'why?', thread: 'deploy' }))
  await bob((scope) => fetchInbox(scope, {}))
  const reply = await bob((scope) => replyToMessage(scope, { message_id: sent.message_id, content: 'because' }))
  assert.equal(reply.state, 'answered')
  assert.equal(reply.sent?.thread, 'deploy')
  assert.equal(bob.wakes[0]?.toAgentId, alice.agentId)
  const inbox = await alice((scope) => fetchInbox(scope, {}))
  assert.equal(inbox.new[0]?.reply_to, sent.message_id)
  assert.deepEqual((await bob((scope) => fetchInbox(scope, {}))).counts, { new: 0, open: 0, deferred: 0 })
})

test('an unknown recipient, one of another namespace and a list with one of them are refused whole', async () => {
  const { alice } = await seed(database, 'unknown', ['alice', 'backend'])
  await seed(database, 'elsewhere', ['eve'])
  const refused = async (to: string) => {
    const error = await alice((scope) => sendMessage(scope, { to, content: 'hi' })).catch((thrown) => thrown)
    return { code: error.code, hint: error.hint, message: error.message.replaceAll(/"[^"]+"/g, 'X') }
  }
  assert.match((await refused('backand')).hint, /backend/)
  const foreign = await refused('eve@elsewhere')
  assert.deepEqual(foreign, await refused('nobody@nowhere'))
  const typo = await alice((scope) => sendMessage(scope, { to: 'backend@elsewhere', content: 'hi' })).catch((e) => e)
  assert.match(typo.message, /^Unknown agent "backend@elsewhere"/)
  assert.deepEqual(await refused('eve'), await refused('zzz'))
  assert.equal((await refused('backend, nobody')).code, 'not_found')
  const rows = await database.admin`select 1 from patchcord.agent_messages where from_agent_uuid = ${alice.agentId}`
  assert.equal(rows.length, 0)
})

test('the same idempotency key gives the same answer once, another text under it is a conflict', async () => {
  const { alice, bob } = await seed(database, 'keys', ['alice', 'bob'])
  const send = (content: string) =>
    alice((scope) => sendMessage(scope, { to: 'bob', content, kind: 'report', idempotency_key: 'k1' }))
  const answers = await Promise.all(Array.from({ length: 10 }, () => send('once')))
  assert.equal(new Set(answers.map((answer) => answer.message_id)).size, 1)
  assert.equal(answers.filter((answer) => !answer.replayed).length, 1)
  await assert.rejects(send('twice'), { code: 'conflict' })
  assert.equal((await bob((scope) => fetchInbox(scope, {}))).new.length, 1)
})

test('a refusal does not use up its idempotency key', async () => {
  const { alice, bob } = await seed(database, 'keys-refused', ['alice', 'bob'])
  await bob((scope) => sendMessage(scope, { to: 'alice', content: 'first' }))
  const send = () => alice((scope) => sendMessage(scope, { to: 'bob', content: 'x', idempotency_key: 'k' }))
  await assert.rejects(send(), { code: 'gated' })
  assert.equal((await send()).replayed, false)
})

test('ids that are made within a millisecond differ, on every connection, and sort by their time', async () => {
  const make = () => database.admin`select patchcord.uuid_v7()::text as id from generate_series(1, 5000)`
  const rows = (await Promise.all([make(), make(), make(), make()])).flatMap((each) => [...each])
  const ids = rows.map(({ id }) => id as string)
  assert.equal(new Set(ids).size, 20_000)
  // The first 48 bits are the time.
  const milliseconds = new Set(ids.map((id) => id.slice(0, 13)))
  assert.ok(milliseconds.size * 10 <= ids.length, `${milliseconds.size} milliseconds`)
  const { alice } = await seed(database, 'ids', ['alice', 'bob'])
  const sent: string[] = []
  for (let count = 0; count < 5; count++) {
    sent.push((await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x', kind: 'report' }))).message_id)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  assert.deepEqual([...sent].sort(), sent)
})

test('a message to oneself is a deferred note that wakes nobody', async () => {
  const { alice } = await seed(database, 'note', ['alice'])
  const sent = await alice((scope) => sendMessage(scope, { to: 'alice', content: 'remember' }))
  assert.equal(sent.recipients[0]?.reach, 'self')
  assert.deepEqual(alice.wakes, [])
  const inbox = await alice((scope) => fetchInbox(scope, {}))
  assert.equal(inbox.deferred[0]?.preview, 'remember')
  assert.deepEqual(inbox.counts, { new: 0, open: 0, deferred: 1 })
})

test('a note to oneself has no deadline, whatever was asked; beside others only theirs is told', async () => {
  const { alice } = await seed(database, 'note-deadline', ['alice', 'bob'])
  const send = (to: string) => alice((scope) => sendMessage(scope, { to, content: 'x', expires_in: 60 }))
  assert.equal((await send('alice')).expires_at, null)
  assert.ok((await send('alice, bob')).expires_at)
})

test('a star reaches everyone else in the namespace and nobody outside it', async () => {
  const { alice, bob } = await seed(database, 'star', ['alice', 'bob', 'carol'])
  const { dave } = await seed(database, 'star-other', ['dave'])
  const sent = await alice((scope) => sendMessage(scope, { to: '*', content: 'all' }))
  assert.deepEqual(
    sent.recipients.map((each) => each.agent),
    ['bob', 'carol'],
  )
  assert.equal((await bob((scope) => fetchInbox(scope, {}))).new.length, 1)
  assert.equal((await dave((scope) => fetchInbox(scope, {}))).new.length, 0)
})

test('resolve with text tells the sender in one silent line, shown once; the thread reopens with a new message', async () => {
  const { alice, bob } = await seed(database, 'resolve', ['alice', 'bob'])
  const sent = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'please', thread: 'job' }))
  await bob((scope) => fetchInbox(scope, {}))
  const reply = await bob((scope) =>
    replyToMessage(scope, { message_id: sent.message_id, resolve: true, content: 'done it' }),
  )
  assert.equal(reply.state, 'resolved')
  assert.deepEqual(bob.wakes, [])
  const isResolved = async () =>
    (await database.admin`select resolved_at is not null as yes from patchcord.threads where slug = 'job'`)[0]?.yes
  assert.equal(await isResolved(), true)
  const first = await alice((scope) => fetchInbox(scope, {}))
  assert.deepEqual(
    first.notices.map((notice) => notice.content),
    ['done it'],
  )
  assert.deepEqual((await alice((scope) => fetchInbox(scope, {}))).notices, [])
  await alice((scope) => sendMessage(scope, { to: 'bob', content: 'again', thread: 'job' }))
  assert.equal(await isResolved(), false)
})

test('recall shows what was sent and received, never text that is still new to the caller, and changes nothing', async () => {
  const { alice, bob } = await seed(database, 'recall', ['alice', 'bob'])
  const long = 'x'.repeat(20_000)
  const sent = await alice((scope) => sendMessage(scope, { to: 'bob', content: long, thread: 'long' }))
  assert.deepEqual((await bob((scope) => recallMessages(scope, {}))).messages, [])
  await assert.rejects(
    bob((scope) => recallMessages(scope, { message_id: sent.message_id })),
    { code: 'not_found' },
  )
  const inbox = await bob((scope) => fetchInbox(scope, {}))
  assert.equal(inbox.new[0]?.content.length, 8_000)
  assert.equal(inbox.new[0]?.content_length, 20_000)
  const rest = await bob((scope) => recallMessages(scope, { message_id: sent.message_id, offset: 8_000 }))
  assert.equal(rest.messages[0]?.content.length, 8_000)
  assert.equal(rest.next_offset, 16_000)
  assert.equal((await alice((scope) => recallMessages(scope, { thread: 'long' }))).messages.length, 1)
  const received = await bob((scope) => recallMessages(scope, { from: 'alice@recall' }))
  assert.equal(received.messages.length, 1)
  assert.equal((await bob((scope) => recallMessages(scope, { from: 'alice@other' }))).messages.length, 0)
  const bySender = await alice((scope) => recallMessages(scope, { from: 'bob' }))
  assert.equal(bySender.messages.length, 0)
})

test('a text over the limit, an empty address and a NUL are refused in words', async () => {
  const { alice } = await seed(database, 'bad', ['alice', 'bob'])
  const send = (to: string, content: string) => alice((scope) => sendMessage(scope, { to, content }))
  await assert.rejects(send('bob', 'x'.repeat(50_001)), { code: 'too_large' })
  await assert.rejects(send(' , ', 'x'), { code: 'invalid' })
  await assert.rejects(send('Bob', 'x'), { code: 'invalid', hint: 'Names are lower case: use "bob".' })
  for (const content of ['a\0b', 'half \ud83d a pair', ' \n\t']) {
    await assert.rejects(send('bob', content), { code: 'invalid' })
  }
  await assert.rejects(send('*, bob', 'x'), { code: 'invalid' })
  assert.equal((await send('bob', '💬'.repeat(50_000))).recipients.length, 1)
})

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { connectMcp, type McpClient } from '../helpers/mcp.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const LIMITS = { limits: { sendBurst: 1_000, newPerRecipientMax: 1_000 } }

let database: TestDatabase
let app: TestApp
const clients: McpClient[] = []
before(async () => {
  database = await createTestDatabase()
  app = await startTestApp(database)
})
after(async () => {
  await Promise.all(clients.map((client) => client.close()))
  await app.close()
  await database.drop()
})

const connect = async (agent: SeededAgent) => {
  const client = await connectMcp(app, agent.token)
  clients.push(client)
  return client
}

const report = async (from: SeededAgent, to: string, content: string) =>
  (await from((scope) => sendMessage(scope, { to, content, kind: 'report' }))).message_id

test('an inbox says of a text of a resolve where the rest is, and how many wait behind it', async () => {
  const { alice, bob } = await seed(database, 'resolved', ['alice', 'bob'], LIMITS)
  for (const content of ['x'.repeat(700), '1', '2', '3', '4', '5', '6']) {
    const message_id = await report(alice, 'bob', 'please')
    await bob((scope) => fetchInbox(scope, {}))
    await bob((scope) => replyToMessage(scope, { message_id, resolve: true, content }))
  }
  const client = await connect(alice)
  const first = await client.call('inbox')
  const [long] = first.facts.notices
  assert.equal(long.content_length, 700)
  const rest = `[cut at 500 of 700 characters: recall with message_id ${long.message_id} and offset 500 shows the rest]`
  assert.ok(first.text.includes(`\n${rest}\n`), first.text)
  assert.equal(first.facts.notices_left, 2)
  assert.match(first.text, /\n2 more were resolved: the next inbox shows them\n/)
  const recalled = await client.call('recall', { message_id: long.message_id, offset: 500 })
  assert.match(recalled.text, /\nx{200}\n/)
  const second = await client.call('inbox')
  assert.deepEqual([second.facts.notices.length, second.facts.notices_left], [2, undefined])
  assert.doesNotMatch(second.text, /more were resolved/)
})

test('an inbox that lists the oldest of many open messages says how the others can be seen', async () => {
  const { alice, bob } = await seed(database, 'many', ['alice', 'bob'], LIMITS)
  for (let index = 0; index < 60; index++) await report(alice, 'bob', `n${index}`)
  for (let page = 0; page < 3; page++) await bob((scope) => fetchInbox(scope, {}))
  await database.admin`
    update patchcord.deliveries set fetched_at = clock_timestamp() - interval '1 hour' where to_agent_uuid = ${bob.agentId}`
  const client = await connect(bob)
  const { text, facts } = await client.call('inbox')
  const left = facts.open_left as number
  assert.ok(left >= 10)
  const line = `- ${left} more, later ones: shown here once older ones are settled, and by recall, newest first`
  assert.ok(text.includes(`\n${line}`), text)
  const recalled = await client.call('recall', { limit: Math.min(left, 50) })
  assert.match(recalled.facts.messages[0].content, /n59/)
  const done = facts.open.map(({ message_id }: { message_id: string }) => message_id)
  const next = await client.call('inbox', { done })
  assert.match(next.facts.open[0].preview, new RegExp(`n${60 - left}<`))
})

test('a second resolve is refused in words', async () => {
  const { alice, bob } = await seed(database, 'again', ['alice', 'bob'], LIMITS)
  const message_id = await report(alice, 'bob', 'please')
  const client = await connect(bob)
  await client.call('inbox')
  await client.call('reply', { message_id, resolve: true, content: 'done' })
  const second = await client.call('reply', { message_id, resolve: true, content: 'done' })
  assert.deepEqual([second.isError, second.code], [true, 'conflict'])
  assert.match(second.text, /resolved already\. Nothing was stored\./)
})

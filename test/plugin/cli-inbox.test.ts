import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { startTestApp } from '../helpers/app.ts'
import { createTestDatabase } from '../helpers/database.ts'
import { seed } from '../helpers/seed.ts'
import { Machine } from './command.ts'

test('patchcord inbox says what it leaves out, of each kind, and how to see it', async (context) => {
  const database = await createTestDatabase()
  const app = await startTestApp(database)
  const machine = await Machine.create()
  context.after(async () => {
    await machine.remove()
    await app.close()
    await database.drop()
  })
  const { alice, bob } = await seed(database, 'left', ['alice', 'bob'], { limits: { sendBurst: 1_000 } })
  await database.admin`
    insert into patchcord.agents (namespace_uuid, name) select ${bob.namespaceId}, 'a' || i from generate_series(1, 600) i`
  for (const content of ['x'.repeat(700), '1', '2', '3', '4', '5', '6']) {
    const { message_id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x', kind: 'report' }))
    await bob((scope) => fetchInbox(scope, {}))
    await bob((scope) => replyToMessage(scope, { message_id, resolve: true, content }))
  }
  for (let index = 0; index < 60; index++) {
    await bob((scope) => sendMessage(scope, { to: 'alice', content: `n${index}`, kind: 'report' }))
  }
  await database.admin`
    update patchcord.deliveries set state = 'open', fetched_at = clock_timestamp() - interval '1 hour'
    where to_agent_uuid = ${alice.agentId} and wake_at is not null`
  const env = { PATCHCORD_URL: app.url, PATCHCORD_TOKEN: alice.token }
  const { stdout } = await machine.run(['inbox', '--all'], { env })
  assert.match(stdout, /^\[500 of 700 characters: patchcord recall [0-9a-f-]{36} --offset 500\]$/m)
  assert.match(stdout, /^2 more were resolved: patchcord inbox shows them$/m)
  assert.match(
    stdout,
    /^ {2}\d+ more, later ones: shown here once older ones are settled, and by patchcord recall, newest first$/m,
  )
  assert.match(stdout, /^agents: bob online, .*, \d{2,} more$/m)
})

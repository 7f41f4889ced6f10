import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { foundNamespace, setPaused } from '../../server/domain/namespaces.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { signInOperator } from '../helpers/people.ts'
import { seed } from '../helpers/seed.ts'
import { say } from '../helpers/talk.ts'

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database?.drop())

test('what expires while its namespace is paused makes no notice, whose insert would wake; it comes once it is resumed', async () => {
  const { alice } = await seed(database, 'acme', ['alice', 'bob'])
  const { scope } = await signInOperator(database)
  await foundNamespace(scope, { name: 'other' })
  const id = await say(alice, { to: 'bob', content: 'in time?', kind: 'message', urgency: 'normal', expires_in: 60 })
  await setPaused(scope, { namespace: 'acme', paused: true })
  await database.admin`update patchcord.deliveries set expires_at = clock_timestamp() where message_id = ${id}`

  await database.api`select patchcord.read_back(60, null)`
  assert.deepEqual(await noticesOf(id), [])
  await setPaused(scope, { namespace: 'acme', paused: false })
  const [row] = await database.api`select patchcord.read_back(60, null) as wakes`
  assert.deepEqual(await noticesOf(id), ['alice'])
  const wakes = row?.wakes as { to: string; kind: string }[]
  assert.deepEqual(
    wakes.map(({ to, kind }) => [to, kind]),
    [['alice', 'expired']],
  )
})

async function noticesOf(id: string): Promise<string[]> {
  const rows = await database.admin`select to_agent from patchcord.agent_messages where reply_to = ${id}`
  return rows.map((row) => row.to_agent as string)
}

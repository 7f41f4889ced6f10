import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { createAgent, renameAgent } from '../../server/domain/agents.ts'
import { createNamespace, renameNamespace } from '../../server/domain/namespaces.ts'
import { listSecurityEvents } from '../../server/domain/security-log.ts'
import { hashToken, issueToken, revokeToken, rotateToken } from '../../server/domain/tokens.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())

test('every change of who may enter is noted, in order, with the names of then and no secret', async () => {
  const { admin } = database
  await createNamespace(admin, { name: 'acme' })
  const { id: agentId } = await createAgent(admin, { namespace: 'acme', name: 'bob' })
  const first = await issueToken(admin, { namespace: 'acme', agent: 'bob', label: 'laptop' })
  const second = await rotateToken(admin, { id: first.id })
  await renameAgent(admin, { namespace: 'acme', agent: 'bob', newName: 'robert' })
  await renameNamespace(admin, { name: 'acme', newName: 'apex' })
  await revokeToken(admin, second.id)
  await revokeToken(admin, second.id)
  await admin`update patchcord.tokens set revoked_at = null where id = ${second.id}`
  await admin`update patchcord.agents set deleted_at = clock_timestamp() where id = ${agentId}`
  await admin`delete from patchcord.agents where id = ${agentId}`
  await admin`delete from patchcord.former_names`
  await admin`delete from patchcord.namespaces where name = 'apex'`
  const events = await listSecurityEvents(admin)
  assert.deepEqual(
    events.map(({ event, namespace, agent, token_id, detail }) => [event, namespace, agent, token_id, detail]),
    [
      ['namespace_created', 'acme', null, null, null],
      ['agent_created', 'acme', 'bob', null, null],
      ['token_created', 'acme', 'bob', first.id, 'laptop'],
      ['token_revoked', 'acme', 'bob', first.id, 'laptop'],
      ['token_rotated', 'acme', 'bob', second.id, `laptop in place of ${first.id}`],
      ['agent_renamed', 'acme', 'robert', null, 'was bob'],
      ['namespace_renamed', 'apex', null, null, 'was acme'],
      ['token_revoked', 'apex', 'robert', second.id, 'laptop'],
      ['token_restored', 'apex', 'robert', second.id, 'laptop'],
      ['agent_deleted', 'apex', 'robert', null, null],
      ['agent_deleted', 'apex', 'robert', null, null],
      ['token_deleted', null, null, first.id, 'laptop'],
      ['token_deleted', null, null, second.id, 'laptop'],
      ['namespace_deleted', 'apex', null, null, null],
    ],
  )
  const text = JSON.stringify(events)
  for (const { token } of [first, second]) {
    assert.ok(!text.includes(token) && !text.includes(token.slice(3, 20)) && !text.includes(hashToken(token)))
  }
  assert.deepEqual([...new Set(events.map(({ by_role }) => by_role))], ['postgres'])
})

test('what was not committed is not noted', async () => {
  const before = (await listSecurityEvents(database.admin)).length
  await database.admin
    .begin(async (sql) => {
      await sql`insert into patchcord.namespaces (name) values ('undone')`
      throw new Error('undo')
    })
    .catch(() => undefined)
  assert.equal((await listSecurityEvents(database.admin)).length, before)
})

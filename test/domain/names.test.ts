import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { createAgent } from '../../server/domain/agents.ts'
import { sendMessage } from '../../server/domain/messages.ts'
import { createNamespace } from '../../server/domain/namespaces.ts'
import { hashToken, listRecentRevocations, resolveToken } from '../../server/domain/tokens.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const AGENT_TAKEN = { code: 'conflict', status: 409, message: /^The name \S+ stands in messages of an agent / }
const NAMESPACE_TAKEN = { code: 'conflict', status: 409, message: /^The name \S+ stands in messages of a namespace / }

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())

const rename = async ({ agentId }: SeededAgent, name: string) => {
  await database.admin`update patchcord.agents set name = ${name} where id = ${agentId}`
}
const renameNamespace = async ({ namespaceId }: SeededAgent, name: string) => {
  await database.admin`update patchcord.namespaces set name = ${name} where id = ${namespaceId}`
}
const create = (namespace: string, name: string) => createAgent(database.admin, { namespace, name })
const send = (from: SeededAgent, to: string) => from((scope) => sendMessage(scope, { to, content: 'x' }))

test('a name that was given up is nobody else’s, new or renamed, while messages from or to it exist; elsewhere it is free', async () => {
  const { alice, bob, carol } = await seed(database, 'kept', ['alice', 'bob', 'carol'])
  const { message_id: id } = await send(alice, 'bob')
  await rename(alice, 'alicia')
  await rename(bob, 'robert')
  for (const name of ['alice', 'bob']) {
    await assert.rejects(create('kept', name), AGENT_TAKEN)
    await assert.rejects(rename(carol, name), { code: '23505', message: AGENT_TAKEN.message })
  }
  await seed(database, 'elsewhere', ['alice', 'bob'])
  await database.admin`delete from patchcord.message_bodies where id = ${id}`
  await rename(carol, 'alice')
  await create('kept', 'bob')
})

test('of many who take one name at once exactly one has it; the others hear so, and overwrite nothing', async () => {
  const { alice } = await seed(database, 'taking', ['alice'])
  const { token } = alice
  const taken = await Promise.allSettled(Array.from({ length: 20 }, () => create('taking', 'bob')))
  const codes = taken.map((each) => (each.status === 'fulfilled' ? 'created' : each.reason.code)).sort()
  assert.deepEqual(codes, [...Array.from({ length: 19 }, () => 'conflict'), 'created'])
  const names = ['alice', 'alice', 'carol', 'carol', 'carol']
  await Promise.allSettled(names.map((name) => create('taking', name)))
  const rows = await database.admin`
    select name, id from patchcord.agents where namespace_uuid = ${alice.namespaceId} order by name`
  assert.deepEqual(
    rows.map(({ name }) => name),
    ['alice', 'bob', 'carol'],
  )
  assert.equal(rows[0]?.id, alice.agentId)
  assert.equal((await resolveToken(database.api, hashToken(token))).agentId, alice.agentId)
})

test('a name that was given up is free at once where no message carries it', async () => {
  const { typo, bob } = await seed(database, 'typo', ['typo', 'bob'])
  await rename(typo, 'alice')
  await send(typo, 'bob')
  await create('typo', 'typo')
  await rename(bob, 'robert')
  await assert.rejects(create('typo', 'bob'), AGENT_TAKEN)
})

test('a name that was given up is free for whoever had it', async () => {
  const { alice, bob } = await seed(database, 'back', ['alice', 'bob'])
  await send(alice, 'bob')
  await rename(alice, 'alicia')
  await rename(alice, 'alice')
  await rename(bob, 'robert')
  await send(alice, 'robert')
  await assert.rejects(create('back', 'alice'), { code: 'conflict', message: /exists already/ })
})

test('a name that was given up is nobody else’s for a namespace either, and its agents have to come anew', async () => {
  const { alice } = await seed(database, 'first', ['alice', 'bob'])
  const { eve } = await seed(database, 'second', ['eve'])
  const { silent } = await seed(database, 'unused', ['silent'])
  await send(alice, 'bob')
  await renameNamespace(alice, 'moved')
  await renameNamespace(silent, 'quiet')
  await assert.rejects(createNamespace(database.admin, { name: 'first' }), NAMESPACE_TAKEN)
  await assert.rejects(renameNamespace(eve, 'first'), { code: '23505', message: NAMESPACE_TAKEN.message })
  await renameNamespace(eve, 'unused')
  const recent = await listRecentRevocations(database.api, 60, [])
  const reasonOf = ({ tokenId }: SeededAgent) => recent.find((each) => each.tokenId === tokenId)?.reason
  assert.deepEqual([alice, silent, eve].map(reasonOf), ['renamed', 'renamed', 'renamed'])
  await renameNamespace(alice, 'first')
})

test('a name that was given up is refused to whoever waited for it to be given up', async () => {
  const { alice } = await seed(database, 'race', ['alice', 'bob'])
  await send(alice, 'bob')
  let created: Promise<unknown> = Promise.resolve()
  await database.superuser.begin(async (sql) => {
    await sql`update patchcord.agents set name = 'alicia' where id = ${alice.agentId}`
    created = create('race', 'alice').then(
      () => 'created',
      (error) => error.code,
    )
    await untilOneWaits(database)
  })
  assert.equal(await created, 'conflict')
})

async function untilOneWaits({ superuser }: TestDatabase): Promise<void> {
  for (let tries = 0; tries < 500; tries++) {
    const rows = await superuser`
      select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
    if (rows.length > 0) return
    await new Promise((done) => setTimeout(done, 10))
  }
  assert.fail('nobody waited')
}

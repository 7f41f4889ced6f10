import assert from 'node:assert/strict'
import { after, before, beforeEach, test } from 'node:test'
import { asMember } from '../../server/db/scope.ts'
import { addAgent, deleteAgent, getAgentOf, listAgentsOf, renameMyAgent } from '../../server/domain/agents.ts'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { recallMessages, sendMessage } from '../../server/domain/messages.ts'
import { foundNamespace } from '../../server/domain/namespaces.ts'
import { listAudit } from '../../server/domain/security-log.ts'
import { listRecentRevocations, resolveToken } from '../../server/domain/tokens.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { joinAs, listRefusals, type SeededPerson, signInOperator } from '../helpers/people.ts'
import { seed } from '../helpers/seed.ts'

let database: TestDatabase
let owner: SeededPerson
let admin: SeededPerson
let member: SeededPerson
let namespace = ''
let count = 0
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())
beforeEach(async () => {
  owner = await signInOperator(database)
  namespace = `place-${++count}x`
  await foundNamespace(owner.scope, { name: namespace })
  admin = await joinAs(database, owner, namespace, 'admin')
  member = await joinAs(database, owner, namespace, 'member')
})
const add = (name: string, by = admin) => addAgent(by.scope, { namespace, name })

test('agents are added by admins; a taken name is refused with a free one, also of many at once', async () => {
  const { id } = await add('backend')
  assert.equal((await getAgentOf(member.scope, { namespace, agent: 'backend' })).id, id)
  await assert.rejects(add('backend'), { code: 'conflict', hint: 'backend-2 is free.' })
  const answers = await Promise.allSettled(Array.from({ length: 6 }, () => add('racer')))
  assert.equal(answers.filter(({ status }) => status === 'fulfilled').length, 1)
  for (const answer of answers) if (answer.status === 'rejected') assert.equal(answer.reason.hint, 'racer-2 is free.')
  await assert.rejects(add('x', member), { code: 'forbidden' })
  for (const name of ['', 'Backend', 'patchcord', '<b>', 'a'.repeat(41)]) {
    await assert.rejects(add(name), { code: 'invalid' }, name)
  }
})

test('a long name has a free one suggested that is a name', async () => {
  const long = `${'a'.repeat(36)}.bcd`
  await add(long)
  const suggestion = `${'a'.repeat(36)}.-2`
  await assert.rejects(add(long), { code: 'conflict', hint: `${suggestion} is free.` })
  await add(suggestion)
})

test('agents are renamed by admins, and of two at once one does; a name that messages carry is refused with a free one', async () => {
  const { alice, bob } = await seed(database, `${namespace}-b`, ['alice', 'bob'])
  const rename = (agent: string, newName: string, by = owner) =>
    renameMyAgent(by.scope, { namespace: `${namespace}-b`, agent, newName })
  await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
  await rename('alice', 'alicia')
  assert.equal((await resolveToken(database.api, alice.tokenHash)).agent, 'alicia')
  await assert.rejects(rename('bob', 'alice'), { code: 'conflict', hint: 'alice-2 is free.' })
  await assert.rejects(rename('bob', 'alicia'), { code: 'conflict', hint: 'alicia-2 is free.' })
  await assert.rejects(rename('nobody', 'x'), { code: 'not_found' })
  const answers = await Promise.allSettled([rename('bob', 'bob-x'), rename('bob', 'bob-y')])
  const won = answers.flatMap(({ status }, i) => (status === 'fulfilled' ? [`bob-${'xy'[i]}`] : []))
  assert.equal(won.length, 1)
  for (const answer of answers) {
    if (answer.status === 'rejected') assert.match(answer.reason.code, /^(?:conflict|not_found)$/)
  }
  assert.equal((await resolveToken(database.api, bob.tokenHash)).agent, won[0])
  await add('old')
  await assert.rejects(renameMyAgent(member.scope, { namespace, agent: 'old', newName: 'new' }), { code: 'forbidden' })
})

test('a deleted agent is gone with its tokens, its name stays taken, and its messages stay with the others', async () => {
  const { alice, bob } = await seed(database, `${namespace}-b`, ['alice', 'bob'])
  const place = { namespace: `${namespace}-b` }
  const { message_id } = await bob((scope) => sendMessage(scope, { to: 'alice', content: 'remember me' }))
  await alice((scope) => fetchInbox(scope, {}))
  await deleteAgent(owner.scope, { ...place, agent: 'bob' })
  await assert.rejects(deleteAgent(owner.scope, { ...place, agent: 'bob' }), { code: 'not_found' })
  await assert.rejects(getAgentOf(owner.scope, { ...place, agent: 'bob' }), { code: 'not_found' })
  await assert.rejects(resolveToken(database.api, bob.tokenHash), { code: 'agent_gone' })
  assert.ok((await listRecentRevocations(database.api, 60, [])).some(({ tokenId }) => tokenId === bob.tokenId))
  await assert.rejects(addAgent(owner.scope, { ...place, name: 'bob' }), { code: 'conflict', hint: 'bob-2 is free.' })
  const { messages } = await alice((scope) => recallMessages(scope, { message_id }))
  assert.deepEqual(
    messages.map(({ content, from }) => [content, from]),
    [['remember me', 'bob']],
  )
  const { events } = await listAudit(owner.scope, place)
  assert.deepEqual([events[0]?.event, events[0]?.agent, events[0]?.by_name], ['agent_deleted', 'bob', 'owner'])
  await add('temp')
  await assert.rejects(deleteAgent(member.scope, { namespace, agent: 'temp' }), { code: 'forbidden' })
})

test('agents are listed 50 a page by name, each once, and found by part of a name', async () => {
  await Promise.all(Array.from({ length: 113 }, (_, i) => add(`agent-${String(i).padStart(3, '0')}`)))
  const names: string[] = []
  let after: string | undefined
  const pages: number[] = []
  do {
    const page = await listAgentsOf(member.scope, { namespace, after })
    names.push(...page.agents.map(({ agent }) => agent))
    pages.push(page.agents.length)
    after = page.next ?? undefined
  } while (after !== undefined)
  assert.deepEqual(pages, [50, 50, 13])
  assert.deepEqual(names, [...new Set(names)].sort())
  const found = await listAgentsOf(member.scope, { namespace, q: ' T-11 ' })
  assert.deepEqual(
    found.agents.map(({ agent }) => agent),
    ['agent-110', 'agent-111', 'agent-112'],
  )
  assert.deepEqual(await listAgentsOf(member.scope, { namespace, q: '%' }), { agents: [], next: null })
})

test('an agent of another namespace answers as one that never was', async () => {
  const { eve } = await seed(database, `${namespace}-b`, ['eve'])
  const told = await listRefusals(
    [eve.agent, 'never', eve.agentId, ''].map((agent) => deleteAgent(admin.scope, { namespace, agent })),
  )
  assert.deepEqual(
    told.map((line) => line.replace(/no agent .*@/, 'no agent X@')),
    Array(told.length).fill(`not_found There is no agent X@${namespace}. create-agent makes one.`),
  )
})

test('row-level security alone keeps members from changing agents, and admins within their namespace, as raw statements', async () => {
  const { eve } = await seed(database, `${namespace}-b`, ['eve'])
  await add('mine')
  const by = (who: SeededPerson, statement: string) =>
    asMember(who.scope, namespace, async (sql) => (await sql.unsafe(statement)).count)
  const insert = (space: string) => `insert into patchcord.agents (namespace_uuid, name) values ('${space}', 'planted')`
  const [own] = await database.admin`select id from patchcord.namespaces where name = ${namespace}`
  assert.equal(await by(member, 'update patchcord.agents set deleted_at = now()'), 0)
  await assert.rejects(by(member, insert(own?.id as string)), { code: '42501' })
  await assert.rejects(by(admin, insert(eve.namespaceId)), { code: '42501' })
  assert.equal(await by(admin, `update patchcord.agents set name = 'taken' where id = '${eve.agentId}'`), 0)
  await assert.rejects(by(admin, `update patchcord.agents set namespace_uuid = '${eve.namespaceId}'`), {
    code: '42501',
  })
  await assert.rejects(by(owner, 'delete from patchcord.agents'), { code: '42501' })
  await deleteAgent(admin.scope, { namespace, agent: 'mine' })
  assert.equal(await by(owner, 'update patchcord.agents set deleted_at = null'), 0)
})

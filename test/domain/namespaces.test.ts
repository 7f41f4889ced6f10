import assert from 'node:assert/strict'
import { after, before, beforeEach, describe, test } from 'node:test'
import { asMember } from '../../server/db/scope.ts'
import { addAgent, listAgentsOf } from '../../server/domain/agents.ts'
import { sendMessage } from '../../server/domain/messages.ts'
import {
  createNamespace,
  deleteNamespace,
  foundNamespace,
  getNamespace,
  listMyNamespaces,
  listNamespaces,
  renameMyNamespace,
  renameNamespace,
  setPaused,
} from '../../server/domain/namespaces.ts'
import { listAudit, listSecurityEvents } from '../../server/domain/security-log.ts'
import { listRecentRevocations, resolveToken } from '../../server/domain/tokens.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { joinAs, listRefusals, type SeededPerson, signInOperator } from '../helpers/people.ts'
import { seed } from '../helpers/seed.ts'

let database: TestDatabase
let owner: SeededPerson
let namespace = ''
let count = 0
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())
beforeEach(async () => {
  owner = await signInOperator(database)
  namespace = `space-${++count}x`
})
const found = () => foundNamespace(owner.scope, { name: namespace })

describe('a namespace', () => {
  test('belongs to whoever founds it; a taken name is refused with a free one, which then is taken in turn', async () => {
    await found()
    const guest = await joinAs(database, owner, namespace, 'member')
    for (const expected of [`${namespace}-2`, `${namespace}-3`]) {
      await assert.rejects(foundNamespace(guest.scope, { name: namespace }), {
        code: 'conflict',
        message: `Namespace ${namespace} exists already.`,
        hint: `${expected} is free.`,
        details: { suggestion: expected },
      })
      await foundNamespace(guest.scope, { name: expected })
    }
    const mine = await listMyNamespaces(guest.scope)
    assert.deepEqual(
      mine.map(({ name, role }) => [name, role]),
      [
        [namespace, 'member'],
        [`${namespace}-2`, 'owner'],
        [`${namespace}-3`, 'owner'],
      ],
    )
    assert.equal((await getNamespace(guest.scope, { namespace: `${namespace}-3` })).role, 'owner')
  })

  test('of many who found one of the same name at once, one has it', async () => {
    await found()
    const guests = await Promise.all([1, 2, 3, 4].map((i) => joinAs(database, owner, namespace, 'member', `G${i}`)))
    const name = `${namespace}-race`
    const answers = await Promise.allSettled(guests.map(({ scope }) => foundNamespace(scope, { name })))
    assert.equal(answers.filter(({ status }) => status === 'fulfilled').length, 1)
    for (const answer of answers) {
      if (answer.status === 'rejected')
        assert.deepEqual([answer.reason.code, answer.reason.hint], ['conflict', `${name}-2 is free.`])
    }
  })

  test('has a name of the pattern, and a person owns 50 at most, also of many founded at once', async () => {
    await found()
    const guest = await joinAs(database, owner, namespace, 'member')
    for (const name of ['', 'Acme', '<script>', 'a'.repeat(41), 'a b', '-a']) {
      await assert.rejects(foundNamespace(guest.scope, { name }), { code: 'invalid' }, name)
    }
    const answers = await Promise.allSettled(
      Array.from({ length: 53 }, (_, i) => foundNamespace(guest.scope, { name: `${namespace}-n${i}` })),
    )
    assert.equal(answers.filter(({ status }) => status === 'fulfilled').length, 50)
    for (const answer of answers) if (answer.status === 'rejected') assert.equal(answer.reason.code, 'forbidden')
    await deleteNamespace(guest.scope, { namespace: (await listMyNamespaces(guest.scope))[1]?.name ?? '' })
    await foundNamespace(guest.scope, { name: `${namespace}-last` })
  })

  test('is renamed by admins; a taken name, or one that a page no longer shows rightly, is a conflict', async () => {
    await found()
    await createNamespace(database.admin, { name: `${namespace}-other` })
    const [admin, member] = [
      await joinAs(database, owner, namespace, 'admin'),
      await joinAs(database, owner, namespace, 'member'),
    ]
    const rename = (who: SeededPerson, newName: string, seen = namespace) =>
      renameMyNamespace(who.scope, { namespace, newName, seen })
    await assert.rejects(rename(member, 'x'), { code: 'forbidden' })
    await assert.rejects(rename(admin, `${namespace}-other`), {
      code: 'conflict',
      hint: `${namespace}-other-2 is free.`,
    })
    await assert.rejects(rename(admin, 'Capital'), { code: 'invalid' })
    await assert.rejects(rename(admin, 'x', 'older'), { code: 'conflict' })
    const answers = await Promise.allSettled([rename(admin, `${namespace}-a`), rename(owner, `${namespace}-b`)])
    const won = answers.flatMap(({ status }, i) => (status === 'fulfilled' ? [`${namespace}-${'ab'[i]}`] : []))
    assert.equal(won.length, 1)
    for (const answer of answers) {
      if (answer.status === 'rejected') assert.match(answer.reason.code, /^(?:conflict|not_found)$/)
    }
    assert.ok((await listMyNamespaces(owner.scope)).some(({ name }) => name === won[0]))
    await assert.rejects(getNamespace(owner.scope, { namespace }), { code: 'not_found' })
  })

  test('is paused and resumed by admins; twice is once', async () => {
    await found()
    const [admin, member] = [
      await joinAs(database, owner, namespace, 'admin'),
      await joinAs(database, owner, namespace, 'member'),
    ]
    await assert.rejects(setPaused(member.scope, { namespace, paused: true }), { code: 'forbidden' })
    await setPaused(admin.scope, { namespace, paused: true })
    const { paused_at } = await getNamespace(member.scope, { namespace })
    assert.match(paused_at ?? '', /^\d{4}-\d\d-\d\dT/)
    await setPaused(owner.scope, { namespace, paused: true })
    assert.equal((await getNamespace(member.scope, { namespace })).paused_at, paused_at)
    await setPaused(owner.scope, { namespace, paused: false })
    assert.equal((await getNamespace(member.scope, { namespace })).paused_at, null)
    const { events } = await listAudit(member.scope, { namespace })
    assert.deepEqual(
      events.filter(({ event }) => /paused|resumed/.test(event)).map(({ event, by_name }) => [event, by_name]),
      [
        ['namespace_resumed', 'owner'],
        ['namespace_paused', 'admin'],
      ],
    )
  })

  test('that is deleted is closed to its people and agents at once, and its name stays taken for now', async () => {
    const { alice, bob } = await seed(database, namespace, ['alice', 'bob'])
    const [admin, member] = [
      await joinAs(database, owner, namespace, 'admin'),
      await joinAs(database, owner, namespace, 'member'),
    ]
    for (const { scope } of [admin, member]) {
      await assert.rejects(deleteNamespace(scope, { namespace }), { code: 'forbidden' })
    }
    await deleteNamespace(owner.scope, { namespace })
    const told = await listRefusals([
      getNamespace(owner.scope, { namespace }),
      deleteNamespace(owner.scope, { namespace }),
      getNamespace(member.scope, { namespace }),
      getNamespace(member.scope, { namespace: 'never-was' }),
    ])
    assert.deepEqual(told.length, 1, told.join('\n'))
    assert.deepEqual(await listMyNamespaces(member.scope), [])
    assert.ok(!(await listNamespaces(database.admin)).some(({ name }) => name === namespace))
    for (const agent of [alice, bob]) {
      await assert.rejects(resolveToken(database.api, agent.tokenHash), { code: 'agent_gone' })
    }
    const ended = await listRecentRevocations(database.api, 60, [])
    assert.deepEqual(
      ended.filter(({ tokenId }) => tokenId === alice.tokenId).map(({ reason }) => reason),
      ['deleted'],
    )
    await assert.rejects(createNamespace(database.admin, { name: namespace }), { code: 'conflict' })
    await assert.rejects(foundNamespace(owner.scope, { name: namespace }), { code: 'conflict' })
    await assert.rejects(renameNamespace(database.admin, { name: namespace, newName: 'x' }), { code: 'not_found' })
    const events = (await listSecurityEvents(database.admin)).filter((each) => each.namespace === namespace)
    assert.deepEqual([events.at(-1)?.event, events.at(-1)?.by_name], ['namespace_deleted', 'owner'])
    assert.ok(!events.some(({ event }) => event === 'agent_deleted'))
  })

  test('that is deleted while agents are added has none left alive', async () => {
    await found()
    const adding = Array.from({ length: 12 }, (_, i) => addAgent(owner.scope, { namespace, name: `a${i}` }))
    const [deleted, ...added] = await Promise.allSettled([deleteNamespace(owner.scope, { namespace }), ...adding])
    assert.equal(deleted.status, 'fulfilled')
    for (const answer of added) if (answer.status === 'rejected') assert.equal(answer.reason.code, 'not_found')
    const [row] = await database.admin`
      select count(*)::int as alive from patchcord.agents a join patchcord.namespaces n on n.id = a.namespace_uuid
      where n.name = ${namespace} and a.deleted_at is null`
    assert.equal(row?.alive, 0)
  })

  test('shows how many agents are there, wakeable, and waited for', async () => {
    const { alice, bob, carol } = await seed(database, namespace, ['alice', 'bob', 'carol'])
    await database.admin`
      insert into patchcord.leases (agent_uuid, session, namespace_uuid, token_uuid, expires_at)
      values (${bob.agentId}, 's', ${bob.namespaceId}, ${bob.tokenId}, now() + interval '1 minute')`
    for (const to of ['bob', 'carol']) {
      await alice((scope) => sendMessage(scope, { to, content: 'x', kind: 'report' }))
    }
    const look = async () => (await listMyNamespaces(owner.scope)).find(({ name }) => name === namespace)
    assert.deepEqual([(await look())?.agents, (await look())?.wakeable, (await look())?.waiting], [3, 1, 0])
    await database.admin`update patchcord.deliveries set wake_at = wake_at - interval '3 minutes'`
    assert.equal((await look())?.waiting, 1)
    assert.equal((await getNamespace(owner.scope, { namespace })).messages, 2)
    const { agents } = await listAgentsOf(owner.scope, { namespace })
    assert.deepEqual(
      agents.map((each) => [each.agent, each.reach, each.new, each.open, each.tokens]),
      [
        ['alice', 'online', 0, 0, 1],
        ['bob', 'wakeable', 1, 0, 1],
        ['carol', 'offline', 1, 0, 1],
      ],
    )
    assert.equal(agents[2]?.id, carol.agentId)
  })
})

test('row-level security alone keeps members from changing a namespace, and admins from deleting it, as raw statements', async () => {
  await found()
  const by = async (who: SeededPerson, statement: string) =>
    await asMember(who.scope, namespace, async (sql) => (await sql.unsafe(statement)).count)
  const [admin, member] = [
    await joinAs(database, owner, namespace, 'admin'),
    await joinAs(database, owner, namespace, 'member'),
  ]
  for (const set of [`name = 'x'`, 'paused_at = now()', 'deleted_at = now()']) {
    assert.equal(await by(member, `update patchcord.namespaces set ${set}`), 0, set)
  }
  await assert.rejects(by(admin, 'update patchcord.namespaces set deleted_at = now()'), { code: '42501' })
  await assert.rejects(by(owner, `insert into patchcord.namespaces (name) values ('x')`), { code: '42501' })
  await assert.rejects(by(owner, 'delete from patchcord.namespaces'), { code: '42501' })
  assert.equal(await by(admin, 'update patchcord.namespaces set paused_at = now()'), 1)
})

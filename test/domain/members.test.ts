import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, before, beforeEach, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { asMember, type MemberRole } from '../../server/db/scope.ts'
import { createCode, hashCode } from '../../server/domain/codes.ts'
import {
  acceptInvite,
  createInvite,
  findInvite,
  joinByInvite,
  listInvites,
  listMembers,
  removeMember,
  revokeInvite,
  setRole,
} from '../../server/domain/members.ts'
import { deleteNamespace, foundNamespace, listMyNamespaces } from '../../server/domain/namespaces.ts'
import { renamePerson, signInWithSubject } from '../../server/domain/people.ts'
import { listAudit } from '../../server/domain/security-log.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { joinAs, listRefusals, type SeededPerson, signInOperator } from '../helpers/people.ts'

const CLIENT = 'Firefox on Linux'
const STRANGER = 'f3b1c1de-0000-7000-8000-000000000000'

let database: TestDatabase
let namespace = ''
let owner: SeededPerson
let count = 0
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())
beforeEach(async () => {
  owner = await signInOperator(database)
  namespace = `team-${++count}`
  await foundNamespace(owner.scope, { name: namespace })
})

const join = (role: MemberRole, name?: string) => joinAs(database, owner, namespace, role, name)
const rolesOf = async () =>
  Object.fromEntries((await listMembers(owner.scope, { namespace })).map(({ name, role }) => [name, role]))

describe('of people with one name', () => {
  test('a namespace has one: who joins, accepts or renames is told to choose another; elsewhere the name is free', async () => {
    await join('member', 'Ann')
    const again = await createInvite(owner.scope, { namespace, role: 'member' })
    for (const name of ['Ann', 'ANN', 'Ａnn', ' ann ']) {
      await assert.rejects(joinByInvite(database.api, { code: again.code, name, client: CLIENT }), {
        code: 'conflict',
        hint: 'Choose another name.',
      })
    }
    const bob = await join('member', 'Bob')
    await assert.rejects(renamePerson(bob.scope, { name: 'ann' }), { code: 'conflict' })
    await renamePerson(bob.scope, { name: 'bob' })
    const elsewhere = `else-${count}`
    await foundNamespace(owner.scope, { name: elsewhere })
    const other = await joinAs(database, owner, elsewhere, 'member', 'Ann')
    await assert.rejects(acceptInvite(other.scope, { code: again.code }), { code: 'conflict' })
    await renamePerson(other.scope, { name: 'Ann of elsewhere' })
    await acceptInvite(other.scope, { code: again.code })
    assert.deepEqual(Object.keys(await rolesOf()).sort(), ['Ann', 'Ann of elsewhere', 'bob', 'owner'])
  })

  test('of two who take it at once, one has it', async () => {
    const people = [await join('member', 'one'), await join('member', 'two')]
    const answers = await Promise.allSettled(people.map(({ scope }) => renamePerson(scope, { name: 'same' })))
    assert.deepEqual(answers.map(({ status }) => status).sort(), ['fulfilled', 'rejected'])
  })

  test('who comes through Supabase Auth, where nobody chose the name, gets a number', async () => {
    await join('member', 'Ann')
    const { code } = await createInvite(owner.scope, { namespace, role: 'member' })
    const subject = `namesake-${count}`
    const base = { subject, email: null, name: 'Ann', client: CLIENT, signup: 'invite' as const }
    assert.equal((await signInWithSubject(database.api, { ...base, invite: code })).person, 'Ann 2')
    assert.equal((await rolesOf())['Ann 2'], 'member')
  })
})

describe('an invite', () => {
  test('shows what it opens, makes one new person a member, and is used up', async () => {
    const { code, id } = await createInvite(owner.scope, { namespace, role: 'admin' })
    const shown = await findInvite(database.api, code)
    assert.deepEqual([shown?.namespace, shown?.role, shown?.invited_by], [namespace, 'admin', 'owner'])
    assert.deepEqual(
      (await listInvites(owner.scope, { namespace })).map((line) => [line.id, line.role, line.created_by]),
      [[id, 'admin', 'owner']],
    )
    const answers = await Promise.allSettled(
      Array.from({ length: 8 }, (_, i) => joinByInvite(database.api, { code, name: `Guest ${i}`, client: CLIENT })),
    )
    const inside = answers.filter(({ status }) => status === 'fulfilled')
    assert.equal(inside.length, 1)
    for (const answer of answers) if (answer.status === 'rejected') assert.equal(answer.reason.code, 'not_found')
    assert.equal((await listMembers(owner.scope, { namespace })).length, 2)
    const [{ count: made } = { count: 0 }] = await database.admin`
      select count(*)::int from patchcord.people where name like 'Guest %'`
    assert.equal(made, 1)
    assert.deepEqual(await listInvites(owner.scope, { namespace }), [])
  })

  test('that is unknown, used, revoked, expired or of a namespace that is gone answers one and the same', async () => {
    const make = () => createInvite(owner.scope, { namespace, role: 'member' })
    const [used, revoked, expired] = [await make(), await make(), await make()]
    await joinByInvite(database.api, { code: used.code, name: 'Ann', client: CLIENT })
    await revokeInvite(owner.scope, { namespace, id: revoked.id })
    await database.admin`update patchcord.invites set expires_at = now() where id = ${expired.id}`
    await foundNamespace(owner.scope, { name: `${namespace}-gone` })
    const gone = await createInvite(owner.scope, { namespace: `${namespace}-gone`, role: 'member' })
    await deleteNamespace(owner.scope, { namespace: `${namespace}-gone` })
    const guest = await join('member', 'Guest')
    const codes = [used.code, revoked.code, expired.code, gone.code, createCode(), 'x', '']
    for (const code of codes) assert.equal(await findInvite(database.api, code), null)
    const told = await listRefusals(
      codes.flatMap((code) => [
        joinByInvite(database.api, { code, name: 'Eve', client: CLIENT }),
        acceptInvite(guest.scope, { code }),
      ]),
    )
    assert.equal(told.length, 1, told.join('\n'))
    assert.match(told[0] ?? '', /^not_found /)
  })

  test('is not used up by whoever is a member already, and then takes in somebody else who is signed in', async () => {
    const guest = await join('member', 'Guest')
    const { code } = await createInvite(owner.scope, { namespace, role: 'admin' })
    await assert.rejects(acceptInvite(guest.scope, { code }), { code: 'conflict' })
    assert.equal((await rolesOf()).Guest, 'member')
    await foundNamespace(guest.scope, { name: `${namespace}-b` })
    const other = await joinAs(database, guest, `${namespace}-b`, 'member', 'Other')
    assert.deepEqual(await acceptInvite(other.scope, { code }), { namespace })
    assert.equal((await rolesOf()).Other, 'admin')
  })

  test('is void once its maker is no owner any more', async () => {
    const second = await join('owner', 'Second')
    const { code } = await createInvite(second.scope, { namespace, role: 'owner' })
    const kept = await createInvite(owner.scope, { namespace, role: 'member' })
    await setRole(owner.scope, { namespace, personId: second.personId, role: 'member', seen: 'owner' })
    assert.equal(await findInvite(database.api, code), null)
    assert.notEqual(await findInvite(database.api, kept.code), null)
  })

  test('is void, too, when it was under way while its maker was removed', async () => {
    const bad = await join('owner', 'Bad')
    const [code, other] = [createCode(), createCode()]
    let commit = () => {}
    const mayCommit = new Promise<void>((resolve) => {
      commit = resolve
    })
    const inserting = database.api.begin(async (sql) => {
      await sql`select patchcord.enter_member(${bad.scope.sessionHash}, ${namespace})`
      for (const each of [code, other]) {
        await sql`
          insert into patchcord.invites (id, hash, namespace_uuid, role, created_by)
          values (${randomUUID()}, decode(${hashCode(each)}, 'hex'), patchcord.claim_namespace(), 'owner', ${bad.personId})`
      }
      await mayCommit
    })
    await sleep(100)
    await removeMember(owner.scope, { namespace, personId: bad.personId })
    commit()
    await inserting
    assert.equal(await findInvite(database.api, code), null)
    await assert.rejects(acceptInvite(bad.scope, { code }), { code: 'not_found' })
    await assert.rejects(joinByInvite(database.api, { code: other, name: 'Bad again', client: 'x' }), {
      code: 'not_found',
    })
  })

  test('ends the session that the browser had', async () => {
    const guest = await join('member', 'Guest')
    const { code } = await createInvite(owner.scope, { namespace, role: 'member' })
    await joinByInvite(database.api, { code, name: 'Ann', client: CLIENT, endSession: hashCode(guest.session) })
    await assert.rejects(listMembers(guest.scope, { namespace }), { code: 'signed_out' })
  })

  test('is made once by a form that is sent twice, and another’s form never collides with it', async () => {
    const form = { namespace, role: 'member' as const, id: 'form-1' }
    const answers = await Promise.allSettled([createInvite(owner.scope, form), createInvite(owner.scope, form)])
    assert.deepEqual(answers.map(({ status }) => status).sort(), ['fulfilled', 'rejected'])
    await assert.rejects(createInvite(owner.scope, form), { code: 'conflict' })
    assert.equal((await listInvites(owner.scope, { namespace })).length, 1)
    const second = await join('owner', 'Second')
    await createInvite(second.scope, form)
  })

  test('is not made where members and open invites are 300 together', async () => {
    await database.admin`
      insert into patchcord.invites (hash, namespace_uuid, role, created_by)
      select sha256(convert_to(n.name || i, 'utf8')), n.id, 'member', ${owner.personId}
      from patchcord.namespaces n, generate_series(1, 299) i where n.name = ${namespace}`
    await assert.rejects(createInvite(owner.scope, { namespace, role: 'member' }), { code: 'forbidden' })
    const [invite] = await listInvites(owner.scope, { namespace })
    await revokeInvite(owner.scope, { namespace, id: invite?.id ?? '' })
    await createInvite(owner.scope, { namespace, role: 'member' })
  })
})

describe('roles', () => {
  test('are changed by owners, and only from what the page showed', async () => {
    const ann = await join('member', 'Ann')
    const second = await join('owner', 'Second')
    const change = (role: MemberRole, seen: MemberRole, by = owner) =>
      setRole(by.scope, { namespace, personId: ann.personId, role, seen })
    const answers = await Promise.allSettled([change('admin', 'member'), change('owner', 'member', second)])
    assert.deepEqual(answers.map(({ status }) => status).sort(), ['fulfilled', 'rejected'])
    for (const answer of answers) if (answer.status === 'rejected') assert.equal(answer.reason.code, 'conflict')
    const now = (await rolesOf()).Ann as MemberRole
    await assert.rejects(change('member', 'member'), { code: 'conflict' })
    await change('member', now)
    assert.equal((await rolesOf()).Ann, 'member')
    await assert.rejects(change('boss' as MemberRole, 'member'), { code: 'invalid' })
  })

  test('an id that is no member’s here answers as one that never was, be it another namespace’s member or no id at all', async () => {
    await foundNamespace(owner.scope, { name: `${namespace}-b` })
    const foreigner = await joinAs(database, owner, `${namespace}-b`, 'member', 'Foreigner')
    const told = await listRefusals(
      [foreigner.personId, STRANGER, 'x', ''].flatMap((personId) => [
        setRole(owner.scope, { namespace, personId, role: 'admin', seen: 'member' }),
        removeMember(owner.scope, { namespace, personId }),
      ]),
    )
    assert.equal(told.length, 1, told.join('\n'))
    assert.match(told[0] ?? '', /^not_found /)
  })
})

describe('the last owner', () => {
  test('neither leaves nor steps down, alone or with members', async () => {
    const leave = () => removeMember(owner.scope, { namespace, personId: owner.personId })
    const stepDown = () => setRole(owner.scope, { namespace, personId: owner.personId, role: 'member', seen: 'owner' })
    await assert.rejects(leave(), { code: 'conflict', message: `owner is the last owner of ${namespace}.` })
    await assert.rejects(stepDown(), { code: 'conflict' })
    await join('admin', 'Ann')
    await assert.rejects(leave(), { code: 'conflict' })
    await assert.rejects(
      Promise.resolve(database.admin`
        delete from patchcord.members using patchcord.namespaces n
        where n.id = namespace_uuid and n.name = ${namespace} and role = 'owner'`),
      { code: 'PC409' },
    )
    assert.deepEqual(await rolesOf(), { owner: 'owner', Ann: 'admin' })
  })

  test('is one of two who leave, step down, or remove each other at once', async () => {
    for (let round = 0; round < 6; round++) {
      const second = await join('owner', `Second ${round}`)
      const act = (who: SeededPerson, whom: SeededPerson) =>
        round % 2 === 0
          ? removeMember(who.scope, { namespace, personId: whom.personId })
          : setRole(who.scope, { namespace, personId: whom.personId, role: 'member', seen: 'owner' })
      const both = round < 4 ? [act(owner, owner), act(second, second)] : [act(owner, second), act(second, owner)]
      const answers = await Promise.allSettled(both)
      assert.deepEqual(answers.map(({ status }) => status).sort(), ['fulfilled', 'rejected'], `round ${round}`)
      for (const answer of answers) {
        if (answer.status === 'rejected') assert.match(answer.reason.code, /^(?:conflict|not_found|forbidden)$/)
      }
      const [left] = await database.admin`
        select count(*)::int as owners, min(person_uuid::text) as id from patchcord.members m
          join patchcord.namespaces n on n.id = m.namespace_uuid where n.name = ${namespace} and role = 'owner'`
      assert.equal(left?.owners, 1)
      namespace = `team-${++count}`
      await foundNamespace(owner.scope, { name: namespace })
    }
  })

  test('may leave once somebody else is one', async () => {
    const second = await join('owner', 'Second')
    await removeMember(owner.scope, { namespace, personId: owner.personId })
    await assert.rejects(listMembers(owner.scope, { namespace }), { code: 'not_found' })
    assert.deepEqual(
      (await listMembers(second.scope, { namespace })).map(({ name }) => name),
      ['Second'],
    )
  })
})

describe('who may what', () => {
  test('members and admins manage no people, but may leave; whoever was removed finds nothing here any more', async () => {
    const { personId } = await join('member', 'Victim')
    for (const role of ['member', 'admin'] as const) {
      const someone = await join(role)
      const { scope } = someone
      const told = await listRefusals([
        setRole(scope, { namespace, personId, role: 'admin', seen: 'member' }),
        setRole(scope, { namespace, personId: someone.personId, role: 'owner', seen: role }),
        removeMember(scope, { namespace, personId }),
        createInvite(scope, { namespace, role: 'member' }),
        revokeInvite(scope, { namespace, id: STRANGER }),
      ])
      for (const line of told) assert.match(line, /^forbidden /)
      await removeMember(scope, { namespace, personId: someone.personId })
      await assert.rejects(listMembers(scope, { namespace }), { code: 'not_found' })
    }
    assert.deepEqual(await rolesOf(), { owner: 'owner', Victim: 'member' })
  })

  test('row-level security alone refuses the same, as raw statements', async () => {
    const victim = await join('member', 'Victim')
    const admin = await join('admin')
    const invite = await createInvite(owner.scope, { namespace, role: 'member' })
    const tried = (statement: string) =>
      asMember(admin.scope, namespace, async (sql) => (await sql.unsafe(statement)).count)
    assert.equal(await tried(`update patchcord.members set role = 'owner' where person_uuid = '${admin.personId}'`), 0)
    assert.equal(await tried(`delete from patchcord.members where person_uuid = '${victim.personId}'`), 0)
    assert.equal(await tried(`update patchcord.invites set revoked_at = now() where id = '${invite.id}'`), 0)
    for (const statement of [
      `insert into patchcord.members (namespace_uuid, person_uuid, role)
        select id, '${admin.personId}', 'owner' from patchcord.namespaces`,
      `insert into patchcord.invites (id, hash, namespace_uuid, role, created_by)
        select gen_random_uuid(), decode(repeat('00', 32), 'hex'), id, 'owner', '${admin.personId}' from patchcord.namespaces`,
      `update patchcord.members set namespace_uuid = namespace_uuid`,
      `update patchcord.people set is_operator = true`,
      `select hash from patchcord.invites`,
      `select hash from patchcord.tokens`,
      `select subject from patchcord.people`,
    ]) {
      await assert.rejects(tried(statement), { code: '42501' }, statement)
    }
  })

  test('a namespace of others is one that never was, whatever is asked of it', async () => {
    await foundNamespace(owner.scope, { name: `${namespace}-b` })
    const stranger = await joinAs(database, owner, `${namespace}-b`, 'owner', 'Stranger')
    const told = await listRefusals(
      [namespace, 'never-was', '', `${namespace} `, `${namespace}\0`].flatMap((name) => [
        listMembers(stranger.scope, { namespace: name }),
        listInvites(stranger.scope, { namespace: name }),
        createInvite(stranger.scope, { namespace: name, role: 'owner' }),
        listAudit(stranger.scope, { namespace: name }),
        deleteNamespace(stranger.scope, { namespace: name }),
      ]),
    )
    assert.equal(told.length, 1, told.join('\n'))
    assert.match(told[0] ?? '', /^not_found /)
    assert.deepEqual(
      (await listMyNamespaces(stranger.scope)).map(({ name, role }) => [name, role]),
      [[`${namespace}-b`, 'owner']],
    )
  })
})

test('members read in the audit who came, went and got another role, and by whom', async () => {
  const ann = await join('member', 'Ann')
  await setRole(owner.scope, { namespace, personId: ann.personId, role: 'admin', seen: 'member' })
  const { id } = await createInvite(owner.scope, { namespace, role: 'owner' })
  await revokeInvite(owner.scope, { namespace, id })
  const reader = await join('member', 'Reader')
  await removeMember(ann.scope, { namespace, personId: ann.personId })
  const { events } = await listAudit(reader.scope, { namespace })
  assert.deepEqual(events.map(({ event, detail, by_name }) => [event, detail, by_name]).reverse(), [
    ['namespace_created', null, 'owner'],
    ['member_added', 'owner as owner', 'owner'],
    ['invite_created', 'as member', 'owner'],
    ['invite_used', 'as member', 'Ann'],
    ['member_added', 'Ann as member', 'Ann'],
    ['member_role_changed', 'Ann is admin, was member', 'owner'],
    ['invite_created', 'as owner', 'owner'],
    ['invite_revoked', 'as owner', 'owner'],
    ['invite_created', 'as member', 'owner'],
    ['invite_used', 'as member', 'Reader'],
    ['member_added', 'Reader as member', 'Reader'],
    ['member_removed', 'Ann, was admin', 'Ann'],
  ])
})

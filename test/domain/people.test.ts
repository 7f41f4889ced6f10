import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { createCode, hashCode, isCode, toFormId } from '../../server/domain/codes.ts'
import { createInvite, listMembers } from '../../server/domain/members.ts'
import { createNamespace, foundNamespace } from '../../server/domain/namespaces.ts'
import {
  createLoginLink,
  createOwnLoginLink,
  endSession,
  findLoginLink,
  getMe,
  hasAnyoneSignedIn,
  listSessions,
  renamePerson,
  signIn,
  signInWithSubject,
  signOut,
} from '../../server/domain/people.ts'
import { listSecurityEvents } from '../../server/domain/security-log.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { joinAs, listRefusals, signInOperator } from '../helpers/people.ts'

const CLIENT = 'Firefox on Linux'

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())

const as = (session: string) => ({ sql: database.api, sessionHash: hashCode(session) })
const age = (table: string, where: string, set: string) =>
  database.admin.unsafe(`update patchcord.${table} set ${set} where ${where}`)

describe('a login link', () => {
  test('makes the operator at first, who is the same person with the next one, and owns what has no owner', async () => {
    assert.equal(await hasAnyoneSignedIn(database.admin), false)
    await createNamespace(database.admin, { name: 'before' })
    const links = await Promise.all([createLoginLink(database.admin), createLoginLink(database.admin)])
    assert.equal(await hasAnyoneSignedIn(database.admin), false)
    const sessions = []
    for (const { code, person } of links) {
      assert.equal(person, 'owner')
      assert.ok(isCode(code))
      sessions.push(await signIn(database.api, { code, client: CLIENT }))
    }
    const people = await Promise.all(sessions.map(({ session }) => getMe(as(session))))
    assert.equal(people[0]?.personId, people[1]?.personId)
    const [{ session } = { session: '' }] = sessions
    assert.deepEqual(
      (await listMembers(as(session), { namespace: 'before' })).map(({ name, role, is_you }) => [name, role, is_you]),
      [['owner', 'owner', true]],
    )
    await createNamespace(database.admin, { name: 'after' })
    assert.equal((await listMembers(as(session), { namespace: 'after' })).length, 1)
    assert.equal(await hasAnyoneSignedIn(database.admin), true)
  })

  test('says whom it would sign in without being used up, and signs in once', async () => {
    const { code } = await createLoginLink(database.admin)
    for (let i = 0; i < 3; i++) assert.equal((await findLoginLink(database.api, code))?.person, 'owner')
    const answers = await Promise.allSettled(
      Array.from({ length: 8 }, () => signIn(database.api, { code, client: CLIENT })),
    )
    assert.equal(answers.filter(({ status }) => status === 'fulfilled').length, 1)
    await assert.rejects(signIn(database.api, { code, client: CLIENT }), { code: 'not_found' })
    assert.equal(await findLoginLink(database.api, code), null)
  })

  test('that is unknown, expired, used or no link at all answers one and the same', async () => {
    const { code: expired, expires_at } = await createLoginLink(database.admin)
    const left = Date.parse(expires_at) - Date.now()
    assert.ok(left > 14 * 60_000 && left <= 15 * 60_000, `${left} ms`)
    await age('login_links', `hash = decode('${hashCode(expired)}', 'hex')`, `expires_at = now()`)
    const { code: used } = await createLoginLink(database.admin)
    await signIn(database.api, { code: used, client: CLIENT })
    const told = await listRefusals(
      [expired, used, createCode(), 'x', '', `${used}\n`].map((code) => signIn(database.api, { code, client: CLIENT })),
    )
    for (const code of [expired, used, 'x']) assert.equal(await findLoginLink(database.api, code), null)
    assert.equal(told.length, 1, told.join('\n'))
    assert.match(told[0] ?? '', /^not_found /)
  })

  test('is for one person by name, address or id; a name of several asks which', async () => {
    const owner = await signInOperator(database)
    const ann = await joinAs(database, owner, 'before', 'member', 'Ann')
    assert.equal((await createLoginLink(database.admin, { person: 'Ann' })).person, 'Ann')
    await assert.rejects(createLoginLink(database.admin, { person: 'Nobody' }), { code: 'not_found' })
    await foundNamespace(owner.scope, { name: 'elsewhere' })
    await joinAs(database, owner, 'elsewhere', 'member', 'Ann')
    await assert.rejects(
      createLoginLink(database.admin, { person: 'Ann' }),
      (error: { code: string; hint: string }) => {
        assert.equal(error.code, 'conflict')
        assert.ok(error.hint.includes(ann.personId))
        return true
      },
    )
    const { code } = await createLoginLink(database.admin, { person: ann.personId })
    const { session } = await signIn(database.api, { code, client: CLIENT })
    assert.equal((await getMe(as(session))).personId, ann.personId)
  })

  test('of one’s own signs the same person in on another device', async () => {
    const owner = await signInOperator(database)
    const { code } = await createOwnLoginLink(owner.scope)
    const { session, person } = await signIn(database.api, { code, client: 'Phone' })
    assert.equal(person, 'owner')
    assert.equal((await getMe(as(session))).personId, owner.personId)
    assert.notEqual(session, owner.session)
  })
})

describe('a session', () => {
  test('ends at sign-in in the browser that had it, so that nobody is left in one that another planted', async () => {
    const owner = await signInOperator(database)
    const planted = await joinAs(database, owner, 'before', 'member', 'Mallory')
    const { code } = await createLoginLink(database.admin)
    const { session } = await signIn(database.api, { code, client: CLIENT, endSession: hashCode(planted.session) })
    await assert.rejects(getMe(planted.scope), { code: 'signed_out' })
    assert.equal((await getMe(as(session))).personId, owner.personId)
    assert.equal((await getMe(owner.scope)).personId, owner.personId)
  })

  test('ends by signing out, after 30 days, and after 7 without a visit; a visit is noted to the minute', async () => {
    const people = await Promise.all(Array.from({ length: 4 }, () => signInOperator(database)))
    const [out, old, idle, fine] = people
    assert.ok(out && old && idle && fine)
    await signOut(out.scope)
    await age('sessions', `id = '${old.sessionId}'`, `expires_at = now()`)
    await age('sessions', `id = '${idle.sessionId}'`, `last_seen_at = now() - interval '7 days 1 minute'`)
    await age('sessions', `id = '${fine.sessionId}'`, `last_seen_at = now() - interval '6 days'`)
    for (const { scope } of [out, old, idle]) await assert.rejects(getMe(scope), { code: 'signed_out' })
    await assert.rejects(getMe(as(createCode())), { code: 'signed_out' })
    const before = await lastSeen(fine.sessionId)
    await getMe(fine.scope)
    const seen = await lastSeen(fine.sessionId)
    assert.notEqual(seen, before)
    await getMe(fine.scope)
    assert.equal(await lastSeen(fine.sessionId), seen)
    const shown = (await listSessions(fine.scope)).map(({ id }) => id)
    assert.ok(shown.includes(fine.sessionId))
    assert.ok(![out, old, idle].some(({ sessionId }) => shown.includes(sessionId)))
  })

  test('is listed with its browser, and each of one’s own can be ended; another’s answers as one that never was', async () => {
    const owner = await signInOperator(database)
    const other = await signInOperator(database)
    const guest = await joinAs(database, owner, 'before', 'member', 'Guest')
    const lines = await listSessions(owner.scope)
    assert.deepEqual(
      lines.filter(({ is_this }) => is_this).map(({ id, client }) => [id, client]),
      [[owner.sessionId, CLIENT]],
    )
    assert.ok(lines.some(({ id }) => id === other.sessionId))
    assert.ok(!lines.some(({ id }) => id === guest.sessionId))
    const told = await listRefusals(
      [guest.sessionId, 'f3b1c1de-0000-7000-8000-000000000000', 'x', ''].map((id) => endSession(owner.scope, { id })),
    )
    assert.equal(told.length, 1, told.join('\n'))
    assert.match(told[0] ?? '', /^not_found /)
    await getMe(guest.scope)
    await endSession(owner.scope, { id: other.sessionId })
    await assert.rejects(getMe(other.scope), { code: 'signed_out' })
    await assert.rejects(endSession(owner.scope, { id: other.sessionId }), { code: 'not_found' })
  })

  test('that another one ends takes the links with it that it may have made; signing out takes none', async () => {
    const { person } = await createLoginLink(database.admin)
    const start = async () =>
      as(
        (await signIn(database.api, { code: (await createLoginLink(database.admin, { person })).code, client: CLIENT }))
          .session,
      )
    const [mine, stolen] = [await start(), await start()]
    const link = await createOwnLoginLink(stolen)
    const theirs = (await listSessions(mine)).find(({ is_this }) => !is_this)
    assert.equal(theirs?.id, (await getMe(stolen)).sessionId)
    await endSession(mine, { id: theirs?.id ?? '' })
    assert.equal(await findLoginLink(database.api, link.code), null)
    await assert.rejects(signIn(database.api, { code: link.code, client: CLIENT }), { code: 'not_found' })

    const { code } = await createOwnLoginLink(mine)
    await signOut(mine)
    assert.equal((await findLoginLink(database.api, code))?.person, person)
  })

  test('is one of 50 at most, of which the one ends that was seen longest ago; and 20 links wait at once', async () => {
    const { scope, personId, sessionId } = await signInOperator(database)
    await database.admin`
      insert into patchcord.sessions (hash, person_uuid, client)
      select sha256(convert_to('many' || i, 'utf8')), ${personId}, ${CLIENT} from generate_series(1, 60) i`
    const { code } = await createOwnLoginLink(scope)
    await age('sessions', `id = '${sessionId}'`, "last_seen_at = clock_timestamp() - interval '1 hour'")
    const { session } = await signIn(database.api, { code, client: CLIENT })
    assert.equal((await listSessions(as(session))).length, 50)
    await assert.rejects(getMe(scope), { code: 'signed_out' })

    await database.admin`delete from patchcord.login_links where person_uuid = ${personId}`
    for (let count = 0; count < 20; count++) await createOwnLoginLink(as(session))
    await assert.rejects(createOwnLoginLink(as(session)), { code: 'rate_limited' })
    await database.admin`delete from patchcord.login_links`
  })

  test('and every code are stored as their SHA-256 only', async () => {
    const owner = await signInOperator(database)
    const { code } = await createOwnLoginLink(owner.scope)
    const rows = await database.admin`
      select s::text as row from patchcord.sessions s union all select l::text from patchcord.login_links l
      union all select e::text from patchcord.security_log e`
    const text = JSON.stringify(rows)
    for (const secret of [owner.session, code]) assert.ok(!text.includes(secret.slice(0, 20)))
    assert.ok(text.includes(hashCode(code)))
  })
})

async function lastSeen(id: string): Promise<string> {
  const [row] = await database.admin`select last_seen_at from patchcord.sessions where id = ${id}`
  return row?.last_seen_at as string
}

describe('a person of Supabase Auth', () => {
  const base = { email: 'zoe@example.org', name: 'Zoe', client: CLIENT }

  test('is refused without an invite, is the same at the next sign-in, and may sign up where that is open', async () => {
    const subject = 'b5a9c7f0-1111-4222-8333-444455556666'
    await assert.rejects(signInWithSubject(database.api, { ...base, subject, signup: 'invite' }), { code: 'forbidden' })
    await assert.rejects(
      signInWithSubject(database.api, { ...base, subject, signup: 'invite', invite: createCode() }),
      { code: 'forbidden' },
    )
    const answers = await Promise.all(
      Array.from({ length: 4 }, () => signInWithSubject(database.api, { ...base, subject, signup: 'open' })),
    )
    const people = await Promise.all(answers.map(({ session }) => getMe(as(session))))
    assert.equal(new Set(people.map(({ personId }) => personId)).size, 1)
    const later = await signInWithSubject(database.api, { ...base, subject, email: 'z@example.org', signup: 'invite' })
    const me = await getMe(as(later.session))
    assert.deepEqual([me.personId, me.email, me.name], [people[0]?.personId, 'z@example.org', 'Zoe'])
  })

  test('comes by an invite once, of many who have it at once; whoever came too late was never made', async () => {
    const owner = await signInOperator(database)
    const { code } = await createInvite(owner.scope, { namespace: 'before', role: 'admin' })
    const [{ count: before } = { count: 0 }] = await database.admin`select count(*)::int from patchcord.people`
    const answers = await Promise.allSettled(
      Array.from({ length: 6 }, (_, i) =>
        signInWithSubject(database.api, { ...base, subject: `racer-${i}`, signup: 'invite', invite: code }),
      ),
    )
    const inside = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []))
    assert.equal(inside.length, 1)
    for (const answer of answers) if (answer.status === 'rejected') assert.equal(answer.reason.code, 'forbidden')
    const [{ count } = { count: 0 }] = await database.admin`select count(*)::int from patchcord.people`
    assert.equal(count, before + 1)
    const members = await listMembers(as(inside[0]?.session ?? ''), { namespace: 'before' })
    assert.equal(members.find(({ is_you }) => is_you)?.role, 'admin')
  })

  test('has a name that can be shown, whatever the provider calls it', async () => {
    const names: string[] = []
    for (const [i, name] of [
      '  Zoe   of\u00a0x ',
      'operator',
      'evil\u202etxt',
      '',
      'x'.repeat(61),
      '<script>',
    ].entries()) {
      const answer = await signInWithSubject(database.api, { ...base, name, subject: `name-${i}`, signup: 'open' })
      names.push(answer.person)
    }
    assert.deepEqual(names, ['zoe', 'zoe', 'zoe', 'zoe', 'zoe', '<script>'])
  })
})

test('a person renames herself, and every namespace of hers notes it', async () => {
  const owner = await signInOperator(database)
  const ann = await joinAs(database, owner, 'after', 'member', 'Ann')
  await renamePerson(ann.scope, { name: '  Ann   of Acme ' })
  assert.equal((await getMe(ann.scope)).name, 'Ann of Acme')
  assert.equal((await getMe(owner.scope)).name, 'owner')
  for (const name of [
    '',
    ' ',
    'a\nb',
    'Operator',
    'patchcord',
    'ｏperator',
    'x'.repeat(61),
    'zero\u200bwidth',
    '\u0301',
  ]) {
    await assert.rejects(renamePerson(ann.scope, { name }), { code: 'invalid' }, JSON.stringify(name))
  }
  const last = (await listSecurityEvents(database.admin)).at(-1)
  assert.deepEqual(
    [last?.event, last?.namespace, last?.detail, last?.by_name],
    ['person_renamed', 'after', 'Ann of Acme, was Ann', 'Ann'],
  )
})

test('the id of a form is bound to who sends it, and has the shape of a UUID', () => {
  const id = toFormId('a', 'f')
  assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  assert.equal(id, toFormId('a', 'f'))
  assert.notEqual(id, toFormId('b', 'f'))
  assert.notEqual(id, toFormId('a', 'g'))
})

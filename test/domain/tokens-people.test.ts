import assert from 'node:assert/strict'
import { after, before, beforeEach, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { asMember } from '../../server/db/scope.ts'
import { addAgent, deleteAgent } from '../../server/domain/agents.ts'
import { foundNamespace } from '../../server/domain/namespaces.ts'
import { listAudit } from '../../server/domain/security-log.ts'
import {
  createToken,
  hashToken,
  isTokenText,
  listTokensOf,
  resolveToken,
  revokeMyToken,
  rotateMyToken,
  rotateToken,
  type TokenCard,
} from '../../server/domain/tokens.ts'
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
  namespace = `keys-${++count}x`
  await foundNamespace(owner.scope, { name: namespace })
  admin = await joinAs(database, owner, namespace, 'admin')
  member = await joinAs(database, owner, namespace, 'member')
  await addAgent(admin.scope, { namespace, name: 'backend' })
})
const create = (extras: { id?: string; label?: string; agent?: string; expiresInSeconds?: number } = {}, by = admin) =>
  createToken(by.scope, { namespace, agent: 'backend', ...extras })
const list = (extras: Partial<Parameters<typeof listTokensOf>[1]> = {}) =>
  listTokensOf(member.scope, { namespace, ...extras })

test('a token is created by admins, opens its agent’s door, and is listed without its secret', async () => {
  const made = await create({ label: 'laptop', expiresInSeconds: 3_600 })
  assert.ok(isTokenText(made.token))
  assert.equal((await resolveToken(database.api, hashToken(made.token))).agent, 'backend')
  const { tokens } = await list()
  const [card] = tokens
  assert.deepEqual(
    [card?.id, card?.agent, card?.label, card?.revoked_at, card?.banned_until, card?.rotated_from],
    [made.id, 'backend', 'laptop', null, null, null],
  )
  assert.equal(card?.expires_at, made.expires_at)
  assert.ok(!JSON.stringify(tokens).includes(made.token.slice(3, 20)))
  assert.ok(!JSON.stringify(tokens).includes(hashToken(made.token)))
  await assert.rejects(create({}, member), { code: 'forbidden' })
  await assert.rejects(create({ label: 'two\nlines' }), { code: 'invalid' })
  await assert.rejects(create({ agent: 'nobody' }), { code: 'not_found' })
})

test('a form that is sent twice makes one token; the same form id of somebody else is another one', async () => {
  const answers = await Promise.allSettled([create({ id: 'form-1' }), create({ id: 'form-1' })])
  assert.deepEqual(answers.map(({ status }) => status).sort(), ['fulfilled', 'rejected'])
  await assert.rejects(create({ id: 'form-1' }), { code: 'conflict' })
  assert.equal((await list()).tokens.length, 1)
  await create({ id: 'form-1' }, owner)
  await create({ id: 'form-2' })
  assert.equal((await list()).tokens.length, 3)
  const { events } = await listAudit(member.scope, { namespace })
  assert.equal(events.filter(({ event }) => event === 'token_created').length, 3)
})

test('rotation with an overlap lets both work until the old one ends by itself; without one the old one ends at once', async () => {
  const old = await create({ label: 'laptop' })
  const rotated = await rotateMyToken(admin.scope, { namespace, id: old.id, overlapSeconds: 1 })
  assert.deepEqual([rotated.agent, rotated.label], ['backend', 'laptop'])
  const resolve = (token: string) => resolveToken(database.api, hashToken(token))
  await resolve(rotated.token)
  await resolve(old.token)
  await sleep(Math.max(0, Date.parse(rotated.old_ends_at) - Date.now()) + 50)
  await assert.rejects(resolve(old.token), { code: 'token_rejected' })
  await resolve(rotated.token)
  const next = await rotateMyToken(admin.scope, { namespace, id: rotated.id, overlapSeconds: 0 })
  await assert.rejects(resolve(rotated.token), { code: 'token_revoked' })
  await resolve(next.token)
  assert.deepEqual(
    (await list()).tokens.map(({ id, rotated_from }) => [id, rotated_from]),
    [
      [next.id, rotated.id],
      [rotated.id, old.id],
      [old.id, null],
    ],
  )
})

test('an overlap never lengthens a life, and a successor lives as long as the old one was to live', async () => {
  const old = await create({ expiresInSeconds: 60 })
  const rotated = await rotateMyToken(admin.scope, { namespace, id: old.id, overlapSeconds: 86_400 })
  assert.equal(rotated.old_ends_at, old.expires_at)
  const life = Date.parse(rotated.expires_at ?? '') - Date.now()
  assert.ok(life > 50_000 && life <= 60_000, `${life} ms`)
  const longer = { namespace, id: rotated.id, overlapSeconds: 0, expiresInSeconds: 7_200 }
  const next = await rotateMyToken(admin.scope, longer)
  assert.ok(Date.parse(next.expires_at ?? '') - Date.now() > 7_000_000)
})

test('of two who rotate one token at once, with or without an overlap, one does, and there is one successor', async () => {
  for (const overlapSeconds of [0, 3_600]) {
    const { id } = await create()
    const rotation = { namespace, id, overlapSeconds }
    const answers = await Promise.allSettled([
      rotateMyToken(admin.scope, rotation),
      rotateMyToken(owner.scope, rotation),
      rotateToken(database.admin, { id, overlapSeconds }),
    ])
    assert.equal(answers.filter(({ status }) => status === 'fulfilled').length, 1)
    for (const answer of answers) if (answer.status === 'rejected') assert.equal(answer.reason.code, 'conflict')
    await assert.rejects(rotateMyToken(admin.scope, rotation), { code: 'conflict' })
    assert.equal((await list()).tokens.filter(({ rotated_from }) => rotated_from === id).length, 1)
  }
})

test('a token is revoked once and for good; ids of others answer as ones that never were', async () => {
  const { eve } = await seed(database, `${namespace}-b`, ['eve'])
  const { id, token } = await create()
  await assert.rejects(revokeMyToken(member.scope, { namespace, id }), { code: 'forbidden' })
  await assert.rejects(rotateMyToken(member.scope, { namespace, id, overlapSeconds: 0 }), { code: 'forbidden' })
  await revokeMyToken(admin.scope, { namespace, id })
  await assert.rejects(resolveToken(database.api, hashToken(token)), { code: 'token_revoked' })
  await assert.rejects(revokeMyToken(admin.scope, { namespace, id }), { code: 'conflict' })
  const ids = [eve.tokenId, 'f3b1c1de-0000-7000-8000-000000000000', 'x', '']
  const told = await listRefusals(
    ids.flatMap((foreign) => [
      revokeMyToken(admin.scope, { namespace, id: foreign }),
      rotateMyToken(admin.scope, { namespace, id: foreign, overlapSeconds: 0 }),
    ]),
  )
  assert.deepEqual(
    [...new Set(told.map((line) => line.replace(/no token .*\. /, 'no token X. ')))].length,
    1,
    told.join('\n'),
  )
  assert.match(told[0] ?? '', /^not_found /)
  await resolveToken(database.api, eve.tokenHash)
})

test('tokens are listed 50 a page, the newest first, each once, also while more are made', async () => {
  await addAgent(admin.scope, { namespace, name: 'frontend' })
  for (let i = 0; i < 3; i++) {
    await Promise.all(
      Array.from({ length: 40 }, (_, j) => create({ agent: j % 2 ? 'frontend' : 'backend', label: `key ${i} ${j}` })),
    )
  }
  const seen: TokenCard[] = []
  const pages: number[] = []
  let before: string | undefined
  do {
    const page = await list({ before })
    seen.push(...page.tokens)
    pages.push(page.tokens.length)
    before = page.next ?? undefined
    await create({ label: 'later' })
  } while (before !== undefined)
  assert.deepEqual(pages, [50, 50, 20])
  assert.equal(new Set(seen.map(({ id }) => id)).size, 120)
  assert.deepEqual(
    seen.map(({ created_at }) => created_at),
    seen
      .map(({ created_at }) => created_at)
      .sort()
      .reverse(),
  )
  assert.equal((await list({ q: 'KEY 2 1' })).tokens.length, 11)
  assert.ok((await list({ q: 'front' })).tokens.every(({ agent }) => agent === 'frontend'))
  assert.ok((await list({ agent: 'frontend' })).tokens.every(({ agent }) => agent === 'frontend'))
  for (const cursor of [
    'x',
    '',
    `2026-99-99T00:00:00+00:00_${seen[0]?.id}`,
    `2026-01-01T00:00:00+00:00_${'-'.repeat(36)}`,
  ]) {
    await assert.rejects(list({ before: cursor }), { code: 'invalid' }, cursor)
  }
})

test('a search for a character that no text can hold is refused as such', async () => {
  await assert.rejects(list({ q: 'a\0b' }), { code: 'invalid' })
  await assert.rejects(addAgent(admin.scope, { namespace, name: 'a\0b' }), { code: 'invalid' })
  await assert.rejects(revokeMyToken(admin.scope, { namespace, id: '\0' }), { code: 'invalid' })
})

test('tokens that have ended are those that were revoked, have expired, or belong to a deleted agent', async () => {
  await addAgent(admin.scope, { namespace, name: 'gone' })
  const made = {
    live: await create(),
    revoked: await create(),
    expired: await create({ expiresInSeconds: 0.01 }),
    orphan: await create({ agent: 'gone' }),
  }
  await revokeMyToken(admin.scope, { namespace, id: made.revoked.id })
  await deleteAgent(admin.scope, { namespace, agent: 'gone' })
  await sleep(50)
  const ids = async (state: 'active' | 'ended' | 'all') => (await list({ state })).tokens.map(({ id }) => id)
  assert.deepEqual(await ids('active'), [made.live.id])
  assert.deepEqual(await ids('ended'), [made.orphan.id, made.expired.id, made.revoked.id])
  assert.equal((await ids('all')).length, 4)
})

test('row-level security alone keeps members from tokens, and admins from giving a revoked one back, as raw statements', async () => {
  const { eve } = await seed(database, `${namespace}-b`, ['eve'])
  const { id } = await create()
  const by = (who: SeededPerson, statement: string) =>
    asMember(who.scope, namespace, async (sql) => (await sql.unsafe(statement)).count)
  assert.equal(await by(member, 'update patchcord.tokens set revoked_at = now()'), 0)
  const insert = (from: string) => `
    insert into patchcord.tokens (namespace_uuid, agent_uuid, hash, label)
    select '${from}', id, decode(repeat('00', 32), 'hex'), 'x' from patchcord.agents`
  const [own] = await database.admin`select id from patchcord.namespaces where name = ${namespace}`
  await assert.rejects(by(member, insert(own?.id as string)), { code: '42501' })
  await assert.rejects(by(admin, insert(eve.namespaceId)), { code: '42501' })
  assert.equal(await by(admin, `update patchcord.tokens set revoked_at = now() where id = '${eve.tokenId}'`), 0)
  await revokeMyToken(admin.scope, { namespace, id })
  assert.equal(await by(owner, 'update patchcord.tokens set revoked_at = null'), 0)
  for (const column of ['hash', 'agent_uuid', 'banned_until', 'last_used_at']) {
    await assert.rejects(by(owner, `update patchcord.tokens set ${column} = null`), { code: '42501' }, column)
  }
})

test('what a member’s transaction was does not survive it', async () => {
  await list()
  const rows = await Promise.all(
    Array.from(
      { length: 12 },
      () => database.api`
      select current_user as role, current_setting('request.jwt.claims', true) as claims`,
    ),
  )
  for (const [row] of rows) assert.deepEqual([row?.role, row?.claims || ''], ['patchcord_api', ''])
})

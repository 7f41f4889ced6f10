import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { createAgent } from '../../server/domain/agents.ts'
import { createNamespace } from '../../server/domain/namespaces.ts'
import {
  createTokenText,
  hashToken,
  issueToken,
  isTokenText,
  listRecentRevocations,
  listTokens,
  resolveToken,
  revokeToken,
  whoami,
} from '../../server/domain/tokens.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { seed } from '../helpers/seed.ts'

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())

test('a token text has a checksum that a typing error breaks', () => {
  for (let i = 0; i < 200; i++) {
    const token = createTokenText()
    assert.equal(token.length, 52)
    assert.ok(isTokenText(token))
    const at = 3 + (i % 43)
    const wrong = token.slice(0, at) + (token[at] === 'A' ? 'B' : 'A') + token.slice(at + 1)
    assert.ok(!isTokenText(wrong))
  }
  for (const text of ['', 'pc_', 'Bearer x', `${createTokenText()} `, `${createTokenText()}\n`]) {
    assert.ok(!isTokenText(text))
  }
})

test('only the SHA-256 of a token is stored', async () => {
  const { alice } = await seed(database, 'hash', ['alice'])
  const rows = await database.admin`select t::text as row, encode(t.hash, 'hex') as hash from patchcord.tokens t
    where t.agent_uuid = ${alice.agentId}`
  assert.equal(rows[0]?.hash, hashToken(alice.token))
  assert.ok(!String(rows[0]?.row).includes(alice.token.slice(3, 20)))
})

test('unknown, expired, revoked and orphaned tokens are told apart', async () => {
  const { alice } = await seed(database, 'states', ['alice'])
  const resolve = (token: string) => resolveToken(database.api, hashToken(token))
  assert.equal((await resolve(alice.token)).agent, 'alice')
  await assert.rejects(resolve(createTokenText()), { code: 'token_rejected' })
  const short = await issueToken(database.admin, { namespace: 'states', agent: 'alice', expiresInSeconds: 0.05 })
  await new Promise((done) => setTimeout(done, 100))
  await assert.rejects(resolve(short.token), { code: 'token_rejected' })
  await revokeToken(database.admin, alice.tokenId)
  await assert.rejects(resolve(alice.token), { code: 'token_revoked' })
  await database.admin`update patchcord.agents set deleted_at = clock_timestamp() where id = ${alice.agentId}`
  await assert.rejects(resolve(alice.token), { code: 'agent_gone' })
})

test('recent revocations are the revoked, the expired, and those of deleted and renamed agents; others are not named', async () => {
  const { gone, renamed, revoked, fine } = await seed(database, 'ends', ['gone', 'renamed', 'revoked', 'fine'])
  const issue = (expiresInSeconds: number) =>
    issueToken(database.admin, { namespace: 'ends', agent: 'fine', expiresInSeconds })
  const [short, long] = [await issue(0.05), await issue(60)]
  const all = [gone, renamed, revoked, fine].map((agent) => agent.tokenId).concat(short.id, long.id)
  const list = async (seconds: number) => {
    const recent = await listRecentRevocations(database.api, seconds, [])
    return new Map(recent.filter((each) => all.includes(each.tokenId)).map((each) => [each.tokenId, each]))
  }
  await new Promise((done) => setTimeout(done, 100))
  await revokeToken(database.admin, revoked.tokenId)
  await database.admin`update patchcord.agents set deleted_at = clock_timestamp() where id = ${gone.agentId}`
  await database.admin`update patchcord.agents set name = 'robert' where id = ${renamed.agentId}`
  await database.admin`update patchcord.agents set name = 'fine' where id = ${fine.agentId}`
  const recent = await list(60)
  assert.deepEqual([...recent.keys()].sort(), [gone.tokenId, renamed.tokenId, revoked.tokenId, short.id].sort())
  const reasons = [gone.tokenId, renamed.tokenId, revoked.tokenId, short.id].map((id) => recent.get(id)?.reason)
  assert.deepEqual(reasons, ['deleted', 'renamed', 'revoked', 'expired'])
  for (const { tokenId, renamedSecondsAgo } of recent.values()) {
    if (tokenId !== renamed.tokenId) assert.equal(renamedSecondsAgo, null)
    else assert.ok(Number(renamedSecondsAgo) > 0 && Number(renamedSecondsAgo) < 30)
  }
  await new Promise((done) => setTimeout(done, 100))
  assert.deepEqual([...(await list(0.05))], [])
})

test('tokens that are asked about by id are told of whenever they ended; a text that is no id stands for no token', async () => {
  const { gone, revoked, fine } = await seed(database, 'long-ago', ['gone', 'revoked', 'fine'])
  const expired = await issueToken(database.admin, { namespace: 'long-ago', agent: 'fine', expiresInSeconds: 60 })
  const ago = (hours: number) => database.admin`select clock_timestamp() - make_interval(hours => ${hours}) as at`
  const [{ at } = { at: null }] = await ago(5)
  await database.admin`update patchcord.tokens set revoked_at = ${at} where id = ${revoked.tokenId}`
  await database.admin`update patchcord.tokens set expires_at = ${at} where id = ${expired.id}`
  await database.admin`update patchcord.agents set deleted_at = ${at} where id = ${gone.agentId}`
  const never = '01890000-0000-7000-8000-000000000001'
  const ids = [gone.tokenId, revoked.tokenId, fine.tokenId, expired.id, never, 'no id', '']
  const recent = await listRecentRevocations(database.api, 0.01, ids)
  const ended = new Map(
    recent.filter(({ tokenId }) => ids.includes(tokenId)).map((each) => [each.tokenId, each.reason]),
  )
  const expected: [string, string][] = [
    [gone.tokenId, 'deleted'],
    [revoked.tokenId, 'revoked'],
    [expired.id, 'expired'],
    [never, 'revoked'],
  ]
  assert.deepEqual(ended, new Map(expected))
})

test('whoami names the agent and its token', async () => {
  const { alice } = await seed(database, 'who', ['alice'])
  assert.deepEqual(await alice(whoami), {
    agent_id: 'alice',
    namespace_id: 'who',
    token_label: 'default',
    token_expires_at: null,
  })
})

test('a taken name, a bad name, an unknown namespace, agent or token id are refused in words', async () => {
  const { admin } = database
  await createNamespace(admin, { name: 'taken' })
  await createAgent(admin, { namespace: 'taken', name: 'alice' })
  await assert.rejects(createNamespace(admin, { name: 'taken' }), { code: 'conflict' })
  await assert.rejects(createAgent(admin, { namespace: 'taken', name: 'alice' }), { code: 'conflict' })
  for (const name of ['-a', 'a-', 'a b', 'a\nb', '', 'x'.repeat(41), '<script>', 'é']) {
    await assert.rejects(createNamespace(admin, { name }), { code: 'invalid' })
  }
  await assert.rejects(createNamespace(admin, { name: 'ACME' }), { hint: 'Names are lower case: use "acme".' })
  await assert.rejects(createAgent(admin, { namespace: 'nope', name: 'a' }), { code: 'not_found' })
  await assert.rejects(issueToken(admin, { namespace: 'taken', agent: 'nope' }), { code: 'not_found' })
  await assert.rejects(revokeToken(admin, 'nonsense'), { code: 'not_found' })
  assert.deepEqual(await listTokens(admin, { namespace: 'taken' }), [])
})

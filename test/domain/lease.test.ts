import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Sql } from '../../server/db/connect.ts'
import { listAgents } from '../../server/domain/agents.ts'
import { getMessageStatus } from '../../server/domain/delivery.ts'
import { createLeaseBatch } from '../../server/domain/lease.ts'
import { sendMessage } from '../../server/domain/messages.ts'
import { endLease, renewLease } from '../../server/domain/presence.ts'
import { revokeToken } from '../../server/domain/tokens.ts'
import type { PatchcordError } from '../../server/errors.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const LEASE = { session: 's', client: 'c', machine: 'm', announced: [] as string[] }
const LONG_MS = 600_000

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())

/** The API's connection, and how many statements came through it. */
function counting(): { sql: Sql; statements: () => number } {
  let count = 0
  const sql = ((...args: Parameters<Sql>) => {
    count++
    return database.api(...args)
  }) as unknown as Sql
  return { sql, statements: () => count }
}

const outcomeOf = (work: Promise<unknown>) =>
  work.then(
    () => 'stored',
    (error: PatchcordError) => error.code,
  )

async function reachOf(agent: SeededAgent): Promise<string | undefined> {
  const { agents } = await agent((scope) => listAgents(scope, { all: true }))
  return agents.find(({ is_you }) => is_you)?.reach
}

/** A batch whose first statement is done: what is asked for now waits for the rest of its interval. */
async function startWaiting(sql: Sql, intervalMs: number) {
  const batch = createLeaseBatch(sql, { intervalMs })
  await outcomeOf(batch.renew(randomBytes(32).toString('hex'), LEASE))
  return batch
}

test('the first renewal is stored at once, a thousand after it in one statement, within the second', async () => {
  const names = Array.from({ length: 20 }, (_, index) => `agent-${index}`)
  const agents = Object.values(await seed(database, 'many', names))
  const { sql, statements } = counting()
  const batch = createLeaseBatch(sql)
  const [first] = agents as [SeededAgent]
  const startMs = performance.now()
  await batch.renew(first.tokenHash, LEASE)
  assert.equal(await reachOf(first), 'wakeable')
  assert.ok(performance.now() - startMs < 900, 'at once')
  const renewals = Array.from({ length: 1_000 }, (_, index) => {
    const { tokenHash } = agents[index % agents.length] as SeededAgent
    return batch.renew(tokenHash, { ...LEASE, session: `s${Math.floor(index / agents.length) % 3}` })
  })
  await Promise.all(renewals)
  assert.equal(statements(), 2)
  assert.ok(performance.now() - startMs < 3_000)
  for (const agent of agents) assert.equal(await reachOf(agent), 'wakeable', agent.agent)
  await batch.close()
})

test('each row is its own: what a token is refused with, and whose ids are notified', async () => {
  const { alice, bob, carol, dave, eve } = await seed(database, 'rows', ['alice', 'bob', 'carol', 'dave', 'eve'])
  await revokeToken(database.admin, carol.tokenId)
  await database.admin`update patchcord.tokens set expires_at = clock_timestamp() where id = ${dave.tokenId}`
  await database.admin`update patchcord.agents set deleted_at = clock_timestamp() where id = ${eve.agentId}`
  const { message_id: id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
  const { sql, statements } = counting()
  const batch = await startWaiting(sql, 300)
  const said = { ...LEASE, announced: [id] }
  const renew = ({ tokenHash }: SeededAgent) => outcomeOf(batch.renew(tokenHash, said))
  const unknown = outcomeOf(batch.renew(randomBytes(32).toString('hex'), said))
  assert.deepEqual(await Promise.all([renew(alice), renew(carol), unknown, renew(dave), renew(eve)]), [
    'stored',
    'token_revoked',
    'token_rejected',
    'token_rejected',
    'agent_gone',
  ])
  const steps = async () =>
    (await alice((scope) => getMessageStatus(scope, { message_id: id }))).recipients[0]?.steps.map(({ step }) => step)
  assert.deepEqual(await steps(), ['accepted'], 'nobody but its recipient can have been told of it')
  assert.equal(await renew(bob), 'stored')
  assert.deepEqual(await steps(), ['accepted', 'notified'])
  assert.equal(statements(), 3)
  const rows = await database.admin`select agent_uuid from patchcord.leases where namespace_uuid = ${alice.namespaceId}`
  assert.deepEqual(rows.map((row) => row.agent_uuid).sort(), [alice.agentId, bob.agentId].sort())
  await batch.close()
})

test('a row that the database cannot take fails alone', async () => {
  const names = ['alice', 'bob', 'carol', 'dave', 'eve'] as const
  const agents = Object.values(await seed(database, 'poison', names))
  const batch = await startWaiting(database.api, 100)
  const outcomes = await Promise.all(
    agents.map(({ agent, tokenHash }) =>
      outcomeOf(batch.renew(tokenHash, { ...LEASE, session: agent === 'carol' ? 'x'.repeat(81) : 's' })),
    ),
  )
  assert.deepEqual(outcomes, ['stored', 'stored', '23514', 'stored', 'stored'])
  await batch.close()
})

test('while the database is away nobody is told that a lease is stored', async () => {
  const sql = (() => Promise.reject(Object.assign(new Error('gone'), { code: 'CONNECTION_CLOSED' }))) as unknown as Sql
  const batch = createLeaseBatch(sql, { intervalMs: 10 })
  const hash = randomBytes(32).toString('hex')
  const outcomes = await Promise.all([1, 2, 3].map(() => outcomeOf(batch.renew(hash, LEASE))))
  assert.deepEqual(outcomes, ['unavailable', 'unavailable', 'unavailable'])
  await batch.close()
})

test('a lease that was given back is not brought back by a renewal that waited on another instance', async () => {
  const { alice } = await seed(database, 'ended', ['alice'])
  const batch = await startWaiting(database.api, 500)
  await alice((scope) => renewLease(scope, LEASE))
  const waiting = batch.renew(alice.tokenHash, LEASE)
  await sleep(50)
  await alice((scope) => endLease(scope, LEASE))
  await waiting
  assert.notEqual(await reachOf(alice), 'wakeable')
  // One that had never been stored, too.
  const another = batch.renew(alice.tokenHash, { ...LEASE, session: 'other' })
  await sleep(50)
  await alice((scope) => endLease(scope, { session: 'other' }))
  await another
  assert.notEqual(await reachOf(alice), 'wakeable')
  await sleep(5)
  await batch.renew(alice.tokenHash, LEASE)
  assert.equal(await reachOf(alice), 'wakeable', 'a renewal after it is a new lease')
  await batch.close()
})

test('a token that is revoked while its renewal waits is refused, and makes nobody wakeable', async () => {
  const { alice, bob } = await seed(database, 'revoked', ['alice', 'bob'])
  const batch = await startWaiting(database.api, 300)
  const waiting = outcomeOf(batch.renew(alice.tokenHash, LEASE))
  await revokeToken(database.admin, alice.tokenId)
  assert.equal(await waiting, 'token_revoked')
  const { agents } = await bob((scope) => listAgents(scope, { all: true }))
  assert.notEqual(agents.find(({ agent }) => agent === 'alice')?.reach, 'wakeable')
  await batch.close()
})

test('two instances that renew the same leases in crossing order do not deadlock', async () => {
  const names = Array.from({ length: 30 }, (_, index) => `agent-${index}`)
  const agents = Object.values(await seed(database, 'crossing', names))
  const deadlocks = async () => {
    const [row] = await database.admin`
      select deadlocks::int from pg_catalog.pg_stat_database where datname = current_database()`
    return row?.deadlocks as number
  }
  const before = await deadlocks()
  const [here, there] = [
    createLeaseBatch(database.api, { intervalMs: 5 }),
    createLeaseBatch(database.api, { intervalMs: 5 }),
  ]
  for (let round = 0; round < 20; round++) {
    // Every row is a new one and every token was last seen long ago, so that each batch locks all it ever does.
    await database.admin`delete from patchcord.leases`
    await database.admin`update patchcord.tokens set last_used_at = null`
    const outcomes = await Promise.all([
      ...agents.map(({ tokenHash }) => outcomeOf(here.renew(tokenHash, LEASE))),
      ...[...agents].reverse().map(({ tokenHash }) => outcomeOf(there.renew(tokenHash, LEASE))),
    ])
    assert.deepEqual([...new Set(outcomes)], ['stored'])
  }
  await Promise.all([here.close(), there.close()])
  assert.equal((await deadlocks()) - before, 0)
})

test('a token that invents sessions keeps the latest twenty', async () => {
  const { alice, bob } = await seed(database, 'sessions', ['alice', 'bob'])
  const batch = createLeaseBatch(database.api, { intervalMs: 10 })
  await batch.renew(bob.tokenHash, LEASE)
  for (let session = 0; session < 30; session++)
    await batch.renew(alice.tokenHash, { ...LEASE, session: `s${session}` })
  const rows = await database.admin`select session from patchcord.leases where agent_uuid = ${alice.agentId}`
  assert.equal(rows.length, 20)
  assert.ok(rows.some(({ session }) => session === 's29') && !rows.some(({ session }) => session === 's9'))
  assert.equal(await reachOf(bob), 'wakeable')
  await batch.close()
})

test('what waits at shutdown is stored at once, and what comes after it too', async () => {
  const { alice } = await seed(database, 'closing', ['alice'])
  const batch = await startWaiting(database.api, LONG_MS)
  const waiting = batch.renew(alice.tokenHash, LEASE)
  await batch.close()
  await waiting
  assert.equal(await reachOf(alice), 'wakeable')
  await batch.renew(alice.tokenHash, LEASE)
  await batch.close()
})

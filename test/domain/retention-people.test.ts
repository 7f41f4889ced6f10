import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { createInvite } from '../../server/domain/members.ts'
import { replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { createNamespace, deleteNamespace } from '../../server/domain/namespaces.ts'
import { createOwnLoginLink, endSession, listSessions } from '../../server/domain/people.ts'
import { renewLease, reportPresence } from '../../server/domain/presence.ts'
import { purgeDeletedOnce, purgeOnce, startRetention } from '../../server/domain/retention.ts'
import { listSecurityEvents } from '../../server/domain/security-log.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { joinAs, type SeededPerson, signInOperator } from '../helpers/people.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

let database: TestDatabase
let owner: SeededPerson
before(async () => {
  database = await createTestDatabase()
  owner = await signInOperator(database)
})
after(() => database.drop())

test('sessions, login links and invites go a month after they ended, and not before', async () => {
  const { admin } = database
  await createNamespace(admin, { name: 'home' })
  await joinAs(database, owner, 'home', 'member')
  await createInvite(owner.scope, { namespace: 'home', role: 'member' })
  await createOwnLoginLink(owner.scope)
  const [gone, idle] = [await signInOperator(database), await signInOperator(database)]
  await endSession(owner.scope, { id: gone.sessionId })
  const purge = async () => {
    const { sessions, links, invites } = await purgeOnce(database.api, 30)
    return [sessions, links, invites]
  }
  assert.deepEqual(await purge(), [0, 0, 0])
  await admin`update patchcord.sessions set ended_at = now() - interval '32 days' where id = ${gone.sessionId}`
  await admin`update patchcord.sessions set expires_at = now() - interval '32 days' where id = ${idle.sessionId}`
  await admin`update patchcord.invites set expires_at = now() - interval '32 days' where used_at is not null`
  await admin`update patchcord.login_links set expires_at = now() - interval '32 days' where used_at is not null`
  const [{ count: used } = { count: 0 }] =
    await admin`select count(*)::int from patchcord.login_links where used_at is not null`
  assert.deepEqual(await purge(), [2, used, 1])
  assert.equal((await listSessions(owner.scope)).length, 1)
  const [{ count: open } = { count: 0 }] = await admin`select count(*)::int from patchcord.invites`
  assert.equal(open, 1)
})

/** Something in every table that belongs to a namespace. */
async function fill(name: string): Promise<Record<'alice' | 'bob' | 'carol', SeededAgent>> {
  const agents = await seed(database, name, ['alice', 'bob', 'carol'], { limits: { sendBurst: 1_000 } })
  const { alice, bob } = agents
  for (let i = 0; i < 10; i++) {
    const message = { content: 'x', kind: 'report' as const, thread: `t-${i}`, idempotency_key: `k-${i}` }
    await alice((scope) => sendMessage(scope, { to: '*', ...message }))
  }
  const {
    new: [first],
  } = await bob((scope) => fetchInbox(scope, {}))
  await bob((scope) => replyToMessage(scope, { message_id: first?.message_id ?? '', resolve: true }))
  for (const agent of [alice, bob]) {
    await agent((scope) => reportPresence(scope, { state: 'busy' }))
    await agent((scope) => renewLease(scope, { session: 's', client: 'c', machine: 'm', announced: [] }))
  }
  await joinAs(database, owner, name, 'member', `guest of ${name}`)
  await createInvite(owner.scope, { namespace: name, role: 'member' })
  return agents
}

/** How many rows of each table are about this namespace. */
async function countRows({ namespaceId, agentId }: SeededAgent): Promise<Record<string, number>> {
  const [row] = await database.admin`
    with agent as (select id from patchcord.agents where namespace_uuid = ${namespaceId})
    select
      (select count(*) from patchcord.namespaces where id = ${namespaceId}) as namespaces,
      (select count(*) from agent) as agents,
      (select count(*) from patchcord.tokens where namespace_uuid = ${namespaceId}) as tokens,
      (select count(*) from patchcord.threads where namespace_uuid = ${namespaceId}) as threads,
      (select count(*) from patchcord.message_bodies where from_namespace_uuid = ${namespaceId}) as bodies,
      (select count(*) from patchcord.agent_messages where to_namespace_uuid = ${namespaceId}) as messages,
      (select count(*) from patchcord.deliveries where to_agent_uuid in (select id from agent)) as deliveries,
      (select count(*) from patchcord.idempotency_keys where agent_uuid = ${agentId}) as keys,
      (select count(*) from patchcord.pairs where low_uuid in (select id from agent)) as pairs,
      (select count(*) from patchcord.presence where namespace_uuid = ${namespaceId}) as presence,
      (select count(*) from patchcord.leases where namespace_uuid = ${namespaceId}) as leases,
      (select count(*) from patchcord.members where namespace_uuid = ${namespaceId}) as members,
      (select count(*) from patchcord.invites where namespace_uuid = ${namespaceId}) as invites`
  return { ...row } as Record<string, number>
}

test('a deleted namespace goes row by row in small batches, its name last; a living one beside it keeps every row', async () => {
  const { alice: doomed } = await fill('doomed')
  const { alice: living } = await fill('living')
  const [before, beside] = [await countRows(doomed), await countRows(living)]
  for (const [table, count] of Object.entries(before)) assert.ok(count > 0, table)
  assert.equal(await purgeDeletedOnce(database.api, 4), 0)
  await deleteNamespace(owner.scope, { namespace: 'doomed' })
  let total = 0
  let batches = 0
  for (;;) {
    const count = await purgeDeletedOnce(database.api, 4)
    if (count === 0) break
    assert.ok(count <= 4, `${count} rows at once`)
    total += count
    batches++
    if (((await countRows(doomed)).agents ?? 0) > 0) {
      await assert.rejects(createNamespace(database.admin, { name: 'doomed' }), { code: 'conflict' })
    }
  }
  assert.ok(batches > 10, `${batches} batches`)
  assert.ok(total >= (before.messages ?? 0) + (before.bodies ?? 0), `${total} rows`)
  for (const [table, count] of Object.entries(await countRows(doomed))) assert.equal(count, 0, table)
  assert.deepEqual(await countRows(living), beside)
  const events = (await listSecurityEvents(database.admin)).filter(({ namespace }) => namespace === 'doomed')
  assert.deepEqual(
    events.slice(-2).map(({ event, by_name }) => [event, by_name]),
    [
      ['namespace_deleted', 'owner'],
      ['namespace_purged', null],
    ],
  )
  await createNamespace(database.admin, { name: 'doomed' })
})

test('two instances at once, and whoever holds a row, wait for nobody', async () => {
  const { alice: first } = await fill('first')
  const { alice: second } = await fill('second')
  await deleteNamespace(owner.scope, { namespace: 'first' })
  await deleteNamespace(owner.scope, { namespace: 'second' })
  await database.admin.begin(async (sql) => {
    await sql`select from patchcord.namespaces where id = ${first.namespaceId} for update`
    const count = await Promise.race([purgeDeletedOnce(database.api, 1_000), sleep(5_000)])
    assert.ok(typeof count === 'number' && count > 0)
  })
  assert.equal((await countRows(second)).messages, 0)
  assert.ok(((await countRows(first)).messages ?? 0) > 0)
  const drain = async () => {
    while ((await purgeDeletedOnce(database.api, 7)) > 0);
  }
  await Promise.all([drain(), drain(), drain()])
  await drain()
  for (const agent of [first, second]) assert.equal((await countRows(agent)).namespaces, 0)
})

test('the job takes deleted namespaces too, to the end, and says how many rows', async () => {
  const { alice } = await fill('hourly')
  await deleteNamespace(owner.scope, { namespace: 'hourly' })
  const said: Record<string, number>[] = []
  const log = {
    info: ({ purged }: { purged?: Record<string, number> }) => void said.push(purged ?? {}),
    warn: (details: object) => void said.push({ ...details }),
  }
  const job = startRetention({ sql: database.api, days: 30, log, firstMs: 1, intervalMs: 600_000, batch: 5 })
  const deadline = Date.now() + 30_000
  while (said.length === 0 && Date.now() < deadline) await sleep(20)
  await job.close()
  assert.equal((await countRows(alice)).namespaces, 0)
  assert.ok((said[0]?.deleted ?? 0) > 30, JSON.stringify(said))
})

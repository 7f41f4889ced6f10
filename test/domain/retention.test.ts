import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Sql } from '../../server/db/connect.ts'
import { settleMessage, unsendMessage } from '../../server/domain/delivery.ts'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { recallMessages, replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { endLease, renewLease } from '../../server/domain/presence.ts'
import { purgeOnce, startRetention } from '../../server/domain/retention.ts'
import type { PatchcordError } from '../../server/errors.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const DAYS = 30
const LEASE = { client: 'c', machine: 'm', announced: [] }
const LIMITS = { limits: { sendBurst: 10_000 } }

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())

/** Every table of messages as if it all had happened `days` ago. */
async function age(ids: string[], days: number): Promise<void> {
  const { admin } = database
  await admin`
    update patchcord.deliveries set settled_at = settled_at - make_interval(days => ${days}),
      fetched_at = fetched_at - make_interval(days => ${days}) where message_id = any (${ids}::uuid[])`
  await admin`update patchcord.agent_messages set sent_at = sent_at - make_interval(days => ${days}) where id = any (${ids}::uuid[])`
  await admin`update patchcord.message_bodies set sent_at = sent_at - make_interval(days => ${days}) where id = any (${ids}::uuid[])`
}

const send = async (from: SeededAgent, to: string, thread?: string, key?: string) =>
  (
    await from((scope) =>
      sendMessage(scope, { to, content: 'x', kind: 'report', thread, ...(key ? { idempotency_key: key } : {}) }),
    )
  ).message_id

/** Which of these messages are still there, with their rows. */
async function left(ids: string[]): Promise<string[]> {
  const rows = await database.admin`
    select b.id, (select count(*) from patchcord.deliveries d where d.message_id = b.id)::int as rows
    from patchcord.message_bodies b where b.id = any (${ids}::uuid[])`
  assert.ok(rows.every((row) => row.rows > 0))
  return ids.filter((id) => rows.some((row) => row.id === id))
}

test('what was settled with everybody long ago is deleted; what is new, open, deferred or settled lately is not', async () => {
  const { alice, bob } = await seed(database, 'settled', ['alice', 'bob', 'carol'], LIMITS)
  const answered = await send(alice, 'bob')
  const done = await send(alice, 'bob')
  const resolved = await send(alice, 'bob')
  const both = await send(alice, 'bob, carol')
  const open = await send(alice, 'bob')
  const deferred = await send(alice, 'bob')
  const lately = await send(alice, 'bob')
  await bob((scope) => fetchInbox(scope, {}))
  await bob((scope) => replyToMessage(scope, { message_id: answered, content: 'y' }))
  await bob((scope) => replyToMessage(scope, { message_id: resolved, resolve: true }))
  await bob((scope) => replyToMessage(scope, { message_id: deferred, defer: true }))
  for (const message_id of [done, both, lately]) {
    await bob((scope) => settleMessage(scope, { message_id, state: 'done' }))
  }
  const unsent = await send(alice, 'bob')
  await alice((scope) => unsendMessage(scope, { message_id: unsent }))
  const expired = await send(alice, 'bob')
  await database.admin`update patchcord.deliveries set expires_at = clock_timestamp() where message_id = ${expired}`
  await database.api`select patchcord.read_back(60, null)`
  const fresh = await send(alice, 'bob')
  const note = await send(alice, 'alice')
  const old = [answered, done, resolved, unsent, expired]
  const kept = [both, open, deferred, fresh, note]
  await age([...old, ...kept], DAYS + 1)
  await age([lately], DAYS - 1)
  const purged = await purgeOnce(database.api, DAYS)
  assert.equal(purged.messages, old.length)
  assert.deepEqual(await left(old), [])
  assert.deepEqual(await left([...kept, lately]), [...kept, lately])
  await assert.rejects(
    alice((scope) => recallMessages(scope, { message_id: done })),
    { code: 'not_found' },
  )
  assert.equal((await purgeOnce(database.api, DAYS)).messages, 0)
})

test('threads go with their last message, and not before', async () => {
  const { alice, bob } = await seed(database, 'threads', ['alice', 'bob'], LIMITS)
  const gone = await send(alice, 'bob', 'gone')
  const one = await send(alice, 'bob', 'stays')
  const two = await send(alice, 'bob', 'stays')
  await bob((scope) => fetchInbox(scope, { done: [] }))
  for (const message_id of [gone, one]) await bob((scope) => settleMessage(scope, { message_id, state: 'done' }))
  await age([gone, one, two], DAYS + 1)
  await database.admin`
    update patchcord.threads set created_at = created_at - interval '40 days' where namespace_uuid = ${alice.namespaceId}`
  assert.equal((await purgeOnce(database.api, DAYS)).threads, 1)
  const rows = await database.admin`select slug from patchcord.threads where namespace_uuid = ${alice.namespaceId}`
  assert.deepEqual(
    rows.map(({ slug }) => slug),
    ['stays'],
  )
  assert.ok(await send(alice, 'bob', 'gone'), 'a thread of that name can begin again')
})

test('idempotency keys go after 24 hours, leases once expired, whatever the days', async () => {
  const { alice } = await seed(database, 'keys', ['alice', 'bob'], LIMITS)
  await send(alice, 'bob', undefined, 'old')
  await send(alice, 'bob', undefined, 'young')
  await database.admin`
    update patchcord.idempotency_keys set created_at = created_at - interval '24 hours 1 second'
    where agent_uuid = ${alice.agentId} and key = 'old'`
  for (const session of ['live', 'lapsed', 'given-back'])
    await alice((scope) => renewLease(scope, { ...LEASE, session }))
  await alice((scope) => endLease(scope, { session: 'given-back' }))
  await database.admin`
    update patchcord.leases set expires_at = clock_timestamp() - interval '11 minutes'
    where agent_uuid = ${alice.agentId} and session = 'lapsed'`
  const { keys, leases } = await purgeOnce(database.api, 36_500)
  assert.deepEqual([keys, leases], [1, 1])
  const [row] = await database.admin`
    select array(select key from patchcord.idempotency_keys where agent_uuid = ${alice.agentId}) as keys,
      array(select session from patchcord.leases where agent_uuid = ${alice.agentId} order by session) as sessions`
  assert.deepEqual([row?.keys, row?.sessions], [['young'], ['given-back', 'live']])
  assert.notEqual(await send(alice, 'bob', undefined, 'old'), null)
})

test('nothing of the last day can be deleted by whoever calls it', async () => {
  const { alice, bob } = await seed(database, 'today', ['alice', 'bob'], LIMITS)
  const id = await send(alice, 'bob')
  await bob((scope) => fetchInbox(scope, {}))
  await bob((scope) => settleMessage(scope, { message_id: id, state: 'done' }))
  for (const days of [0, -100]) await purgeOnce(database.api, days)
  assert.deepEqual(await left([id]), [id])
})

async function sendOld(alice: SeededAgent, bob: SeededAgent, count: number): Promise<string[]> {
  const ids = await Promise.all(Array.from({ length: count }, () => send(alice, 'bob', 'old')))
  for (let at = 0; at < count; at += 20) await bob((scope) => fetchInbox(scope, {}))
  await database.admin`
    update patchcord.deliveries set state = 'done', done_at = clock_timestamp(), settled_at = clock_timestamp()
    where message_id = any (${ids}::uuid[])`
  await age(ids, DAYS + 1)
  return ids
}

test('many instances at once delete each row once, while agents resolve, send and fetch', {
  timeout: 120_000,
}, async () => {
  const { alice, bob } = await seed(database, 'many', ['alice', 'bob'], LIMITS)
  const ids = await sendOld(alice, bob, 200)
  const resolved = ids.slice(0, 20)
  const faults: string[] = []
  const watch = (work: Promise<unknown>) =>
    work.catch((error: PatchcordError) => {
      if (error.code !== 'not_found') faults.push(`${error.code} ${error.message}`)
    })
  let count = 0
  const purge = async () => {
    for (let round = 0; round < 10; round++) {
      const { messages = 0 } = await purgeOnce(database.api, DAYS, 7)
      count += messages
    }
  }
  await Promise.all([
    ...[1, 2, 3, 4].map(() => watch(purge())),
    ...resolved.map((message_id) => watch(bob((scope) => replyToMessage(scope, { message_id, resolve: true })))),
    ...resolved.map(() => watch(send(alice, 'bob', 'old'))),
    ...[1, 2, 3].map(() => watch(bob((scope) => fetchInbox(scope, {})))),
  ])
  for (let last = 1; last > 0; count += last) last = (await purgeOnce(database.api, DAYS, 50)).messages ?? 0
  assert.deepEqual(faults, [])
  // What was resolved first is settled lately, and stays; the rest is gone, each counted once.
  const stays = await left(ids)
  assert.ok(stays.every((id) => resolved.includes(id)))
  assert.equal(count, ids.length - stays.length)
  const states = await database.admin`
    select distinct state from patchcord.deliveries where message_id = any (${stays}::uuid[])`
  assert.ok(stays.length === 0 || states.every(({ state }) => state === 'resolved'))
})

test('a message that somebody is just settling anew is left whole, and nobody waits', async () => {
  const { alice, bob } = await seed(database, 'held', ['alice', 'bob', 'carol'], LIMITS)
  const id = await send(alice, 'bob, carol')
  await database.admin`
    update patchcord.deliveries set state = 'done', settled_at = clock_timestamp() where message_id = ${id}`
  await age([id], DAYS + 1)
  await database.admin.begin(async (sql) => {
    await sql`select from patchcord.deliveries where message_id = ${id} and to_agent_uuid = ${bob.agentId} for update`
    const first = await Promise.race([purgeOnce(database.api, DAYS), sleep(5_000)])
    assert.equal(first?.messages, 0)
  })
  assert.equal((await purgeOnce(database.api, DAYS)).messages, 1)
})

test('messages to many are deleted to the last one too', async () => {
  const { alice } = await seed(database, 'group', ['alice', 'bob', 'carol', 'dave'], LIMITS)
  const ids = await Promise.all(Array.from({ length: 12 }, () => send(alice, '*')))
  await database.admin`
    update patchcord.deliveries set state = 'done', done_at = clock_timestamp(), settled_at = clock_timestamp()
    where message_id = any (${ids}::uuid[])`
  await age(ids, DAYS + 1)
  const said: unknown[] = []
  const log = {
    info: ({ purged }: { purged?: { messages: number } }) => void said.push(purged?.messages),
    warn: () => void said.push('warned'),
  }
  const job = startRetention({ sql: database.api, days: DAYS, log, firstMs: 1, intervalMs: 600_000, batch: 10 })
  const deadline = Date.now() + 10_000
  while (said.length === 0 && Date.now() < deadline) await sleep(20)
  await job.close()
  assert.deepEqual(await left(ids), [])
  assert.deepEqual(said, [12])
})

test('the job deletes in batches until nothing is left, says how much, and goes on after a failure', async () => {
  const { alice, bob } = await seed(database, 'job', ['alice', 'bob'], LIMITS)
  const ids = await sendOld(alice, bob, 25)
  const said: unknown[] = []
  let failures = 0
  const sql = ((...args: Parameters<Sql>) =>
    failures++ === 0 ? Promise.reject(new Error('away')) : database.api(...args)) as unknown as Sql
  const log = {
    info: ({ purged }: { purged?: { messages: number } }) => void said.push(purged?.messages),
    warn: () => void said.push('warned'),
  }
  const job = startRetention({ sql, days: DAYS, log, firstMs: 1, intervalMs: 20, batch: 10 })
  const deadline = Date.now() + 10_000
  while ((await left(ids)).length > 0 && Date.now() < deadline) await sleep(20)
  await sleep(100)
  await job.close()
  assert.deepEqual(said, ['warned', 25])
})

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Network, type Place } from '../../scripts/dev/faults/proxy.ts'
import { type ConnectionTarget, connect, type TransactionSql } from '../../server/db/connect.ts'
import { asAgent } from '../../server/db/scope.ts'
import { sendMessage } from '../../server/domain/messages.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { seed } from '../helpers/seed.ts'

const COMMIT_LOCK = 4711

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())

test('a connection that is lost within a transaction makes it unavailable, and the next one works', {
  timeout: 30_000,
}, async () => {
  // An error that nobody handles would fail this test, too.
  const { bob } = await seed(database, 'lost-within', ['bob'])
  const network = new Network(() => [toPlace(database.apiTarget)], Math.random)
  const target = { ...database.apiTarget, host: '127.0.0.1', port: await network.open() } as ConnectionTarget
  const sql = connect(target, { max: 1, applicationName: 'test-lost-within' })
  try {
    for (let time = 0; time < 3; time++) {
      const reading = asAgent({ ...bob.scope, sql }, async (transaction) => {
        setTimeout(() => network.cutAll(), 50)
        return await transaction`select pg_sleep(30)`
      })
      await assert.rejects(reading, { code: 'unavailable' })
      await sleep(100)
    }
    const { agent } = await asAgent({ ...bob.scope, sql }, async (_transaction, me) => me)
    assert.equal(agent, 'bob')
  } finally {
    await sql.end({ timeout: 1 })
    await network.close()
  }
})

test('a wake is published when its message can be read, not while its commit is under way', {
  timeout: 30_000,
}, async () => {
  const { alice } = await seed(database, 'commit', ['alice', 'bob'])
  await database.admin.unsafe(`
    create function patchcord.wait_at_commit() returns trigger language plpgsql as
    'begin perform pg_advisory_xact_lock(${COMMIT_LOCK}); return null; end';
    create constraint trigger wait_at_commit after insert on patchcord.agent_messages deferrable initially deferred
    for each row execute function patchcord.wait_at_commit()`)
  const sending = await database.admin.begin(async (sql) => {
    await sql`select pg_advisory_xact_lock(${COMMIT_LOCK})`
    const sent = alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
    while (!(await isCommitting(sql))) await sleep(10)
    assert.deepEqual(alice.wakes, [])
    return { sent }
  })
  const { message_id } = await sending.sent
  assert.deepEqual(
    alice.wakes.map(({ id }) => id),
    [message_id],
  )
})

/** Whether somebody in this database waits for the lock that a commit takes. */
async function isCommitting(sql: TransactionSql): Promise<boolean> {
  const rows = await sql`
    select from pg_locks l join pg_database d on d.oid = l.database
    where d.datname = current_database() and l.locktype = 'advisory' and l.objid = ${COMMIT_LOCK} and not l.granted`
  return rows.length > 0
}

function toPlace(target: ConnectionTarget): Place {
  if ('url' in target) throw new Error('the test database has no URL')
  return target.host.startsWith('/') ? { path: `${target.host}/.s.PGSQL.${target.port}` } : target
}

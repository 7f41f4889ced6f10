import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Network, type Place } from '../../scripts/dev/faults/proxy.ts'
import { type ConnectionTarget, connect } from '../../server/db/connect.ts'
import { asAgent } from '../../server/db/scope.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { seed } from '../helpers/seed.ts'

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

function toPlace(target: ConnectionTarget): Place {
  if ('url' in target) throw new Error('the test database has no URL')
  return target.host.startsWith('/') ? { path: `${target.host}/.s.PGSQL.${target.port}` } : target
}

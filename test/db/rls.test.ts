import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import type { Sql, TransactionSql } from '../../server/db/connect.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { EXPECTATIONS, listTargets, OPERATIONS, type Operation } from './rls/expectations.ts'
import { ACTORS, asTicket, createWorld, probe, type Session, tryAs, type World } from './rls/world.ts'

/** Everything in our schema that holds or shows rows and is not in the table of expectations, or is open to its owner's role. */
async function listUnguarded(sql: Sql | TransactionSql): Promise<string[]> {
  const rows = await sql`
    select c.relname as name, c.relrowsecurity and c.relforcerowsecurity as guarded
    from pg_catalog.pg_class c
    where c.relnamespace = 'patchcord'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
    order by c.relname`
  return rows.filter((row) => !row.guarded || !(row.name in EXPECTATIONS)).map((row) => row.name as string)
}

describe('row-level security', () => {
  let database: TestDatabase
  let world: World
  before(async () => {
    database = await createTestDatabase()
    world = await createWorld(database)
  })
  after(() => database.drop())

  test('every table has row-level security enabled and forced, and rows in the table of expectations', async () => {
    assert.deepEqual(await listUnguarded(database.admin), [])
    const planted = await tryAs(database.superuser, { role: 'postgres', claims: null }, async (sql) => {
      await sql`create table patchcord.planted (id int)`
      await sql`create view patchcord.planted_view as select from patchcord.tokens`
      await sql`alter table patchcord.agents no force row level security`
      return await listUnguarded(sql)
    })
    assert.deepEqual(planted, ['agents', 'planted', 'planted_view'])
  })

  test('each table has a probe for each operation and each actor, and nothing is expected of tables that are gone', async () => {
    const rows = await database.admin`
      select relname from pg_catalog.pg_class where relnamespace = 'patchcord'::regnamespace and relkind in ('r', 'p')`
    const tables = rows.map((row) => row.relname as string).sort()
    assert.deepEqual(Object.keys(EXPECTATIONS).sort(), tables)
    assert.deepEqual(Object.keys(listTargets(world)).sort(), tables)
    for (const [table, row] of Object.entries(EXPECTATIONS)) {
      for (const operation of OPERATIONS) {
        assert.match(row[operation], new RegExp(`^[01-]( [01-]){${ACTORS.length - 1}}$`), `${table} ${operation}`)
      }
    }
  })

  for (const [table, row] of Object.entries(EXPECTATIONS)) {
    test(`${table}: each actor reaches exactly what is expected`, async () => {
      const target = listTargets(world)[table]
      assert.ok(target)
      const seen: Partial<Record<Operation, string>> = {}
      for (const operation of OPERATIONS) {
        const marks: string[] = []
        for (const actor of ACTORS) {
          marks.push(await probe(database.superuser, world.sessions[actor], target[operation]))
        }
        seen[operation] = marks.join(' ')
      }
      assert.deepEqual(seen, row)
    })
  }

  test('the target rows are there, so that "no row" means hidden and not missing', async () => {
    for (const [table, target] of Object.entries(listTargets(world))) {
      const { count } = await database.admin.unsafe(target.select)
      assert.equal(count, 1, table)
    }
  })

  test('the connection of the API has the rights of its role and no more', async () => {
    for (const [table, target] of Object.entries(listTargets(world))) {
      for (const operation of OPERATIONS) {
        const refused = database.api.unsafe(target[operation]).catch((error: { code?: string }) => error.code)
        assert.equal(await refused, '42501', `${operation} on ${table}`)
      }
    }
  })

  test('a ticket opens the topic of its own agent while it lives, for reading broadcasts only', async () => {
    const { bob, carol, eve } = world
    const topic = (agent: typeof bob) => `agent:${agent.namespaceId}:${agent.agentId}`
    for (const agent of [bob, carol, eve]) await plant(database.superuser, topic(agent), 'broadcast')
    await plant(database.superuser, topic(bob), 'presence')
    const read = (session: Session, on: string) => readTopic(database.superuser, session, on)
    const live = asTicket(bob, 600)
    assert.deepEqual(await read(live, topic(bob)), ['broadcast'])
    assert.deepEqual(await read(live, topic(carol)), [])
    assert.deepEqual(await read(live, topic(eve)), [])
    assert.deepEqual(await read(asTicket(bob, -1), topic(bob)), [])
    assert.deepEqual(await read({ role: 'patchcord_ticket', claims: null }, topic(bob)), [])
    assert.deepEqual(await read({ role: 'patchcord_ticket', claims: { exp: 9e9 } }, topic(bob)), [])
    assert.deepEqual(await read({ role: 'anon', claims: live.claims }, topic(bob)), [])
    assert.deepEqual(await read({ role: 'authenticated', claims: live.claims }, topic(bob)), [])
    const insert = `insert into realtime.messages (topic, extension) values ('${topic(bob)}', 'broadcast')`
    assert.equal(await probe(database.superuser, live, insert), '-')
    assert.equal(await probe(database.superuser, live, `update realtime.messages set payload = '{}'`), '0')
    assert.equal(await probe(database.superuser, live, 'delete from realtime.messages'), '-')
  })
})

async function plant(superuser: Sql, topic: string, extension: string): Promise<void> {
  await superuser`
    insert into realtime.messages (topic, extension, event, private, payload) values (${topic}, ${extension}, 'planted', true, '{}')`
}

/** Extensions of the rows of a topic that a session sees while Realtime asks for that topic. */
async function readTopic(superuser: Sql, session: Session, topic: string): Promise<string[]> {
  return await tryAs(superuser, session, async (sql) => {
    await sql`select set_config('realtime.topic', ${topic}, true)`
    const rows = await sql`select extension from realtime.messages where topic = ${topic} and event = 'planted'`
    return rows.map((row) => row.extension as string)
  })
}

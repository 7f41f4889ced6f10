import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Sql, TransactionSql } from '../../server/db/connect.ts'
import { hashToken, issueToken } from '../../server/domain/tokens.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { seedMessages } from '../helpers/many-messages.ts'

const MESSAGES = 20_000
/** An agent here has sent and received 3,500, and a call shows fifty of them at most. */
const ROWS_MAX = 700

let database: TestDatabase
let hash: string
before(async () => {
  database = await createTestDatabase()
  await seedMessages(database.admin, 'large', MESSAGES)
  const { token } = await issueToken(database.admin, { namespace: 'large', agent: 'agent-01' })
  hash = hashToken(token)
})
after(() => database.drop())

/** Rows of the tables of messages that one call has read, however it found them, as its own session counts them. */
async function countRows(call: (sql: Sql) => Promise<unknown>): Promise<number> {
  return await database.api.begin(async (sql: TransactionSql) => {
    const before = await readCounter(sql)
    await call(sql as unknown as Sql)
    return (await readCounter(sql)) - before
  })
}

async function readCounter(sql: TransactionSql): Promise<number> {
  const [row] = await sql`
    select sum(s.seq_tup_read + coalesce(s.idx_tup_fetch, 0))::int as count from pg_stat_xact_user_tables s
    where s.schemaname = 'patchcord' and s.relname in ('message_bodies', 'agent_messages', 'deliveries', 'threads')`
  return row?.count as number
}

for (const [what, from, thread] of [
  ['the newest', null, null],
  ['those from one agent', 'agent-12', null],
  ['those from itself', 'agent-01', null],
  ['those of a thread', null, 'thread-7'],
] as const) {
  test(`a page of a long history, ${what}, reads little more than it shows`, async () => {
    const recall = (skip: number) => (sql: Sql) =>
      sql`select patchcord.recall_messages(${hash}, null, ${from}, ${thread}, 0, 8000, ${skip}, 11)`
    assert.ok((await countRows(recall(0))) > 0, 'counts what is read')
    for (const skip of [0, 20]) {
      const rows = await countRows(recall(skip))
      assert.ok(rows < ROWS_MAX, `${rows} rows after ${skip}`)
    }
  })
}

test('an empty inbox, a look at it and a wait read nothing of what is settled', async () => {
  await database.admin`
    update patchcord.deliveries d set state = 'done' from patchcord.agents a
    where a.id = d.to_agent_uuid and a.name = 'agent-01' and d.state in ('new', 'open', 'deferred')`
  const calls = {
    fetch: (sql: Sql) => sql`select patchcord.fetch_inbox(${hash}, ${[]}::uuid[])`,
    next: (sql: Sql) => sql`select patchcord.fetch_next(${hash}, null, null)`,
    new: (sql: Sql) => sql`select patchcord.peek_inbox(${hash}, 'new', 10)`,
    open: (sql: Sql) => sql`select patchcord.peek_inbox(${hash}, 'open', 10)`,
  }
  for (const [name, call] of Object.entries(calls)) {
    const rows = await countRows(call)
    // What was settled a moment ago may still have its place in the indexes of what is not.
    assert.ok(rows < ROWS_MAX, `${name}: ${rows} rows`)
  }
})

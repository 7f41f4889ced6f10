import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect, describeTarget, isTransactionPooler } from '../../server/db/connect.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { openDatabaseUrl } from '../helpers/program.ts'

const PASSWORD = 'not-to-be-shown'

let database: TestDatabase
before(async () => {
  database = await createTestDatabase({ migrated: false })
})
after(() => database.drop())

test('times stay text to the microsecond, UUIDs are text, jsonb is parsed and a bigint is a number', async () => {
  const [row] = await database.admin`
    select '2026-01-02 03:04:05.678901+00'::timestamptz as zoned, '2026-01-02 03:04:05.678901'::timestamp as plain,
      '2026-01-02'::date as day, '0190a2b4-0000-7000-8000-000000000001'::uuid as id, '{"a":[1,null]}'::jsonb as json,
      9007199254740991::int8 as big, -1::int8 as small`
  assert.deepEqual(
    { ...row },
    {
      zoned: '2026-01-02 03:04:05.678901+00',
      plain: '2026-01-02 03:04:05.678901',
      day: '2026-01-02',
      id: '0190a2b4-0000-7000-8000-000000000001',
      json: { a: [1, null] },
      big: 9007199254740991,
      small: -1,
    },
  )
})

test('what was read as a time or a bigint can be sent back, and so can a Date', async () => {
  const sent = { text: '2026-01-02 03:04:05.678901+00', date: new Date('2026-01-02T03:04:05.678Z'), count: 2 ** 40 }
  const [row] = await database.admin`
    select ${sent.text}::timestamptz as text, ${sent.date}::timestamptz as date, ${sent.count}::int8 as count`
  assert.deepEqual({ ...row }, { text: sent.text, date: '2026-01-02 03:04:05.678+00', count: sent.count })
})

test('a bigint that a number cannot hold is an error, and the connection lives on', async () => {
  const sql = connect(database.adminTarget, { max: 1, applicationName: 'test' })
  try {
    await assert.rejects(sql`select generate_series(9007199254740990, 9007199254740999) as big`, RangeError)
    assert.deepEqual([...(await sql`select 9007199254740993::text as big`)], [{ big: '9007199254740993' }])
  } finally {
    await sql.end()
  }
})

test('arrays of texts and UUIDs go there and come back, whatever the texts are made of', async () => {
  const texts = [
    'plain',
    '',
    ' a b ',
    'a,b',
    '{c}',
    '"d"',
    'back\\slash',
    '\\"',
    'two\nlines',
    'null',
    'NULL',
    'é漢🙂',
    null,
  ]
  const ids = ['0190a2b4-0000-7000-8000-000000000001', '0190a2b4-0000-7000-8000-000000000002']
  const [row] = await database.admin`
    select ${texts}::text[] as texts, ${ids}::uuid[] as ids, ${[]}::uuid[] as none, cardinality(${texts}::text[]) as count,
      (select array_agg(text order by place) from unnest(${texts}::text[]) with ordinality as t (text, place)) as each`
  assert.deepEqual({ ...row }, { texts, ids, none: [], count: texts.length, each: texts })
})

test('a connection that is lost as soon as it is made rejects its query, and nothing else', {
  timeout: 30_000,
}, async () => {
  // An error that nobody handles would fail this test, too.
  const proxy = await openDatabaseUrl(database.adminTarget, { isLostWhenReady: true })
  const sql = connect({ url: proxy.url }, { max: 1, applicationName: 'test-lost' })
  try {
    for (let time = 0; time < 3; time++) await assert.rejects(sql`select 1`, /CONNECTION_CLOSED|ECONNRESET/)
    await sleep(100)
  } finally {
    await sql.end({ timeout: 1 })
    await proxy.close()
  }
})

test('a pool never holds more connections than it may', async () => {
  const sql = connect(database.adminTarget, { max: 3, applicationName: 'test-bounded' })
  try {
    const counts = await Promise.all(
      Array.from({ length: 12 }, async () => {
        const [row] = await sql`
          select count(*)::int as count, pg_sleep(0.05)::text from pg_stat_activity where application_name = 'test-bounded'`
        return Number(row?.count)
      }),
    )
    assert.equal(Math.max(...counts), 3)
  } finally {
    await sql.end()
  }
})

test('a target is shown without its password', () => {
  const login = { host: '/run/x', port: 5432, user: 'api', password: PASSWORD, database: 'main' }
  assert.equal(describeTarget(login), 'api at /run/x:5432/main')
  assert.equal(
    describeTarget({ url: `postgres://api.ref:${PASSWORD}@db.example:5432/main` }),
    'api.ref at db.example:5432/main',
  )
  assert.doesNotMatch(describeTarget({ url: `postgres://api:${PASSWORD}@[` }), new RegExp(PASSWORD))
})

test('a transaction pooler is known by its port', () => {
  assert.equal(isTransactionPooler({ url: 'postgres://a:b@pooler.example:6543/main' }), true)
  assert.equal(isTransactionPooler({ url: 'postgres://a:b@pooler.example:5432/main' }), false)
  assert.equal(isTransactionPooler(database.adminTarget), false)
})

import assert from 'node:assert/strict'
import { after, before, suite, test } from 'node:test'
import fc from 'fast-check'
import type { TransactionSql } from '../../server/db/connect.ts'
import { claimText, mayReadTopic } from '../../server/realtime/topic.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'

type Claims = Record<string, unknown>

const NS = '01890000-0000-7000-8000-00000000000a'
const AGENT = '01890000-0000-7000-8000-0000000000a1'
const SEED = 20_261_129
const RUNS = 1_500

const HOSTILE_TEXTS = [
  NS,
  AGENT,
  NS.toUpperCase(),
  '',
  ' ',
  'a:b',
  ':',
  '%',
  '*',
  'a\n',
  '\ta',
  '\r\n',
  'é',
  'e\u0301',
  '😀',
].concat([
  '\0',
  '\ud800',
  '\u007f',
  '\u2028',
  '"',
  '\\',
  "'",
  'null',
  '5',
  '1e3',
  '{}',
  '[]',
  'agent:x',
  'realtime:agent',
])
const EXP_TEXTS = [
  '9999999999',
  ' 9999999999\n',
  '\u00a09999999999',
  '1e10',
  '1E+10',
  '.5e11',
  '5.e11',
  '+9999999999',
  '-1',
]
  .concat([
    'Infinity',
    '-infinity',
    'inf',
    '+INF',
    'NaN',
    '-nan',
    'nan(x)',
    'nan(',
    '1e400',
    '-1e400',
    '1e-400',
    '1e',
    'e10',
  ])
  .concat([
    '0x7fffffffff',
    '-0x7fffffffff',
    '0X1.8p40',
    '0x.8P+42',
    '0x',
    '0xp1',
    '0x1p99999',
    '0b11',
    '0o17',
    '1_000_000_000_0',
  ])
  .concat([
    '',
    ' ',
    'abc',
    'true',
    '9999999999x',
    '9999999999 0',
    '9999999999d',
    '９９９９９９９９９９',
    '9999999999\0',
    '.',
    '+',
    '- 1',
  ])

const anyJson = fc.jsonValue({ maxDepth: 3, noUnicodeString: false })
const claimValue = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(...HOSTILE_TEXTS) },
  { weight: 2, arbitrary: fc.string({ unit: 'binary', maxLength: 5 }) },
  { weight: 2, arbitrary: fc.integer() },
  { weight: 3, arbitrary: fc.double({ noNaN: true, noDefaultInfinity: true }) },
  { weight: 1, arbitrary: fc.constantFrom(1e21, 1e-7, 5e-324, 1.5e300, -0, 123456789012345680000, 0.1) },
  { weight: 3, arbitrary: anyJson },
  {
    weight: 1,
    arbitrary: fc.constantFrom(undefined, null, true, false, {}, [], { b: 1, a: [1, { é: null }], aa: '\n' }),
  },
)
/** Seconds from the transaction's now, or a value as it is. */
const expiry = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom(60, 600, 0.5, 1e9).map((offset) => ({ offset })) },
  { weight: 3, arbitrary: fc.constantFrom(0, -1, -600, 1e-6, -1e-6).map((offset) => ({ offset })) },
  { weight: 6, arbitrary: fc.constantFrom(...EXP_TEXTS).map((value) => ({ value: value as unknown })) },
  {
    weight: 1,
    arbitrary: fc.constantFrom(1e300, 1e21, 5e-324, Number.MAX_VALUE).map((value) => ({ value: value as unknown })),
  },
  { weight: 2, arbitrary: claimValue.map((value) => ({ value: value as unknown })) },
)
const role = fc.oneof(
  { weight: 12, arbitrary: fc.constant('patchcord_ticket') },
  { weight: 1, arbitrary: fc.constantFrom('authenticated', 'anon', 'nobody', 'patchcord_ticket ') },
)
/** What becomes of the topic that the claims name; own: that one. */
const TOPIC_CHANGES: Record<string, (own: string) => string> = {
  own: (topic) => topic,
  prefixed: (topic) => `realtime:${topic}`,
  newline: (topic) => `${topic}\n`,
  shorter: (topic) => topic.slice(0, -1),
  longer: (topic) => `${topic}:`,
  capitals: (topic) => topic.toUpperCase(),
  foreign: () => `agent:${NS}:${AGENT}`,
  empty: () => '',
}
const topicChange = fc.oneof(
  { weight: 3, arbitrary: fc.constant('own') },
  { weight: 1, arbitrary: fc.constantFrom(...Object.keys(TOPIC_CHANGES)) },
)
/** Claims that nobody reads and that may still break the document. */
const extra = fc.oneof(
  { weight: 5, arbitrary: fc.constant({}) },
  { weight: 1, arbitrary: fc.record({ x: claimValue }) },
)

suite('the endpoint decides about topics as the database does', () => {
  let database: TestDatabase
  before(async () => {
    database = await createTestDatabase()
  })
  after(() => database.drop())

  /** Everything in one transaction, so that now() stands still, and nothing of it stays. */
  async function withProbes(work: (sql: TransactionSql, nowSeconds: number) => Promise<void>): Promise<void> {
    const undo = new Error('undo')
    const run = database.superuser.begin(async (sql) => {
      const [row] = await sql<{ now: number }[]>`select extract(epoch from now())::float8 as now`
      await work(sql, row?.now ?? Number.NaN)
      throw undo
    })
    await assert.rejects(run, undo)
  }

  test('over generated claims and topics, hostile ones included', async () => {
    const seen = { allowed: 0, denied: 0 }
    await withProbes(async (sql, now) => {
      const inputs = fc.record({ ns: claimValue, agent: claimValue, expiry, role, topicChange, extra })
      const property = fc.asyncProperty(
        inputs,
        async ({ ns, agent, expiry: when, role: name, topicChange: change, extra: more }) => {
          const exp = 'offset' in when ? now + when.offset : when.value
          const claims = parsed({ role: name, ns, agent, exp, ...more })
          const own = (await ownTopic(sql, claims)) ?? `agent:${asText(claims.ns)}:${asText(claims.agent)}`
          const topic = TOPIC_CHANGES[change]?.(own) ?? own
          const expected = await policyAllows(sql, claims, topic)
          assert.equal(
            mayReadTopic(claims, topic, now),
            expected,
            `${JSON.stringify(claims)} ${JSON.stringify(topic)} now ${now}`,
          )
          seen[expected ? 'allowed' : 'denied']++
        },
      )
      await fc.assert(property, { seed: SEED, numRuns: RUNS })
    })
    assert.ok(seen.allowed > RUNS / 10 && seen.denied > RUNS / 10, JSON.stringify(seen))
  })

  test('for every expiry text with a topic that is right', async () => {
    await withProbes(async (sql, now) => {
      for (const exp of [...EXP_TEXTS, now, now + 1, now - 1, null, true, {}, [], [9999999999], '\ud800']) {
        const claims = parsed({ role: 'patchcord_ticket', ns: NS, agent: AGENT, exp })
        const topic = `agent:${NS}:${AGENT}`
        assert.equal(mayReadTopic(claims, topic, now), await policyAllows(sql, claims, topic), JSON.stringify(exp))
      }
    })
  })

  test('for documents that are no objects', async () => {
    await withProbes(async (sql, now) => {
      for (const claims of [null, [], 'patchcord_ticket', 5, true, [{ role: 'patchcord_ticket' }]]) {
        assert.equal(mayReadTopic(claims, `agent:${NS}:${AGENT}`, now), false)
        assert.equal(await policyAllows(sql, claims as unknown as Claims, `agent:${NS}:${AGENT}`), false)
      }
    })
  })
})

test('a claim that is no string counts as the text that jsonb gives it', () => {
  const texts: [unknown, string | null][] = [
    [1e21, '1000000000000000000000'],
    [1.25e-7, '0.000000125'],
    [-0, '0'],
    [-12.5, '-12.5'],
    [false, 'false'],
    [{ bb: [1, { c: null }], a: '"' }, '{"a": "\\"", "bb": [1, {"c": null}]}'],
    [null, null],
    [undefined, null],
  ]
  for (const [value, text] of texts) assert.equal(claimText({ ns: value }, 'ns'), text)
  assert.equal(claimText({}, 'toString'), null)
})

/** Claims as they come out of a JWT: what JSON cannot carry is gone. */
function parsed(claims: Claims): Claims {
  return JSON.parse(JSON.stringify(claims))
}

/** For documents that Postgres refuses: a topic that only that refusal stands before. */
function asText(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

async function ownTopic(sql: TransactionSql, claims: Claims): Promise<string | null> {
  return await orNull(sql, async (savepoint) => {
    const [row] = await savepoint<{ topic: string | null }[]>`
      select 'agent:' || (c ->> 'ns') || ':' || (c ->> 'agent') as topic from (select ${JSON.stringify(claims)}::text::jsonb as c) _`
    return row?.topic ?? null
  })
}

/** As Supabase Realtime asks at a join: probe rows of the topic, then role, claims and topic set, and the rows read back. */
async function policyAllows(sql: TransactionSql, claims: Claims, topic: string): Promise<boolean> {
  const rows = await orNull(sql, async (savepoint) => {
    const probes = await savepoint`
      insert into realtime.messages (topic, extension, event, payload, private)
      values (${topic}, 'broadcast', 'x', '{}', true), (${topic}, 'presence', 'x', '{}', true)
      returning id`
    await savepoint`select set_config('request.jwt.claims', ${JSON.stringify(claims)}, true),
      set_config('realtime.topic', ${topic}, true),
      set_config('role', ${typeof claims?.role === 'string' ? claims.role : 'patchcord_ticket'}, true)`
    return await savepoint<{ extension: string }[]>`
      select extension from realtime.messages where id = any (${probes.map(({ id }) => id as string)}::uuid[])`
  })
  await sql`select set_config('role', 'none', true)`
  assert.ok(!rows?.some(({ extension }) => extension !== 'broadcast'))
  return rows !== null && rows.length === 1
}

/** null for a value that Postgres refuses (SQLSTATE class 22: data exceptions, unknown roles); other errors are defects. */
async function orNull<T>(sql: TransactionSql, work: (savepoint: TransactionSql) => Promise<T>): Promise<T | null> {
  try {
    return (await sql.savepoint(work)) as T
  } catch (error) {
    if (String((error as { code?: unknown }).code).startsWith('22')) return null
    throw error
  }
}

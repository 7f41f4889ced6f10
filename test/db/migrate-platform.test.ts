import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Sql } from '../../server/db/connect.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'

let database: TestDatabase
before(async () => {
  database = await createTestDatabase({ migrated: false })
})
after(() => database.drop())

test('realtime.messages has the real columns, owner, row-level security and grants', async () => {
  const { admin } = database
  const columns = await admin<{ name: string; type: string }[]>`
      select attname as name, format_type(atttypid, atttypmod) as type from pg_attribute
      where attrelid = 'realtime.messages'::regclass and attnum > 0 order by attnum`
  assert.deepEqual(
    columns.map(({ name, type }) => `${name} ${type}`),
    [
      'topic text',
      'extension text',
      'payload jsonb',
      'event text',
      'private boolean',
      'updated_at timestamp without time zone',
      'inserted_at timestamp without time zone',
      'id uuid',
    ],
  )
  const [table] = await admin`
      select pg_get_userbyid(relowner) as owner, relrowsecurity as rls, relforcerowsecurity as forced, relkind as kind
      from pg_class where oid = 'realtime.messages'::regclass`
  assert.deepEqual({ ...table }, { owner: 'supabase_realtime_admin', rls: true, forced: false, kind: 'p' })
  const grants = await admin<{ grantee: string; privileges: string }[]>`
      select grantee::regrole::text as grantee, string_agg(privilege_type, ',' order by privilege_type) as privileges
      from pg_class c, aclexplode(c.relacl)
      where c.oid = 'realtime.messages'::regclass and grantee <> c.relowner group by 1 order by 1`
  assert.deepEqual(Object.fromEntries(grants.map(({ grantee, privileges }) => [grantee, privileges])), {
    anon: 'INSERT,SELECT,UPDATE',
    authenticated: 'INSERT,SELECT,UPDATE',
    postgres: 'DELETE,INSERT,REFERENCES,SELECT,TRIGGER,TRUNCATE,UPDATE',
    service_role: 'INSERT,SELECT,UPDATE',
  })
})

test('postgres owns the database and its publication, and is no superuser', async () => {
  const [found] = await database.admin`
      select rolsuper, rolcreaterole, rolbypassrls,
        (select pg_get_userbyid(pubowner) from pg_publication where pubname = 'supabase_realtime') as publication,
        (select pg_get_userbyid(datdba) from pg_database where datname = current_database()) as database
      from pg_roles where rolname = 'postgres'`
  assert.deepEqual(
    { ...found },
    {
      rolsuper: false,
      rolcreaterole: true,
      rolbypassrls: true,
      publication: 'postgres',
      database: 'postgres',
    },
  )
})

test('postgres may make policies on realtime.messages and nothing else in that schema', async () => {
  const { admin } = database
  await admin`create policy test_policy on realtime.messages for select to authenticated using (true)`
  await admin`alter policy test_policy on realtime.messages using (false)`
  const refused = [
    'alter table realtime.messages add column more text',
    'alter table realtime.messages disable row level security',
    'create table realtime.more ()',
    "comment on policy test_policy on realtime.messages is 'x'",
    'create or replace function realtime.topic() returns text language sql as $$ select null $$',
    'create trigger test_trigger after insert on realtime.messages execute function suppress_redundant_updates_trigger()',
  ]
  for (const statement of refused) {
    await assert.rejects(admin.unsafe(statement), { code: '42501' }, statement)
  }
  await admin`drop policy test_policy on realtime.messages`
})

test('claims are read from the request, and a reset setting is no claim', async () => {
  const claims = { sub: '0190a2b4-0000-7000-8000-000000000001', role: 'patchcord_ticket', ns: 'x' }
  const read = (sql: Sql) =>
    sql`select auth.uid() as uid, auth.role() as role, auth.jwt() as jwt, realtime.topic() as topic`
  const inside = await database.admin.begin(async (sql) => {
    await sql`select set_config('request.jwt.claims', ${JSON.stringify(claims)}, true), set_config('realtime.topic', 'a:b', true)`
    const [row] = await read(sql as unknown as Sql)
    return { ...row }
  })
  assert.deepEqual(inside, { uid: claims.sub, role: claims.role, jwt: claims, topic: 'a:b' })
  const connection = await database.admin.reserve()
  try {
    await connection`select set_config('request.jwt.claims', '', false)`
    const [row] = await read(connection as unknown as Sql)
    assert.deepEqual({ ...row }, { uid: null, role: null, jwt: null, topic: null })
  } finally {
    connection.release()
  }
})

test('realtime.send swallows the refusal of an invoker and arrives from a definer that postgres owns', async () => {
  const { admin, superuser } = database
  await admin.unsafe(`
      create function public.send_as_owner() returns void language sql security definer set search_path = ''
        as $$ select realtime.send('{"text":"definer"}', 'wake', 'agent:a:b') $$`)
  const send = (statement: string) =>
    admin.begin(async (sql) => {
      await sql`set local role authenticated`
      await sql.unsafe(statement)
    })
  await send(`select realtime.send('{"text":"invoker"}', 'wake', 'agent:a:b')`)
  await send('select public.send_as_owner()')
  await admin`select realtime.send('{"text":"own id","id":"mine"}', 'wake', 'agent:a:b', false)`
  const rows = await superuser`
      select payload ->> 'text' as text, payload ->> 'id' = id::text as injected, topic, event, extension, private
      from realtime.messages order by inserted_at`
  const common = { topic: 'agent:a:b', event: 'wake', extension: 'broadcast' }
  assert.deepEqual(
    rows.map((row) => ({ ...row })),
    [
      { text: 'definer', injected: true, ...common, private: true },
      { text: 'own id', injected: false, ...common, private: false },
    ],
  )
  await admin`drop function public.send_as_owner()`
})

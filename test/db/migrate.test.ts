import assert from 'node:assert/strict'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { connect, type Sql } from '../../server/db/connect.ts'
import { migrate, setApiPassword, supabaseFolder } from '../../server/db/migrate.ts'
import { splitStatements } from '../../server/db/statements.ts'
import { StartError } from '../../server/errors.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'

const MIGRATIONS = join(supabaseFolder(), 'migrations')
const DATABASES_AT_ONCE = 10

async function createDatabase(t: TestContext, options?: { migrated: boolean }): Promise<TestDatabase> {
  const database = await createTestDatabase(options)
  t.after(() => database.drop())
  return database
}

/** A folder of migrations: file name to script. */
async function createFolder(t: TestContext, files: Record<string, string>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'patchcord-migrations-'))
  t.after(() => rm(folder, { recursive: true }))
  for (const [name, script] of Object.entries(files)) await writeFile(join(folder, name), script)
  return folder
}

async function listVersions(sql: Sql): Promise<string[]> {
  const rows = await sql<
    { version: string }[]
  >`select version from supabase_migrations.schema_migrations order by version`
  return rows.map(({ version }) => version)
}

function isSentence(start: RegExp) {
  return (error: unknown) => {
    assert.ok(error instanceof StartError)
    assert.match(error.message, start)
    assert.doesNotMatch(error.message, /\n/)
    return true
  }
}

test('migrating a migrated database changes nothing', async (t) => {
  const { admin } = await createDatabase(t)
  const before = await admin`select * from supabase_migrations.schema_migrations order by version`
  assert.deepEqual(await migrate(admin), { applied: [] })
  assert.deepEqual(await admin`select * from supabase_migrations.schema_migrations order by version`, before)
})

test('every file of the migrations folder is applied, in order, by a role that is no superuser', async (t) => {
  const { admin } = await createDatabase(t, { migrated: false })
  const files = (await readdir(MIGRATIONS)).filter((name) => name.endsWith('.sql')).sort()
  const { applied } = await migrate(admin)
  assert.deepEqual(
    applied,
    files.map((name) => name.split('_')[0]),
  )
  const [role] = await admin`select current_user as name, rolsuper from pg_roles where rolname = current_user`
  assert.deepEqual({ ...role }, { name: 'postgres', rolsuper: false })
})

test('the history is the one of the Supabase CLI: version, name and the single statements', async (t) => {
  const { admin } = await createDatabase(t, { migrated: false })
  const folder = await createFolder(t, {
    '20200101000000_first_things.sql':
      "create table public.a (t text default ';');\n\n-- why\ncreate table public.b ();\n",
  })
  await migrate(admin, undefined, folder)
  const columns = await admin`
      select column_name as name, data_type as type, is_nullable as nullable from information_schema.columns
      where table_schema = 'supabase_migrations' and table_name = 'schema_migrations' order by ordinal_position`
  assert.deepEqual(
    columns.map((column) => Object.values(column)),
    [
      ['version', 'text', 'NO'],
      ['statements', 'ARRAY', 'YES'],
      ['name', 'text', 'YES'],
    ],
  )
  const rows = await admin`select version, name, statements from supabase_migrations.schema_migrations`
  assert.deepEqual(
    rows.map((row) => ({ ...row })),
    [
      {
        version: '20200101000000',
        name: 'first_things',
        statements: ["create table public.a (t text default ';')", '-- why\ncreate table public.b ()'],
      },
    ],
  )
})

test('what the Supabase CLI has applied, statement by statement, is not applied again', async (t) => {
  const { admin } = await createDatabase(t, { migrated: false })
  await admin`create schema supabase_migrations`
  await admin`create table supabase_migrations.schema_migrations (version text not null primary key)`
  await admin`alter table supabase_migrations.schema_migrations add column statements text[], add column name text`
  for (const file of (await readdir(MIGRATIONS)).sort()) {
    const statements = splitStatements(await readFile(join(MIGRATIONS, file), 'utf8'))
    await admin.begin(async (sql) => {
      for (const statement of statements) await sql.unsafe(statement, [], { prepare: true })
      await sql`insert into supabase_migrations.schema_migrations (version) values (${file.split('_')[0] ?? ''})`
    })
  }
  assert.deepEqual(await migrate(admin), { applied: [] })
})

test('ten servers that start on one database apply each migration once', async (t) => {
  const { admin, adminTarget } = await createDatabase(t, { migrated: false })
  const pools = Array.from({ length: 10 }, () => connect(adminTarget, { max: 1, applicationName: 'test' }))
  const results = await Promise.all(pools.map((pool) => migrate(pool)))
  await Promise.all(pools.map((pool) => pool.end()))
  assert.deepEqual(results.flatMap(({ applied }) => applied).sort(), await listVersions(admin))
})

test('ten databases migrate at once although they share the roles that the migrations make', async (t) => {
  const folder = await createFolder(t, {
    '1_roles.sql': `do $$ begin
          if to_regrole('test_race') is null then create role test_race nologin; end if;
        end $$;
        grant authenticated to test_race;
        alter role test_race set statement_timeout = '8s';
        grant test_race to postgres;`,
    '2_drop.sql': 'create table public.t (); grant select on public.t to test_race;',
  })
  const databases = await Promise.all(
    Array.from({ length: DATABASES_AT_ONCE }, () => createDatabase(t, { migrated: false })),
  )
  const results = await Promise.all(databases.map(({ admin }) => migrate(admin, undefined, folder)))
  assert.deepEqual(new Set(results.map(({ applied }) => applied.join())), new Set(['1,2']))
  await Promise.all(databases.map(({ admin }) => admin`drop table public.t`))
  await databases[0]?.superuser.unsafe('drop role test_race')
})

test('a database that is ahead of the code is refused in one sentence and left alone', async (t) => {
  const { admin } = await createDatabase(t, { migrated: false })
  await migrate(
    admin,
    undefined,
    await createFolder(t, { '20990101000000_future.sql': 'create table public.future ();' }),
  )
  await assert.rejects(migrate(admin), isSentence(/^The database is ahead of this Patchcord .*20990101000000/))
  assert.deepEqual(await listVersions(admin), ['20990101000000'])
  const [schema] = await admin`select to_regnamespace('patchcord') as patchcord`
  assert.equal(schema?.patchcord, null)
})

test('a migration that fails leaves nothing of itself, and the corrected one goes on from there', async (t) => {
  const { admin } = await createDatabase(t, { migrated: false })
  const folder = await createFolder(t, {
    '1_good.sql': 'create table public.good ();',
    '2_bad.sql': 'create table public.half (); create table public.good ();',
    '3_later.sql': 'create table public.later ();',
  })
  await assert.rejects(
    migrate(admin, undefined, folder),
    isSentence(/^Migration 2_bad failed and was undone: .*"good"/),
  )
  assert.deepEqual(await listVersions(admin), ['1'])
  const [tables] = await admin`select to_regclass('public.half') as half, to_regclass('public.later') as later`
  assert.deepEqual({ ...tables }, { half: null, later: null })

  await writeFile(join(folder, '2_bad.sql'), 'create table public.whole ();')
  assert.deepEqual(await migrate(admin, undefined, folder), { applied: ['2', '3'] })
})

test('a database without the schemas of Supabase is refused in one sentence', async (t) => {
  const { admin, superuser } = await createDatabase(t, { migrated: false })
  await superuser`drop schema realtime cascade`
  await assert.rejects(migrate(admin), isSentence(/^The database lacks the schemas auth and realtime/))
})

test('the password of the API role reaches the database as a verifier and logs in', async (t) => {
  const { admin, superuser, apiTarget } = await createDatabase(t)
  const [kept] = await superuser`select rolpassword as verifier from pg_authid where rolname = 'patchcord_api'`
  assert.ok('password' in apiTarget && typeof kept?.verifier === 'string')
  try {
    await setApiPassword(admin, 'a-Second_1')
    await withLogin({ ...apiTarget, password: 'a-Second_1' }, async (sql) => {
      assert.deepEqual([...(await sql`select current_user as name`)], [{ name: 'patchcord_api' }])
    })
    await assert.rejects(
      withLogin(apiTarget, (sql) => sql`select 1`),
      { code: '28P01' },
    )
  } finally {
    await superuser.unsafe(`alter role patchcord_api password '${kept.verifier}'`)
  }
})

async function withLogin(target: Parameters<typeof connect>[0], work: (sql: Sql) => Promise<unknown>): Promise<void> {
  const sql = connect(target, { max: 1, applicationName: 'test' })
  try {
    await work(sql)
  } finally {
    await sql.end()
  }
}

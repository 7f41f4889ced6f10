import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { StartError } from '../errors.ts'
import type { Sql, TransactionSql } from './connect.ts'
import { scramVerifier } from './scram.ts'
import { splitStatements } from './statements.ts'

/** Any fixed numbers do; advisory locks hold in one database. */
const MIGRATE_LOCK = 72_824_001
const ROLES_LOCK = 72_824_002
const MIGRATION_NAME = /^([0-9]+)_(.*)\.sql$/
const PLATFORM_PARTS = /^-- == once per (?:cluster|database) ==$/m

/** Roles are shared by all databases of a cluster: what two of them do to one role at once fails for the later one. */
const ROLE_RACES = new Set(['XX000', '42710', '23505'])
const RACE_TRIES_MAX = 8
const RACE_PAUSE_MS = 40

interface Migration {
  version: string
  name: string
  script: string
}

/**
 * Brings the database to the newest migration, each in a transaction of its own, recorded as the Supabase CLI does, so
 * that either tool knows the other's work. `admin` is the owner, no superuser. Throws StartError when the database holds
 * a migration that this code does not know, lacks Supabase's schemas, or when a migration fails.
 */
export async function migrate(
  admin: Sql,
  log: (line: string) => void = () => {},
  folder: string = join(supabaseFolder(), 'migrations'),
): Promise<{ applied: string[] }> {
  const migrations = await loadMigrations(folder)
  const known = await retryRaces(() => admin.begin((sql) => prepareHistory(sql)))
  requireKnown(migrations, known)
  const applied: string[] = []
  for (const migration of migrations.filter(({ version }) => !known.has(version))) {
    const isApplied = await retryRaces(() => admin.begin((sql) => apply(sql, migration)))
    if (!isApplied) continue
    applied.push(migration.version)
    log(`migration ${migration.version}_${migration.name} applied`)
  }
  return { applied }
}

/** For whoever brings a database of their own: Supabase's schemas first where `admin` may make them, then `migrate`. */
export async function migrateExternal(
  admin: Sql,
  log: (line: string) => void = () => {},
): Promise<{ applied: string[] }> {
  const [role] = await admin`select rolsuper as "isSuperuser" from pg_catalog.pg_roles where rolname = current_user`
  if (role?.isSuperuser) await ensurePlatform(admin)
  return await migrate(admin, log)
}

async function loadMigrations(folder: string): Promise<Migration[]> {
  const names = (await readdir(folder)).filter((name) => MIGRATION_NAME.test(name)).sort()
  return Promise.all(
    names.map(async (file) => {
      const [, version = '', name = ''] = MIGRATION_NAME.exec(file) ?? []
      return { version, name, script: await readFile(join(folder, file), 'utf8') }
    }),
  )
}

/** The versions that are applied. Nothing is written where the Supabase CLI or an earlier start has made the table. */
async function prepareHistory(sql: TransactionSql): Promise<Set<string>> {
  await sql`select pg_advisory_xact_lock(${MIGRATE_LOCK})`
  const [state] = await sql<{ isSupabase: boolean; hasHistory: boolean }[]>`
    select to_regnamespace('auth') is not null and to_regnamespace('realtime') is not null as "isSupabase",
      to_regclass('supabase_migrations.schema_migrations') is not null as "hasHistory"`
  if (!state?.isSupabase) {
    throw new StartError(
      'The database lacks the schemas auth and realtime of Supabase: migrate it once with DATABASE_ADMIN_URL of a superuser.',
    )
  }
  if (!state.hasHistory) {
    await sql`create schema if not exists supabase_migrations`
    await sql`create table supabase_migrations.schema_migrations (version text not null primary key, statements text[], name text)`
  }
  const rows = await sql<{ version: string }[]>`select version from supabase_migrations.schema_migrations`
  return new Set(rows.map(({ version }) => version))
}

function requireKnown(migrations: Migration[], applied: Set<string>): void {
  const own = new Set(migrations.map(({ version }) => version))
  const unknown = [...applied].filter((version) => !own.has(version)).sort()
  if (unknown.length === 0) return
  throw new StartError(
    `The database is ahead of this Patchcord (it has migration ${unknown.at(-1)}): update Patchcord, or restore the database.`,
  )
}

/** false when another server has applied it meanwhile. */
async function apply(sql: TransactionSql, { version, name, script }: Migration): Promise<boolean> {
  await sql`select pg_advisory_xact_lock(${MIGRATE_LOCK})`
  const [found] = await sql`select from supabase_migrations.schema_migrations where version = ${version}`
  if (found) return false
  try {
    await sql.unsafe(script).simple()
  } catch (error) {
    if (isRoleRace(error)) throw error
    throw new StartError(`Migration ${version}_${name} failed and was undone: ${(error as Error).message}.`, {
      cause: error,
    })
  }
  await sql`
    insert into supabase_migrations.schema_migrations (version, name, statements)
    values (${version}, ${name}, ${splitStatements(script)})`
  return true
}

/** The roles of every Supabase project, once per cluster: `superuser` is connected to the database `postgres`. */
export async function ensureRoles(superuser: Sql): Promise<void> {
  const [roles = ''] = await loadPlatform()
  await retryRaces(() =>
    superuser.begin(async (sql) => {
      await sql`select pg_advisory_xact_lock(${ROLES_LOCK})`
      await sql.unsafe(roles).simple()
    }),
  )
}

/**
 * Supabase's schemas where the database has neither of them; on Supabase nothing happens. Databases of one cluster that
 * are prepared at the same time call `ensureRoles` first.
 */
export async function ensurePlatform(superuser: Sql): Promise<void> {
  const [roles = '', schemas = ''] = await loadPlatform()
  await retryRaces(() =>
    superuser.begin(async (sql) => {
      await sql`select pg_advisory_xact_lock(${ROLES_LOCK})`
      const [found] = await sql`
        select from pg_catalog.pg_namespace where nspname in ('auth', 'realtime')`
      if (found) return
      const [missing] = await sql`select where to_regrole('supabase_realtime_admin') is null`
      if (missing) await sql.unsafe(roles).simple()
      await sql.unsafe(schemas).simple()
    }),
  )
}

async function loadPlatform(): Promise<string[]> {
  const text = await readFile(join(supabaseFolder(), 'embedded', 'platform.sql'), 'utf8')
  return text.split(PLATFORM_PARTS).slice(1)
}

/** Gives the API's login role a password: ASCII, and known to the database as a SCRAM verifier only. */
export async function setApiPassword(admin: Sql, password: string): Promise<void> {
  await setRolePassword(admin, 'patchcord_api', password)
}

export async function setRolePassword(admin: Sql, role: string, password: string): Promise<void> {
  await retryRaces(() => admin.unsafe(`alter role "${role}" password '${scramVerifier(password)}'`))
}

/** The folder `supabase` of the project, seen from the sources and from the build alike. */
export function supabaseFolder(): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); folder !== dirname(folder); folder = dirname(folder)) {
    if (existsSync(join(folder, 'supabase', 'migrations'))) return join(folder, 'supabase')
  }
  throw new StartError('The folder supabase/migrations is missing: this installation of Patchcord is incomplete.')
}

async function retryRaces<T>(work: () => PromiseLike<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work()
    } catch (error) {
      if (tries >= RACE_TRIES_MAX || !isRoleRace(error)) throw error
      await sleep(Math.random() * RACE_PAUSE_MS * tries)
    }
  }
}

function isRoleRace(error: unknown): boolean {
  const { code = '', message = '' } = error as { code?: string; message?: string }
  if (code === 'XX000') return message.includes('tuple concurrently')
  return ROLE_RACES.has(code) && /pg_authid|pg_auth_members|pg_db_role_setting|role/.test(message)
}

import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type ConnectionTarget, connect, type Sql } from '../../server/db/connect.ts'
import { ensurePlatform, migrate, supabaseFolder } from '../../server/db/migrate.ts'
import { getCluster } from './cluster.ts'

const POOL_MAX = { superuser: 2, admin: 4, api: 10 }

export interface TestDatabase {
  name: string
  superuser: Sql
  /** Role `postgres`: owns everything, no superuser. */
  admin: Sql
  /** Role `patchcord_api`: what the server works with. */
  api: Sql
  adminTarget: ConnectionTarget
  apiTarget: ConnectionTarget
  drop(): Promise<void>
}

const templates = new Map<boolean, Promise<string>>()
let count = 0

/**
 * A migrated, empty database of its own for one suite, cloned from a template in about 0.2 s; without `migrated` it has
 * Supabase's schemas only. `drop` it afterwards.
 */
export async function createTestDatabase({ migrated = true } = {}): Promise<TestDatabase> {
  const template = templates.get(migrated) ?? createTemplate(migrated)
  templates.set(migrated, template)
  const source = await template
  const name = `test_${process.pid}_${++count}`
  await asSuperuser('postgres', (sql) => sql`create database ${sql(name)} template ${sql(source)} owner postgres`)
  const cluster = await getCluster()
  const targets = {
    superuser: { ...cluster.superuser, database: name },
    admin: { ...cluster.admin, database: name },
    api: { ...cluster.api, database: name },
  }
  const open = (role: keyof typeof POOL_MAX) =>
    connect(targets[role], { max: POOL_MAX[role], applicationName: `test-${role}` })
  const pools = { superuser: open('superuser'), admin: open('admin'), api: open('api') }
  return {
    name,
    ...pools,
    adminTarget: targets.admin,
    apiTarget: targets.api,
    drop: () => drop(name, Object.values(pools)),
  }
}

async function drop(name: string, pools: Sql[]): Promise<void> {
  await Promise.all(pools.map((pool) => pool.end({ timeout: 1 })))
  await asSuperuser('postgres', (sql) => sql`drop database if exists ${sql(name)} with (force)`)
}

async function createTemplate(migrated: boolean): Promise<string> {
  const name = `template_${migrated ? 'migrated' : 'platform'}_${await hashSupabase()}`
  await asSuperuser('postgres', async (sql) => {
    await sql`drop database if exists ${sql(name)} with (force)`
    await sql`create database ${sql(name)} owner postgres`
  })
  await asSuperuser(name, ensurePlatform)
  const { admin } = await getCluster()
  if (migrated) await withPool({ ...admin, database: name }, (sql) => migrate(sql))
  return name
}

/** Of every file that decides what the template holds. */
async function hashSupabase(): Promise<string> {
  const hash = createHash('sha256')
  for (const path of (await readdir(supabaseFolder(), { recursive: true })).sort()) {
    if (path.endsWith('.sql')) hash.update(path).update(await readFile(join(supabaseFolder(), path)))
  }
  return hash.digest('hex').slice(0, 16)
}

async function asSuperuser<T>(database: string, work: (sql: Sql) => Promise<T>): Promise<T> {
  const { superuser } = await getCluster()
  return withPool({ ...superuser, database }, work)
}

async function withPool<T>(target: ConnectionTarget, work: (sql: Sql) => Promise<T>): Promise<T> {
  const sql = connect(target, { max: 1, applicationName: 'test-setup' })
  try {
    return await work(sql)
  } finally {
    await sql.end()
  }
}

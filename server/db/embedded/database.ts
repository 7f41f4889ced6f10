import { type ConnectionTarget, connect, type Sql } from '../connect.ts'
import { ensurePlatform, ensureRoles, migrate, setRolePassword } from '../migrate.ts'

export const DATABASE = 'patchcord'

export interface Login {
  host: string
  port: number
  user: string
  password: string
  database: string
}
export type Targets = Record<'superuser' | 'admin' | 'api', Login>

interface PrepareOptions {
  log(line: string): void
  migrations?: string | undefined
}

/** Roles, database, platform, migrations and passwords: each step finishes what an interrupted start began. */
export async function prepareDatabase(targets: Targets, options: PrepareOptions): Promise<void> {
  await withConnection({ ...targets.superuser, database: 'postgres' }, async (superuser) => {
    await ensureRoles(superuser)
    await setRolePassword(superuser, 'postgres', targets.admin.password)
    const [found] = await superuser`select from pg_catalog.pg_database where datname = ${DATABASE}`
    if (!found) await superuser`create database ${superuser(DATABASE)} owner postgres`
  })
  await withConnection(targets.superuser, ensurePlatform)
  await withConnection(targets.admin, async (admin) => {
    await migrate(admin, options.log, options.migrations)
    await setRolePassword(admin, 'patchcord_api', targets.api.password)
  })
}

async function withConnection<T>(target: ConnectionTarget, work: (sql: Sql) => Promise<T>): Promise<T> {
  const sql = connect(target, { max: 1, applicationName: 'patchcord-start' })
  try {
    return await work(sql)
  } finally {
    await sql.end()
  }
}

import { realpath } from 'node:fs/promises'
import type { ConnectionTarget } from '../connect.ts'
import { chooseAccount } from './account.ts'
import { prepareBinaries } from './binaries.ts'
import { adoptOwner, clusterFolder, createCluster, hasCluster, requireFitting } from './cluster.ts'
import { prepareDataFolder, requireReachable } from './data-folder.ts'
import { DATABASE, prepareDatabase, type Targets } from './database.ts'
import { acquireLock } from './lock.ts'
import { stopOrphan } from './orphan.ts'
import { startPostmaster } from './postmaster.ts'
import { findRunning } from './postmaster-file.ts'
import { findPasswords, type Passwords, readOrCreatePasswords } from './secrets.ts'
import { choosePlace, type Place } from './socket-place.ts'

export { readAddress, removeAddress, writeAddress } from './address-file.ts'
export { readOrCreateSigningSecret } from './secrets.ts'

export interface Embedded {
  superuser: ConnectionTarget
  /** Role `postgres`, no superuser, like the owner of a Supabase project: migrations and operator verbs. */
  admin: ConnectionTarget
  /** Role `patchcord_api`: what the server works with. */
  api: ConnectionTarget
  /** A fast stop. The caller drains first: open connections are cut off. */
  stop(): Promise<void>
}

export interface EmbeddedOptions {
  dataDir: string
  log(line: string): void
  /** Other binaries than the installed package's, laid out like its folder `native`. */
  nativeDir?: string | undefined
  /** Settings of Postgres beside ours. */
  settings?: Record<string, string>
  /** Another folder of migrations. */
  migrations?: string
}

/**
 * Postgres in the data folder, migrated and ready. What an interrupted start or a killed server left is finished or
 * stopped first. Throws StartError, and then nothing runs and the data is as it was.
 */
export async function startEmbedded(options: EmbeddedOptions): Promise<Embedded> {
  const dataDir = await prepareDataFolder(options.dataDir)
  const unlock = await acquireLock(dataDir)
  try {
    const { place, passwords, stop } = await startCluster({ ...options, dataDir })
    const targets = describeTargets(place, passwords)
    try {
      await prepareDatabase(targets, options)
    } catch (error) {
      await stop()
      throw error
    }
    return { ...targets, stop: () => stop().finally(unlock) }
  } catch (error) {
    await unlock()
    throw error
  }
}

/** The database of a data folder whose server is running, for operator verbs and measurements beside it; null when it is not. */
export async function findEmbedded(dataDir: string): Promise<Pick<Embedded, 'admin' | 'api'> | null> {
  const passwords = await findPasswords(dataDir)
  if (!passwords) return null
  const file = await findRunning(clusterFolder(await realpath(dataDir)))
  return file?.isReady ? describeTargets(file, passwords) : null
}

async function startCluster(options: EmbeddedOptions) {
  const { dataDir } = options
  const folder = clusterFolder(dataDir)
  const account = await chooseAccount(folder)
  await requireReachable(dataDir, account)
  const binaries = await prepareBinaries({ dataDir, account, nativeDir: options.nativeDir })
  const isNew = !(await hasCluster(dataDir))
  if (!isNew) await requireFitting(dataDir, binaries.majorVersion)
  const passwords = await readOrCreatePasswords(dataDir)
  if (isNew) await createCluster({ dataDir, account, binaries, password: passwords.supabase_admin })
  await adoptOwner(folder, account)
  await stopOrphan({ folder, account, binaries, log: options.log })
  const place = await choosePlace(dataDir, account)
  const { log, settings = {} } = options
  try {
    const postmaster = await startPostmaster({ dataDir, account, binaries, place, settings, log })
    return { place, passwords, stop: () => postmaster.stop().finally(place.remove) }
  } catch (error) {
    await place.remove()
    throw error
  }
}

function describeTargets({ host, port }: Pick<Place, 'host' | 'port'>, passwords: Passwords): Targets {
  const as = (user: keyof Passwords) => ({ host, port, user, password: passwords[user], database: DATABASE })
  return { superuser: as('supabase_admin'), admin: as('postgres'), api: as('patchcord_api') }
}

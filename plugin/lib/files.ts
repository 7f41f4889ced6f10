import { createHash, randomBytes } from 'node:crypto'
import type { Stats } from 'node:fs'
import {
  chmod,
  chown,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  realpath,
  rename,
  rm,
  rmdir,
  stat,
} from 'node:fs/promises'
import { basename, dirname, join, sep } from 'node:path'
import { CommandError } from './errors.ts'

const FILE_BYTES_MAX = 1024 * 1024
/** Ours only: the names that this file, the lock and the record of trusted servers give. */
const TEMPORARY =
  /^(?:\.patchcord-[0-9a-f]{12}|\.(?:connections|\.mcp)\.json\.[0-9a-f]+|trusted\.json\.\d+|connections\.lock\.[0-9a-f]{12})\.tmp$/
const TEMPORARY_MS_MIN = 60_000
const OTHERS_WRITE = 0o022

export const PRIVATE_FILE = 0o600
export const PRIVATE_FOLDER = 0o700

/** The file behind a path: through symlinks, and the path itself where nothing is. Throws for a symlink that leads nowhere. */
export async function resolveFile(path: string): Promise<string> {
  try {
    return await realpath(path)
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error
  }
  const link = await lstat(path).catch(() => null)
  if (link === null) return join(await resolveFolder(dirname(path)), basename(path))
  throw brokenLink(path)
}

async function resolveFolder(path: string): Promise<string> {
  try {
    return await realpath(path)
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error
    if (await isLink(path)) throw brokenLink(path)
    return path
  }
}

export async function isLink(path: string): Promise<boolean> {
  return await lstat(path).then(
    (stats) => stats.isSymbolicLink(),
    () => false,
  )
}

/** Both real paths. */
export function isWithin(file: string, folder: string): boolean {
  return file.startsWith(folder.endsWith(sep) ? folder : folder + sep)
}

function brokenLink(path: string): CommandError {
  return new CommandError('broken_link', `${path} is a symlink that leads nowhere. It was left alone.`, {
    hint: 'Remove it or make its target, then try again.',
  })
}

/** Its bytes; null where there is no file. Throws where it is no plain file, or too large to be a configuration. */
export async function readBytes(file: string): Promise<Buffer | null> {
  const stats = await stat(file).catch((error) => {
    if (hasCode(error, 'ENOENT') || hasCode(error, 'ENOTDIR')) return null
    throw error
  })
  if (stats === null) return null
  if (stats.isFile() && stats.size <= FILE_BYTES_MAX) return await readFile(file)
  throw new CommandError(
    'unreadable',
    `${file} is ${stats.isFile() ? 'larger than 1 MiB' : 'not a file'}. It was left alone.`,
    {
      hint: 'Move it away, then try again.',
    },
  )
}

/** UTF-8 with its byte order mark, so that it can be written again byte by byte. Throws for anything else. */
export function decode(file: string, bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    throw new CommandError('unreadable', `${file} is not text in UTF-8. It was left alone.`, {
      hint: 'Save it as UTF-8, then try again.',
    })
  }
}

export function hashOf(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

export function isSame(one: Buffer | null, other: Buffer | null): boolean {
  return one === null || other === null ? one === other : one.equals(other)
}

/** Somebody else has written to a file while it was worked on. */
export class FileChanged extends Error {
  readonly file: string

  constructor(file: string) {
    super(`${file} was changed by somebody else`)
    this.file = file
  }
}

/**
 * Writes through a temporary file beside it, so that a reader sees the old or the new text and a full disk costs nothing.
 * A file that is there keeps its mode and owner; a new one gets `mode`. Throws FileChanged, with nothing written, where the
 * file does not hold what is `expected`.
 */
export async function writeFileSafely(
  file: string,
  bytes: Buffer,
  mode: number,
  expected?: Buffer | null,
): Promise<void> {
  const old = await stat(file).catch(() => null)
  const folder = join(dirname(file), `.patchcord-${randomBytes(6).toString('hex')}.tmp`)
  const temporary = join(folder, 'new')
  try {
    await mkdir(folder, { mode: PRIVATE_FOLDER })
    // Whatever ends us here: git must not see what the file holds.
    await writeNew(join(folder, '.gitignore'), Buffer.from('*\n'))
    await writeNew(temporary, bytes)
    if (old !== null && old.uid !== process.getuid?.()) await chown(temporary, old.uid, old.gid)
    await chmod(temporary, old === null ? mode : old.mode & 0o7777)
    if (expected !== undefined && !isSame(await readBytes(file), expected)) throw new FileChanged(file)
    await rename(temporary, file)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

async function writeNew(file: string, bytes: Buffer): Promise<void> {
  const handle = await open(file, 'wx', PRIVATE_FILE)
  try {
    await handle.writeFile(bytes)
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Removes from a folder what a run that was killed has left there. Another run may be at work: what is new stays. */
export async function sweepTemporary(folder: string): Promise<void> {
  const names = await readdir(folder).catch(() => [])
  for (const name of names.filter((each) => TEMPORARY.test(each))) {
    const path = join(folder, name)
    const stats = await lstat(path).catch(() => null)
    if (stats === null || !isMine(stats) || Date.now() - stats.mtimeMs < TEMPORARY_MS_MIN) continue
    if (stats.isFile() || stats.isDirectory()) await rm(path, { recursive: true, force: true })
  }
}

/** A folder that only this user writes to. Throws where the path is a symlink, another user's, or open to others. */
export async function makePrivateFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: PRIVATE_FOLDER })
  const stats = await lstat(folder)
  if (!stats.isDirectory() || !isMine(stats)) {
    throw new CommandError('unsafe_folder', `${folder} is not a folder of yours.`, {
      hint: 'Move it away, then try again.',
    })
  }
  if (!isOpenToOthers(stats)) return
  throw new CommandError('unsafe_folder', `Others on this machine can write into ${folder}. Nothing was changed.`, {
    hint: `If all in it is yours: chmod 700 ${folder}`,
  })
}

/** The text of a file that nobody else can have written; null where there is none. */
export async function readPrivateFile(file: string): Promise<string | null> {
  const stats = await lstat(file).catch((error) => {
    if (hasCode(error, 'ENOENT')) return null
    throw error
  })
  if (stats === null) return null
  if (stats.isFile() && isMine(stats) && !isOpenToOthers(stats)) return await readFile(file, 'utf8')
  throw new CommandError('unsafe_file', `${file} could have been written by somebody else. Nothing was changed.`, {
    hint: 'It must be a file of yours that others cannot write to: look into it, then chmod 600 it or move it away.',
  })
}

function isMine(stats: Stats): boolean {
  return process.getuid === undefined || stats.uid === process.getuid()
}

function isOpenToOthers(stats: Stats): boolean {
  return process.platform !== 'win32' && (stats.mode & OTHERS_WRITE) !== 0
}

/** Removes a folder if nothing is left in it. */
export async function removeEmptyFolder(folder: string): Promise<void> {
  try {
    await rmdir(folder)
  } catch (error) {
    if (!['ENOTEMPTY', 'EEXIST', 'ENOENT'].some((code) => hasCode(error, code))) throw error
  }
}

export function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}

import { createHash, randomBytes } from 'node:crypto'
import { constants, type Stats } from 'node:fs'
import {
  type FileHandle,
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
import { describeOwner, hasEnded } from './owner.ts'

const FILE_BYTES_MAX = 1024 * 1024
/** Ours only: the names that the lock and the record of trusted servers give, and this file gave once. */
const TEMPORARY =
  /^(?:\.(?:connections|\.mcp)\.json\.[0-9a-f]+|trusted\.json\.\d+|connections\.lock\.[0-9a-f]{12})\.tmp$/
/** The name that this file gives; whose it is stands in it. */
const TEMPORARY_OF_OWNER = /^\.patchcord-[0-9a-f]{12}\.tmp$/
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

/** False only where it is certain that nothing is. */
export async function isThere(path: string): Promise<boolean> {
  return await lstat(path).then(
    () => true,
    (error) => !['ENOENT', 'ENOTDIR'].some((code) => hasCode(error, code)),
  )
}

/** Both real paths. */
export function isWithin(file: string, folder: string): boolean {
  return file.startsWith(folder.endsWith(sep) ? folder : folder + sep)
}

/** Throws where a symlink has come into the way of a file since its real path was noted. */
export async function checkInPlace(file: string): Promise<void> {
  const real = await resolveFile(file)
  if (real === file) return
  throw new CommandError('outside', `${file} leads to ${real} by now. Nothing was changed.`, {
    hint: 'Take the symlink out of the way, then try again.',
  })
}

/** Throws where there is a file and it is another user's: it would go on being theirs, with what we write in it. */
export async function checkOwner(file: string): Promise<void> {
  const stats = await lstat(file).catch((error) => {
    if (hasCode(error, 'ENOENT')) return null
    throw error
  })
  if (stats !== null && !isMine(stats)) throw foreign(file)
}

function foreign(file: string): CommandError {
  return new CommandError('foreign_file', `${file} belongs to another user. Nothing was written.`, {
    hint: 'If it is yours, chown it to you, then try again.',
  })
}

function brokenLink(path: string): CommandError {
  return new CommandError('broken_link', `${path} is a symlink that leads nowhere. It was left alone.`, {
    hint: 'Remove it or make its target, then try again.',
  })
}

/** Its bytes; null where there is no file. Throws where it is no plain file, or too large to be a configuration. */
export async function readBytes(file: string): Promise<Buffer | null> {
  return await withPlainFile(file, FILE_BYTES_MAX, (handle) => handle.readFile())
}

/** Throws as readBytes for what a program that reads it would wait for, or read for long. One that nobody may read is no such. */
export async function checkPlainFile(file: string, bytesMax = FILE_BYTES_MAX): Promise<void> {
  try {
    await withPlainFile(file, bytesMax, async () => null)
  } catch (error) {
    if (!hasCode(error, 'EACCES')) throw error
  }
}

/** What is looked at is what is read, whatever takes its place meanwhile. */
async function withPlainFile<T>(
  file: string,
  bytesMax: number,
  work: (handle: FileHandle) => Promise<T>,
): Promise<T | null> {
  const handle = await openAtOnce(file)
  if (handle === null) return null
  try {
    const stats = await handle.stat()
    if (stats.isFile() && stats.size <= bytesMax) return await work(handle)
    throw unreadable(file, stats.isFile() ? 'larger than 1 MiB' : 'not a file')
  } finally {
    await handle.close()
  }
}

/** O_NONBLOCK: a named pipe in a cloned repository must not hold us for ever. */
async function openAtOnce(file: string): Promise<FileHandle | null> {
  try {
    return await open(file, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0))
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].some((code) => hasCode(error, code))) return null
    // A socket cannot be opened, and where folders cannot either, this is what they say.
    if (['ENXIO', 'EISDIR'].some((code) => hasCode(error, code))) throw unreadable(file, 'not a file')
    throw error
  }
}

function unreadable(file: string, problem: string): CommandError {
  return new CommandError('unreadable', `${file} is ${problem}. It was left alone.`, {
    hint: 'Move it away, then try again.',
  })
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

export interface WriteOptions {
  /** Of a new file. */
  mode: number
  /** What the file must hold until the very moment when it is replaced. */
  expected?: Buffer | null | undefined
  /** What is written is a secret of this user: no file of another one gets it. */
  isOwnOnly?: boolean
}

/**
 * Writes through a temporary file beside it, so that a reader sees the old or the new text and a full disk costs nothing.
 * A file that is there keeps its mode, owner and group; a new one gets `mode`. Throws FileChanged, with nothing written,
 * where the file does not hold what is `expected`.
 */
export async function writeFileSafely(
  file: string,
  bytes: Buffer,
  { mode, expected, isOwnOnly = false }: WriteOptions,
): Promise<void> {
  const old = await stat(file).catch(() => null)
  if (isOwnOnly && old !== null && !isMine(old)) throw foreign(file)
  const folder = join(dirname(file), `.patchcord-${randomBytes(6).toString('hex')}.tmp`)
  const temporary = join(folder, 'new')
  try {
    await mkdir(folder, { mode: PRIVATE_FOLDER })
    // Whatever ends us here: git must not see what the file holds.
    await writeNew(join(folder, '.gitignore'), Buffer.from(`#${describeOwner()}\n*\n`), async () => {})
    await writeNew(temporary, bytes, (handle) => (old === null ? handle.chmod(mode) : makeLike(handle, old)))
    if (expected !== undefined && !isSame(await readBytes(file), expected)) throw new FileChanged(file)
    await rename(temporary, file)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

async function writeNew(file: string, bytes: Buffer, finish: (handle: FileHandle) => Promise<void>): Promise<void> {
  const handle = await open(file, 'wx', PRIVATE_FILE)
  try {
    await handle.writeFile(bytes)
    await finish(handle)
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** The owner and the group first: what was for one group must not be open to another for a moment. */
async function makeLike(handle: FileHandle, old: Stats): Promise<void> {
  const { uid, gid } = await handle.stat()
  let mode = old.mode & 0o7777
  if (uid !== old.uid || gid !== old.gid) {
    try {
      await handle.chown(old.uid, old.gid)
    } catch (error) {
      if (uid !== old.uid || !hasCode(error, 'EPERM')) throw error
      // A group that this user is not in: ours gets what everybody has.
      mode = (mode & 0o5707) | ((mode & 0o007) << 3)
    }
  }
  await handle.chmod(mode)
}

/** Removes from a folder what a run that was killed has left there. Another run may be at work: what is new stays, unless its owner has ended. */
export async function sweepTemporary(folder: string): Promise<void> {
  const names = await readdir(folder).catch(() => [])
  for (const name of names.filter((each) => TEMPORARY.test(each) || TEMPORARY_OF_OWNER.test(each))) {
    const path = join(folder, name)
    const stats = await lstat(path).catch(() => null)
    if (stats === null || !isMine(stats) || !(stats.isFile() || stats.isDirectory())) continue
    const isOld = Date.now() - stats.mtimeMs >= TEMPORARY_MS_MIN
    if (isOld || (stats.isDirectory() && (await isLeft(path)))) await rm(path, { recursive: true, force: true })
  }
}

async function isLeft(folder: string): Promise<boolean> {
  // What cannot be read does not say whose it is: its age decides.
  const note = await readBytes(join(folder, '.gitignore')).catch(() => null)
  return hasEnded(note?.toString('utf8').split('\n')[0]?.slice(1) ?? '') === true
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

export function isMine(stats: Stats): boolean {
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

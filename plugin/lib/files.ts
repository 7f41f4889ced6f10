import { createHash, randomBytes } from 'node:crypto'
import { chmod, chown, lstat, mkdir, open, readFile, realpath, rename, rm, rmdir, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { CommandError } from './errors.ts'

const FILE_BYTES_MAX = 1024 * 1024

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
  if (link === null) return join(await realpath(dirname(path)).catch(() => dirname(path)), basename(path))
  throw new CommandError('broken_link', `${path} is a symlink that leads nowhere. It was left alone.`, {
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

/**
 * Writes through a temporary file in the same folder, so that a reader sees the old or the new text and a full disk costs
 * nothing. A file that is there keeps its mode and owner; a new one gets `mode`.
 */
export async function writeFileSafely(file: string, bytes: Buffer, mode: number): Promise<void> {
  const old = await stat(file).catch(() => null)
  const temporary = join(dirname(file), `.${basename(file)}.${randomBytes(6).toString('hex')}.tmp`)
  try {
    const handle = await open(temporary, 'wx', PRIVATE_FILE)
    try {
      await handle.writeFile(bytes)
      await handle.sync()
    } finally {
      await handle.close()
    }
    if (old !== null && old.uid !== process.getuid?.()) await chown(temporary, old.uid, old.gid)
    await chmod(temporary, old === null ? mode : old.mode & 0o7777)
    await rename(temporary, file)
  } finally {
    await rm(temporary, { force: true })
  }
}

/** A folder that only this user can look into. Throws where the path is a symlink or another user's. */
export async function makePrivateFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: PRIVATE_FOLDER })
  const stats = await lstat(folder)
  const isMine = process.getuid === undefined || stats.uid === process.getuid()
  if (stats.isDirectory() && isMine) return
  throw new CommandError('unsafe_folder', `${folder} is not a folder of yours.`, {
    hint: 'Move it away, then try again.',
  })
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

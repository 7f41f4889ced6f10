import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { isAlive, isPostgresOf } from './process-info.ts'

/** `postmaster.pid`, which Postgres writes into its data folder, line by line (src/include/utils/pidfile.h). */
export interface PostmasterFile {
  pid: number
  port: number
  /** The first socket folder, or the first listen address where it has none. */
  host: string
  isReady: boolean
}

export async function readPostmasterFile(folder: string): Promise<PostmasterFile | null> {
  const text = await readFile(join(folder, 'postmaster.pid'), 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return ''
    throw error
  })
  const lines = text.split('\n').map((line) => line.trim())
  const pid = Number(lines[0])
  if (!Number.isInteger(pid) || pid <= 1) return null
  return { pid, port: Number(lines[3]), host: lines[4] || lines[5] || '', isReady: lines[7] === 'ready' }
}

/** The Postgres that works on this folder (its real path), if any. */
export async function findRunning(folder: string): Promise<PostmasterFile | null> {
  const file = await readPostmasterFile(folder)
  return file && isAlive(file.pid) && isPostgresOf(file.pid, folder) ? file : null
}

/**
 * After a restart of the machine the file may name a stranger that got the same id by chance, and Postgres would refuse to
 * start because of it. A file that names a dead process stays: by it Postgres finds processes of its own that live on.
 * Only for the holder of the data folder's lock.
 */
export async function removeForeign(folder: string): Promise<void> {
  const file = await readPostmasterFile(folder)
  if (file && isAlive(file.pid) && !isPostgresOf(file.pid, folder))
    await rm(join(folder, 'postmaster.pid'), { force: true })
}

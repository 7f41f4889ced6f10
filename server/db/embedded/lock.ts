import { createHash, randomBytes } from 'node:crypto'
import { link, readFile, rm, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { StartError } from '../../errors.ts'
import { isAlive, processStart } from './process-info.ts'
import { writeDurably } from './secrets.ts'

const LOCK_FILE = 'server.lock'
const TRIES_MAX = 100
const RETRY_MS = 20

interface Holder {
  pid: number
  /** Tells a process from a later one with the same id; null where the system does not say. */
  start: string | null
}

/**
 * One server per data folder: a file with the holder's process id and start time, which a later start believes only as
 * long as exactly that process lives. Returns the release; throws StartError when another server holds the folder.
 */
export async function acquireLock(dataDir: string): Promise<() => Promise<void>> {
  const path = join(dataDir, LOCK_FILE)
  const temporary = `${path}.${process.pid}.${randomBytes(6).toString('hex')}`
  const mine = JSON.stringify({
    pid: process.pid,
    start: processStart(process.pid),
    key: randomBytes(6).toString('hex'),
  })
  await writeDurably(temporary, mine)
  try {
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      if (await linkNew(temporary, path)) return () => release(path, mine)
      const found = await readLock(path)
      if (found === null) continue
      requireStale(found, dataDir)
      if (!(await breakStale(path, found, temporary))) await sleep(RETRY_MS)
    }
  } finally {
    await unlink(temporary)
  }
  throw new StartError(`Another Patchcord server is starting on ${dataDir}: try again.`)
}

async function linkNew(temporary: string, path: string): Promise<boolean> {
  try {
    await link(temporary, path)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
}

function requireStale(text: string, dataDir: string): void {
  const holder = parseHolder(text)
  if (!holder || !isHolding(holder)) return
  throw new StartError(
    `Another Patchcord server (process ${holder.pid}) is running on ${dataDir}: stop it, or set PATCHCORD_DATA_DIR to another folder.`,
  )
}

/**
 * Removes a dead server's lock. Only who holds the seal made for exactly this lock may, so that nobody removes the lock
 * that another start has just taken; when the holder of a seal has died over it, a seal made for that one decides.
 * Returns false when another start is at it.
 */
async function breakStale(path: string, text: string, temporary: string): Promise<boolean> {
  const seals: string[] = []
  for (let sealed = text; ; ) {
    const seal = `${path}.${createHash('sha256').update(sealed).digest('hex').slice(0, 16)}`
    seals.push(seal)
    if (await linkNew(temporary, seal)) break
    const owner = await readLock(seal)
    if (owner === null) return false
    const holder = parseHolder(owner)
    if (holder && isHolding(holder)) return false
    sealed = owner
  }
  if ((await readLock(path)) === text) await unlink(path)
  for (const seal of seals) await rm(seal, { force: true })
  return true
}

async function release(path: string, mine: string): Promise<void> {
  if ((await readLock(path)) === mine) await unlink(path)
}

function isHolding(holder: Holder): boolean {
  if (!isAlive(holder.pid)) return false
  const start = processStart(holder.pid)
  return start === null || holder.start === null || start === holder.start
}

function parseHolder(text: string): Holder | null {
  try {
    const holder = JSON.parse(text) as Holder
    return Number.isInteger(holder.pid) && holder.pid > 0 ? holder : null
  } catch {
    return null // A lock is linked whole; what does not parse was not written by a server.
  }
}

async function readLock(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

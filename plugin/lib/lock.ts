import { randomBytes } from 'node:crypto'
import { link, lstat, open, readFile, rename, rm, stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { CommandError } from './errors.ts'
import { hasCode, PRIVATE_FILE } from './files.ts'
import { describeOwner, hasEnded } from './owner.ts'

const LOCK_TRY_MS = 50
const NOTE_AFTER_MS = 1_000
/** The slowest step under a lock is one call of the server: whoever holds it for longer hangs, or cannot be asked any more. */
const LOCK_MS_MAX = 60_000

/**
 * Waits until the file is ours; the function that gives it back. A lock whose owner has ended is taken at once, and one
 * that does not say whose it is once it is old. Throws where a living owner does not come to an end.
 */
export async function takeLock(
  file: string,
  note: (line: string) => void,
  makeFolder: () => Promise<void>,
): Promise<() => Promise<void>> {
  const mine = describeOwner({ id: randomBytes(6).toString('hex') })
  const beganAt = performance.now()
  let isNoted = false
  for (;;) {
    await makeFolder()
    if (await create(file, mine)) return () => release(file, mine)
    const held = await readLock(file)
    if (held !== null && (await isAbandoned(file, held))) {
      await takeAway(file, held)
      continue
    }
    const waitedMs = performance.now() - beganAt
    if (waitedMs > 2 * LOCK_MS_MAX) throw busy(file)
    if (waitedMs > NOTE_AFTER_MS && !isNoted) {
      isNoted = true
      note(`Waiting for another patchcord that is at work (${file}).`)
    }
    await sleep(LOCK_TRY_MS)
  }
}

async function create(file: string, text: string): Promise<boolean> {
  const handle = await open(file, 'wx', PRIVATE_FILE).catch((error) => {
    // The folder goes with the last connection, so somebody may just have removed it.
    if (hasCode(error, 'EEXIST') || hasCode(error, 'ENOENT')) return null
    throw error
  })
  if (handle === null) return false
  try {
    await handle.writeFile(text)
    return true
  } catch (error) {
    // A disk that is full: a lock that does not say whose it is would hold up the next one.
    await rm(file, { force: true })
    throw error
  } finally {
    await handle.close()
  }
}

/** Throws for what no patchcord has made: a symlink that leads nowhere is there and cannot be read, a pipe is never read to its end. */
async function readLock(file: string): Promise<string | null> {
  try {
    if ((await lstat(file)).isFile()) return await readFile(file, 'utf8')
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return null
    throw error
  }
  throw new CommandError('unsafe_file', `${file} is not a file. Nothing was changed.`, {
    hint: 'Move it away, then try again.',
  })
}

async function isAbandoned(file: string, text: string): Promise<boolean> {
  const isOver = hasEnded(text)
  if (isOver !== null) return isOver
  const writtenAt = await stat(file).then(
    ({ mtimeMs }) => mtimeMs,
    () => Date.now(),
  )
  // A clock that was set back makes a lock of the future, which would never grow old.
  return Math.abs(Date.now() - writtenAt) > LOCK_MS_MAX
}

/** Only the lock that was looked at: another one who waits may have taken it away, and made one, in the meantime. */
async function takeAway(file: string, text: string): Promise<void> {
  const aside = `${file}.${randomBytes(6).toString('hex')}.tmp`
  try {
    await rename(file, aside)
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return
    throw error
  }
  if ((await readLock(aside)) !== text) {
    await link(aside, file).catch((error) => {
      if (!hasCode(error, 'EEXIST')) throw error
    })
  }
  await rm(aside, { force: true })
}

async function release(file: string, mine: string): Promise<void> {
  if ((await readLock(file)) === mine) await rm(file, { force: true })
}

function busy(file: string): CommandError {
  return new CommandError('busy', 'Another patchcord has been at work for minutes. Nothing was changed.', {
    hint: `End it, then try again; its process is named in ${file}.`,
  })
}

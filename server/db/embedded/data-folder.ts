import { constants } from 'node:fs'
import { access, chmod, mkdir, realpath, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { StartError } from '../../errors.ts'
import { type Account, findClosedFolder } from './account.ts'

/** Closed to everybody else; as root open for passing through, since Postgres runs as another user below it. */
const MODE_OWN = 0o700
const MODE_ROOT = 0o711

/** Makes the data folder where it is missing and returns its real path. Throws StartError when it cannot be written. */
export async function prepareDataFolder(dataDir: string): Promise<string> {
  const mode = process.getuid?.() === 0 ? MODE_ROOT : MODE_OWN
  try {
    await makeFolders(dataDir, mode)
    const path = await realpath(dataDir)
    if (!(await stat(path)).isDirectory()) throw Object.assign(new Error('not a folder'), { code: 'ENOTDIR' })
    await access(path, constants.W_OK | constants.X_OK)
    if (mode === MODE_ROOT && !((await stat(path)).mode & 0o001)) await chmod(path, mode)
    return path
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code ?? String(error)
    throw new StartError(
      `The data folder ${dataDir} cannot be written (${reason}): set PATCHCORD_DATA_DIR to a folder that this user can write.`,
      { cause: error },
    )
  }
}

/** mkdir's own `recursive` never returns where a file system answers ENOENT to every mkdir, as /proc does. */
async function makeFolders(path: string, mode: number): Promise<void> {
  try {
    await mkdir(path, { mode })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EEXIST') return
    if (code !== 'ENOENT' || dirname(path) === path) throw error
    await makeFolders(dirname(path), mode)
    await mkdir(path, { mode })
  }
}

/** Throws StartError when the account cannot pass through to the data folder. */
export async function requireReachable(dataDir: string, account: Account | null): Promise<void> {
  const closed = account && (await findClosedFolder(dataDir, account))
  if (!closed) return
  throw new StartError(
    `The data folder ${dataDir} lies under ${closed}, which the account ${account.name} that runs Postgres cannot enter: ` +
      'set PATCHCORD_DATA_DIR to another folder, such as /var/lib/patchcord.',
  )
}

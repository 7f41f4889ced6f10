import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { chmod, chown, lstat, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Account } from './account.ts'

/** sun_path holds 108 bytes on Linux and 104 on macOS; Postgres stops on a longer one. */
const SOCKET_PATH_BYTES_MAX = 100
const SOCKET_PORT = 5432
/** The setting is a list: commas and quotes would be taken for its own. */
const PLAIN_PATH = /^[\w./-]+$/

/** Where Postgres listens: the folder of its socket, or a loopback address on Windows, where Node has no Unix sockets. */
export interface Place {
  host: string
  port: number
  /** Removes what was made outside the data folder. */
  remove(): Promise<void>
}

/** A folder that only the account enters: inside the data folder, or where its path is too long or odd, in a temporary one. */
export async function choosePlace(dataDir: string, account: Account | null): Promise<Place> {
  if (process.platform === 'win32') return { host: '127.0.0.1', port: await findFreePort(), remove: async () => {} }
  const inside = join(dataDir, 'socket')
  if (isShort(inside) && PLAIN_PATH.test(inside)) {
    await rm(inside, { recursive: true, force: true })
    await makeFolder(inside, account)
    return { host: inside, port: SOCKET_PORT, remove: async () => {} }
  }
  const host = await makeTemporary(dataDir, account)
  return { host, port: SOCKET_PORT, remove: () => rm(host, { recursive: true, force: true }) }
}

function isShort(folder: string): boolean {
  return Buffer.byteLength(join(folder, `.s.PGSQL.${SOCKET_PORT}`)) <= SOCKET_PATH_BYTES_MAX
}

async function makeFolder(path: string, account: Account | null): Promise<void> {
  await mkdir(path, { mode: 0o700 })
  await chmod(path, 0o700)
  if (account) await chown(path, account.uid, account.gid)
}

/** Named by the data folder, so that a killed server leaves one at most; somebody else's folder of that name is not used. */
async function makeTemporary(dataDir: string, account: Account | null): Promise<string> {
  const base = isShort(join(tmpdir(), 'patchcord-0123456789ab')) ? tmpdir() : '/tmp'
  const path = join(base, `patchcord-${createHash('sha256').update(dataDir).digest('hex').slice(0, 12)}`)
  try {
    await makeFolder(path, account)
    return path
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  const found = await lstat(path)
  const isOwn = found.uid === (account?.uid ?? process.getuid?.()) && (found.mode & 0o777) === 0o700
  if (isOwn && found.isDirectory()) return path
  const fresh = await mkdtemp(join(base, 'patchcord-'))
  if (account) await chown(fresh, account.uid, account.gid)
  return fresh
}

async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

import { constants } from 'node:fs'
import { lstat, open, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { ENTRY_PATH } from './edits.ts'
import { hasCode, isWithin } from './files.ts'

/** As Claude Code calls the logs of the server that connect has named in .mcp.json. */
const NAME = `mcp-logs-${ENTRY_PATH.at(-1)}`
/** Of a longer name, Claude Code keeps this much and adds a hash of its own. */
const NAME_CHARACTERS_MAX = 200
const FILES_MAX = 200
const FILE_BYTES_MAX = 256 * 1024

export interface ClientLog {
  folder: string
  /** By what is in it: folders of several projects can have one name. */
  isOurs: boolean
}

export interface ClientLogs {
  logs: ClientLog[]
  /** What could not be read or deleted, each in one sentence. */
  problems: string[]
}

/**
 * Where Claude Code has logged its connections to our server in a project, the address included. Nothing of it is ours, and
 * neither it nor the removal of a plugin deletes them. Never throws: the work of who asks is done.
 * @param caches Claude Code's folder for logs; null: nobody knows
 * @param project absolute path, as Claude Code was started in it
 * @param base address of the server
 */
export async function listClientLogs(caches: string | null, project: string, base: string): Promise<ClientLogs> {
  const problems: string[] = []
  if (caches === null) return { logs: [], problems }
  const read = async <T>(path: string, work: () => Promise<T>, otherwise: T): Promise<T> => {
    try {
      return await work()
    } catch (error) {
      if (!hasCode(error, 'ENOENT') && !hasCode(error, 'ENOTDIR')) problems.push(`could not be read: ${path}`)
      return otherwise
    }
  }
  const logs: ClientLog[] = []
  for (const folder of await read(caches, () => listFolders(caches, project), [])) {
    if (!(await read(folder, () => isFolder(folder), false))) continue
    logs.push({ folder, isOurs: await read(folder, () => isOfProject(folder, project, base), false) })
  }
  return { logs, problems }
}

/** The problems, one for each folder that is not gone afterwards. */
export async function removeClientLogs(logs: readonly ClientLog[]): Promise<string[]> {
  const problems: string[] = []
  for (const { folder } of logs) {
    await rm(folder, { recursive: true, force: true }).catch(() => problems.push(`could not be deleted: ${folder}`))
  }
  return problems
}

async function listFolders(caches: string, project: string): Promise<string[]> {
  const name = project.replace(/[^A-Za-z0-9]/g, '-')
  const isWhole = name.length <= NAME_CHARACTERS_MAX
  const start = `${name.slice(0, NAME_CHARACTERS_MAX)}-`
  const names = isWhole ? [name] : (await readdir(caches)).filter((each) => each.startsWith(start))
  const folders = await Promise.all(
    names.map(async (each) => ((await isFolder(join(caches, each))) ? [join(caches, each, NAME)] : [])),
  )
  return folders.flat()
}

/** Not what a link leads to. */
async function isFolder(path: string): Promise<boolean> {
  return (await lstat(path)).isDirectory()
}

/** Something in it names the server, and nothing another folder that Claude Code was started in. */
async function isOfProject(folder: string, project: string, base: string): Promise<boolean> {
  const address = new RegExp(`${base.replaceAll(/[^A-Za-z0-9]/g, '\\$&')}(?=/?(?:mcp\\b|[^\\w.:/%-]|$))`)
  let isNamed = false
  for (const name of (await readdir(folder)).sort().slice(-FILES_MAX)) {
    const text = await readStart(join(folder, name))
    isNamed ||= address.test(text)
    const folders = [...text.matchAll(/"cwd":("(?:[^"\\]|\\.)*")/g)].map(([, cwd]) => JSON.parse(cwd ?? '""'))
    if (folders.some((cwd) => cwd !== project && !isWithin(cwd, project))) return false
  }
  return isNamed
}

/** No link, and nothing that a reader waits for. */
async function readStart(path: string): Promise<string> {
  if (!(await lstat(path)).isFile()) return ''
  const handle = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0) | (constants.O_NOFOLLOW ?? 0))
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(FILE_BYTES_MAX), 0, FILE_BYTES_MAX, 0)
    return buffer.toString('utf8', 0, bytesRead)
  } finally {
    await handle.close()
  }
}

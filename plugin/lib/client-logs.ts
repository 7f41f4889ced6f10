import { lstat, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'

/**
 * Where Claude Code has logged its connections to our server in a project, the address included. Nothing of it is ours, and
 * neither it nor the removal of a plugin deletes them.
 * @param logs Claude Code's folder for logs; null: nobody knows
 * @param project absolute path, as Claude Code was started in it
 */
export async function listClientLogs(logs: string | null, project: string): Promise<string[]> {
  if (logs === null) return []
  const folder = join(logs, project.replace(/[^A-Za-z0-9]/g, '-'))
  const names = (await isFolder(folder)) ? await readdir(folder) : []
  const found = names.filter((name) => name.startsWith('mcp-logs-patchcord')).map((name) => join(folder, name))
  const isOurs = await Promise.all(found.map(isFolder))
  return found.filter((_, index) => isOurs[index])
}

export async function removeClientLogs(folders: string[]): Promise<void> {
  for (const folder of folders) await rm(folder, { recursive: true, force: true })
}

/** Not what a link leads to. */
async function isFolder(path: string): Promise<boolean> {
  const stats = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR' || error.code === 'EACCES') return null
    throw error
  })
  return stats?.isDirectory() ?? false
}

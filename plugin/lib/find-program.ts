import { constants } from 'node:fs'
import { access, stat } from 'node:fs/promises'
import { posix, win32 } from 'node:path'

/**
 * The absolute path of a program that PATH names; null where none does. The system would look in the current folder, too
 * (Windows always, others where PATH has an empty or relative entry): that may be a repository which somebody else has made.
 */
export async function findOnPath(
  name: string,
  env: NodeJS.ProcessEnv,
  platform: NodeJS.Platform = process.platform,
): Promise<string | null> {
  for (const file of listCandidates(name, env, platform)) if (await isProgram(file)) return file
  return null
}

/** Where it could be, in the order that counts. */
export function listCandidates(name: string, env: NodeJS.ProcessEnv, platform: NodeJS.Platform): string[] {
  const isWindows = platform === 'win32'
  const { delimiter, isAbsolute, join } = isWindows ? win32 : posix
  // What Windows runs without a shell; PATH is written in any case there.
  const endings = isWindows ? ['.exe', '.com'] : ['']
  const key = Object.keys(env).find((each) => (isWindows ? each.toUpperCase() : each) === 'PATH')
  const entries = key === undefined ? [] : (env[key] ?? '').split(delimiter).map((entry) => unquote(entry, isWindows))
  // `\tools` and `C:tools` are relative to the current drive or to the current folder on it.
  const isFixed = (entry: string) => isAbsolute(entry) && !(isWindows && /^[\\/](?![\\/])/.test(entry))
  return entries.filter(isFixed).flatMap((entry) => endings.map((ending) => join(entry, name + ending)))
}

function unquote(entry: string, isWindows: boolean): string {
  return isWindows ? entry.replaceAll('"', '') : entry
}

async function isProgram(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK)
    return (await stat(file)).isFile()
  } catch {
    // Not here; the next entry of PATH may have it.
    return false
  }
}

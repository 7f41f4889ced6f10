import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process'
import { once } from 'node:events'
import { StartError } from '../../errors.ts'
import type { Account } from './account.ts'

export const SET_DATABASE_URL = 'set DATABASE_URL to a Postgres of your own'

export interface Finished {
  code: number | null
  /** Standard output and standard error together. */
  output: string
}

/**
 * Starts a program of Postgres as the account. Its environment is empty on purpose: ours may hold secrets, and whoever
 * shares the account can read a process's environment.
 */
export function spawnAs(account: Account | null, file: string, args: string[], options: SpawnOptions): ChildProcess {
  const identity = account ? { uid: account.uid, gid: account.gid } : {}
  const environment = process.platform === 'win32' ? {} : { env: { LC_ALL: 'C', PATH: '/usr/bin:/bin' }, cwd: '/' }
  try {
    return spawn(file, args, { ...environment, ...options, ...identity })
  } catch (error) {
    // Without CAP_SETUID spawn throws at once instead of emitting an error.
    const reason = (error as NodeJS.ErrnoException).code ?? String(error)
    const what = account ? `This system does not let root start Postgres as ${account.name}` : 'Postgres does not start'
    throw new StartError(`${what} (${reason}): run Patchcord as another user, or ${SET_DATABASE_URL}.`, {
      cause: error,
    })
  }
}

/** Runs a program to its end. A program that cannot be started is `code: null` with the reason as its output. */
export async function runAs(
  account: Account | null,
  file: string,
  args: string[],
  timeoutMs: number,
): Promise<Finished> {
  const child = spawnAs(account, file, args, { stdio: ['ignore', 'pipe', 'pipe'], timeout: timeoutMs })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', (text: string) => {
      output += text
    })
  }
  try {
    const [code] = (await once(child, 'close')) as [number | null]
    return { code, output: output.trim() }
  } catch (error) {
    return { code: null, output: (error as Error).message }
  }
}

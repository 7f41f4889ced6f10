import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { CommandError } from './errors.ts'

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** The folder of package.json: the same from the sources and from what is built of them. */
export function findRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url))
  while (!existsSync(join(folder, 'package.json'))) {
    if (dirname(folder) === folder) throw new CommandError('internal', 'The folder of Patchcord itself is not whole.')
    folder = dirname(folder)
  }
  return folder
}

export function readVersion(): string {
  const manifest = JSON.parse(readFileSync(join(findRoot(), 'package.json'), 'utf8')) as { version: string }
  return manifest.version
}

/** A program of ours by its path from the root. Throws where it was not built. */
export function findProgram(path: string): string {
  const file = join(findRoot(), path)
  if (existsSync(file)) return file
  throw new CommandError('not_built', `${file} is not there.`, { hint: `Build it: cd ${findRoot()} && npm run build` })
}

/** Starts a program of ours with Node; what it does not inherit is piped. */
export function startProgram(
  file: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  [stdin, stdout, stderr]: readonly ['inherit' | 'ignore', 'inherit' | 'pipe', 'inherit' | 'pipe'],
): ChildProcess {
  return spawn(process.execPath, [file, ...args], { env, stdio: [stdin, stdout, stderr] })
}

/** Passes signals on until the program has ended; its exit code, or 128 and the signal's number as shells say it. */
export async function waitForEnd(child: ChildProcess): Promise<number> {
  const passOn = (signal: NodeJS.Signals) => void child.kill(signal)
  for (const signal of SIGNALS) process.on(signal, passOn)
  try {
    const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null]
    return code ?? 128 + (signal === null ? 0 : constants.signals[signal])
  } finally {
    for (const signal of SIGNALS) process.off(signal, passOn)
  }
}

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

/** Our programs as a faults run starts them: with a clock that can be set, and their output where the run wants it. */

export const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const CLOCK = pathToFileURL(join(ROOT, 'scripts/dev/faults/clock.mjs')).href

/** A wall clock of one program, which outlives its processes. */
export class Clock {
  readonly #file: string

  constructor(folder: string, name: string) {
    this.#file = join(folder, `clock-${name}`)
    this.set(0)
  }

  /** How far it is off from now on. */
  set(offMs: number): void {
    writeFileSync(this.#file, String(offMs))
  }

  get environment(): { NODE_OPTIONS: string } {
    return { NODE_OPTIONS: `--import=${CLOCK}?file=${encodeURIComponent(this.#file)}` }
  }
}

export interface ProgramOptions {
  script: string
  cwd: string
  env: Record<string, string>
  /** An open file or pipe that is the child's alone from now on; null: as stderr. */
  stdout: number | null
  /** Everything of stderr is added to this file. */
  logFile: string
}

/** Nothing of the caller's environment may decide a run. */
export function spawnProgram({ script, cwd, env, stdout, logFile }: ProgramOptions): ChildProcess {
  const log = openSync(logFile, 'a')
  try {
    return spawn(process.execPath, [join(ROOT, script)], {
      cwd,
      stdio: ['ignore', stdout ?? log, log],
      env: { PATH: process.env.PATH ?? '', ...env },
    })
  } finally {
    closeSync(log)
    if (stdout !== null) closeSync(stdout)
  }
}

export function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null
}

/** Whether it has ended within this time; it is left alone if not. */
export async function endsWithin(child: ChildProcess, ms: number): Promise<boolean> {
  if (hasEnded(child)) return true
  const stop = new AbortController()
  const timer = setTimeout(() => stop.abort(), ms)
  await once(child, 'exit', { signal: stop.signal }).catch(() => undefined)
  clearTimeout(timer)
  return hasEnded(child)
}

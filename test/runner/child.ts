import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const RUN_FILES = fileURLToPath(new URL('run-files.ts', import.meta.url))
const REPORTER = new URL('reporter.ts', import.meta.url).href

/**
 * Runs test files in one process (run-files.ts with `flags`) and ends with its exit code. That process is a child, because Node
 * takes the reporter of node:test from the command line only. `runMsMax` is for a run whose event loop is blocked: everything
 * slower is found, and named, inside (ending.ts).
 */
export function runInChild(files: string[], flags: string[], runMsMax: number): void {
  const options = [`--test-reporter=${REPORTER}`, '--test-reporter-destination=stdout']
  const child = spawn(process.execPath, [...process.execArgv, ...options, RUN_FILES, ...flags, ...files], {
    cwd: ROOT,
    stdio: 'inherit',
    timeout: runMsMax,
    killSignal: 'SIGKILL',
  })
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill(signal))
  child.on('error', (error) => {
    throw error
  })
  child.on('exit', (code) => {
    process.exitCode = code ?? 1
  })
}

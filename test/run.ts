import { spawn } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { parseArguments, selectFiles } from './runner/select.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const RUN_FILES = fileURLToPath(new URL('runner/run-files.ts', import.meta.url))
const REPORTER = new URL('runner/reporter.ts', import.meta.url).href
/** Only for a run whose event loop is blocked: everything slower is found, and named, inside (runner/ending.ts). */
const RUN_MS_MAX = 30 * 60_000

/**
 * `tsx test/run.ts [--postgres15] [--kill] [part of a path …]`: runs test files in one process.
 * That process is a child, because Node takes the reporter of node:test from the command line only.
 */
async function run(): Promise<void> {
  const selection = parseArguments(process.argv.slice(2))
  const entries = await readdir(`${ROOT}/test`, { recursive: true })
  const files = selectFiles(
    entries.map((entry) => `test/${entry.replaceAll('\\', '/')}`),
    selection,
  )
  if (files.length === 0) throw new Error('no test file is selected')
  const flags = selection.isPostgres15 ? ['--postgres15'] : []
  const child = spawn(
    process.execPath,
    [
      ...process.execArgv,
      `--test-reporter=${REPORTER}`,
      '--test-reporter-destination=stdout',
      RUN_FILES,
      ...flags,
      ...files,
    ],
    { cwd: ROOT, stdio: 'inherit', timeout: RUN_MS_MAX, killSignal: 'SIGKILL' },
  )
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill(signal))
  child.on('error', (error) => {
    throw error
  })
  child.on('exit', (code) => {
    process.exitCode = code ?? 1
  })
}

await run()

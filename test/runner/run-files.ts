import { AsyncResource } from 'node:async_hooks'
import { describe, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { setNativeDir, stopCluster } from '../helpers/cluster.ts'
import { installPostgres15 } from '../helpers/postgres15.ts'
import { parsePatience, summarizeAtExit, watchHandles, watchSilence } from './ending.ts'
import { isolateHome } from './home.ts'
import { tally } from './tally.ts'

/** `[--postgres15] [--keep-home] [--grace-ms=N] [--silence-ms=N] file …`: the process in which all test files run; started by test/run.ts. */
async function runFiles(args: string[]): Promise<void> {
  summarizeAtExit(tally)
  const patience = parsePatience(args)
  watchSilence(tally, patience)
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => void interrupt())
  if (args.includes('--postgres15')) setNativeDir(await installPostgres15())
  const home = args.includes('--keep-home') ? null : await isolateHome()
  declareFiles(args.filter((arg) => !arg.startsWith('--')))
  test('the shared Postgres stops', async () => {
    await stopCluster()
    for (const file of (await home?.listFiles()) ?? []) {
      tally.failures.push({ file: 'test/run.ts', name: `a test wrote into the home of its user: ${file}` })
    }
    watchHandles(tally, patience)
  })
}

/**
 * Imports test files, each in a suite of its own, so that its top-level hooks are its own and a file that throws at import
 * is a failed suite. The first test starts when the last file is imported: nothing is measured while tsx compiles.
 */
function declareFiles(files: string[]): void {
  let previous: Promise<unknown> = Promise.resolve()
  let remaining = files.length
  let open = () => {}
  const allImported = new Promise<void>((resolve) => {
    open = resolve
  })
  for (const file of files) {
    describe(file, async () => {
      // node:test finds a test's suite through the async context; that of `previous` is another file's.
      const suite = new AsyncResource('test file')
      const mine = previous.then(() => suite.runInAsyncScope(() => import(pathToFileURL(file).href)))
      previous = mine.catch(() => {})
      await previous
      remaining -= 1
      if (remaining === 0) open()
      await mine
      await allImported
    })
  }
}

/** The Postgres of the tests is detached: a run that is broken off must not leave it behind. */
let isInterrupted = false

/** A terminal tells every process of the group, and npm and the runner tell this one once more. */
async function interrupt(): Promise<void> {
  if (isInterrupted) return
  isInterrupted = true
  tally.failures.push({ file: 'test/run.ts', name: 'interrupted' })
  try {
    await stopCluster()
  } finally {
    process.exit(130)
  }
}

await runFiles(process.argv.slice(2))

import { readdir } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { runInChild } from './runner/child.ts'
import { parseArguments, selectFiles } from './runner/select.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const RUN_MS_MAX = 30 * 60_000

/** `tsx test/run.ts [--postgres15] [--kill] [part of a path …]`: runs test files in one process. */
async function run(): Promise<void> {
  const selection = parseArguments(process.argv.slice(2))
  const entries = await readdir(`${ROOT}/test`, { recursive: true })
  const files = selectFiles(
    entries.map((entry) => `test/${entry.replaceAll('\\', '/')}`),
    selection,
  )
  if (files.length === 0) throw new Error('no test file is selected')
  runInChild(files, selection.isPostgres15 ? ['--postgres15'] : [], RUN_MS_MAX)
}

await run()

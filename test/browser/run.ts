import { readdir } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { installPrograms } from '../helpers/debian.ts'
import { runInChild } from '../runner/child.ts'

const RUN_MS_MAX = 20 * 60_000
/** A scenario that needs longer hangs. */
const SILENCE_MS_MAX = 4 * 60_000

/** `tsx test/browser/run.ts [part of a name …]`: `*.browser.ts` in Debian's Chromium, which is installed first where it is missing. */
async function run(): Promise<void> {
  const parts = process.argv.slice(2)
  await installPrograms({ chromium: 'chromium' })
  const entries = await readdir(fileURLToPath(new URL('.', import.meta.url)))
  const files = entries
    .filter((entry) => entry.endsWith('.browser.ts'))
    .filter((entry) => parts.length === 0 || parts.some((part) => entry.includes(part)))
    .sort()
    .map((entry) => `test/browser/${entry}`)
  if (files.length === 0) throw new Error('no test in a browser is selected')
  runInChild(files, [`--silence-ms=${SILENCE_MS_MAX}`, '--keep-home'], RUN_MS_MAX)
}

try {
  await run()
} catch (error) {
  // What a person is to do stands in one sentence.
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 1
}

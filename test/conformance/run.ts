import { readdir } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { runInChild } from '../runner/child.ts'
import { assertTool } from './helpers/tool.ts'

const RUN_MS_MAX = 10 * 60_000
/** A run of the tool is cut off earlier, and says then how far it came. */
const SILENCE_MS_MAX = 3 * 60_000

/** `tsx test/conformance/run.ts [part of a name …]`: `*.conformance.ts`, the protocol's own tool against our server. */
async function run(): Promise<void> {
  const parts = process.argv.slice(2)
  await assertTool()
  const entries = await readdir(fileURLToPath(new URL('.', import.meta.url)))
  const files = entries
    .filter((entry) => entry.endsWith('.conformance.ts'))
    .filter((entry) => parts.length === 0 || parts.some((part) => entry.includes(part)))
    .sort()
    .map((entry) => `test/conformance/${entry}`)
  if (files.length === 0) throw new Error('no conformance suite is selected')
  runInChild(files, [`--silence-ms=${SILENCE_MS_MAX}`], RUN_MS_MAX)
}

try {
  await run()
} catch (error) {
  // What a person is to do stands in one sentence.
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 1
}

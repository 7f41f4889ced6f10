import { readdir } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { runInChild } from '../runner/child.ts'
import { installInspector } from './helpers/inspector.ts'
import { installClients, installTools } from './helpers/install.ts'
import { assertIsolatable, isIsolated, runIsolated } from './helpers/isolated.ts'

const SELF = fileURLToPath(import.meta.url)
/** A scenario that needs longer hangs. */
const SILENCE_MS_MAX = 5 * 60_000
const RUN_MS_MAX = 30 * 60_000

/**
 * `tsx test/clients/run.ts [part of a name …]`: the scenarios in the real clients (`*.client.ts`), one file after the other, in one
 * process, isolated. What is missing is installed first, while there is a network.
 */
async function run(): Promise<void> {
  const parts = process.argv.slice(2)
  if (!isIsolated()) {
    await installTools()
    assertIsolatable()
    await installClients()
    await installInspector()
    process.exitCode = await runIsolated(SELF, parts)
    return
  }
  const files = await listFiles(parts)
  if (files.length === 0) throw new Error('no scenario is selected')
  // Clients are kept in the cache of the user; scenarios run in namespaces and homes of their own.
  runInChild(files, ['--keep-home', `--silence-ms=${SILENCE_MS_MAX}`], RUN_MS_MAX)
}

async function listFiles(parts: string[]): Promise<string[]> {
  const entries = await readdir(fileURLToPath(new URL('.', import.meta.url)))
  return entries
    .filter((entry) => entry.endsWith('.client.ts'))
    .filter((entry) => parts.length === 0 || parts.some((part) => entry.includes(part)))
    .sort()
    .map((entry) => `test/clients/${entry}`)
}

try {
  await run()
} catch (error) {
  // What a person is to do stands in one sentence.
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 1
}

import { execFile } from 'node:child_process'
import { mkdir, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createTemporaryFolder } from '../../helpers/processes.ts'
import { type ScenarioResult, scenarioOf, type ToolRun } from './results.ts'

/** The protocol's own conformance tool. */

const PACKAGE = fileURLToPath(new URL('../../../node_modules/@modelcontextprotocol/conformance', import.meta.url))
const NODE_MIN = 22
const RUN_MS_MAX = 120_000
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024

export type Revision = '2025-11-25' | '2026-07-28'

/** Throws one sentence for a person when the tool cannot run. */
export async function assertTool(): Promise<void> {
  if (Number.parseInt(process.versions.node, 10) < NODE_MIN) {
    throw new Error(`The conformance tool needs Node ${NODE_MIN} or later: start it with npm run test:conformance.`)
  }
  await readFile(join(PACKAGE, 'package.json')).catch((cause: unknown) => {
    throw new Error('The conformance tool is not installed: run npm ci first.', { cause })
  })
}

/** Everything that a revision asks of a server, against the server at `url`. `output` is all that the tool says. */
export async function runTool(url: string, revision: Revision): Promise<ToolRun & { output: string }> {
  const { path, remove } = await createTemporaryFolder()
  try {
    const folder = join(path, 'results')
    await mkdir(folder)
    const args = ['server', '--url', url, '--requirements', revision, '--output-dir', folder]
    const { code, output } = await start(args, path)
    return { code, output, results: await readResults(folder) }
  } finally {
    await remove()
  }
}

async function start(args: string[], home: string): Promise<{ code: number; output: string }> {
  const options = {
    cwd: home,
    env: { HOME: home, PATH: process.env.PATH ?? '' },
    timeout: RUN_MS_MAX,
    killSignal: 'SIGKILL',
    maxBuffer: OUTPUT_BYTES_MAX,
  } as const
  return await new Promise((resolve, reject) => {
    execFile(process.execPath, [join(PACKAGE, 'dist/index.js'), ...args], options, (error, stdout, stderr) => {
      const output = stdout + stderr
      if (error && typeof error.code !== 'number') {
        const why = error.killed ? `was not done after ${RUN_MS_MAX / 1000} s` : `broke off: ${error.message}`
        reject(new Error(`The conformance tool ${why}. It said:\n${output}`))
        return
      }
      resolve({ code: Number(error?.code ?? 0), output })
    })
  })
}

async function readResults(folder: string): Promise<ScenarioResult[]> {
  const results: ScenarioResult[] = []
  for (const entry of await readdir(folder)) {
    const scenario = scenarioOf(entry)
    if (scenario === null) throw new Error(`The conformance tool left ${entry}, which is no scenario's folder.`)
    const checks = await readFile(join(folder, entry, 'checks.json'), 'utf8').catch(() => null)
    // A scenario that broke off leaves its folder empty, and counts as one that did not run.
    if (checks !== null) results.push({ scenario, checks: JSON.parse(checks) as ScenarioResult['checks'] })
  }
  return results
}

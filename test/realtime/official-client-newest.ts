import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

/** The newest there is; the package.json holds the last that runs on Node 20. */
const VERSION = '2.119.1'
const INSTALL_TIMEOUT_MS = 300_000
const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/**
 * Runs official-client.test.ts with the newest version of the client, which needs Node 22 and takes its WebSocket. npm
 * installs it beside the project, since two versions of one package cannot stand in one package.json.
 */
async function run(): Promise<void> {
  const prefix = join(ROOT, '.cache', 'realtime-js')
  await install(prefix)
  const child = spawn(process.execPath, [...process.execArgv, 'test/run.ts', 'test/realtime/official-client.test.ts'], {
    cwd: ROOT,
    env: { ...process.env, PATCHCORD_TEST_REALTIME_JS: join(prefix, 'package.json') },
    stdio: 'inherit',
  })
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill(signal))
  const [code] = (await once(child, 'exit')) as [number | null]
  const isPassed = code === 0
  console.log(`@supabase/realtime-js ${VERSION} on Node ${process.version}: ${isPassed ? 'passed' : 'FAILED'}`)
  process.exitCode = isPassed ? 0 : 1
}

async function install(prefix: string): Promise<void> {
  if ((await readInstalledVersion(prefix)) === VERSION) return
  await mkdir(prefix, { recursive: true })
  const flags = ['install', '--prefix', prefix, '--no-save', '--no-audit', '--no-fund', '--ignore-scripts']
  await promisify(execFile)('npm', [...flags, `@supabase/realtime-js@${VERSION}`], {
    cwd: prefix,
    timeout: INSTALL_TIMEOUT_MS,
    shell: process.platform === 'win32',
  })
  // Node would look further up, and find the version that `npm test` has tried already.
  const installed = await readInstalledVersion(prefix)
  if (installed !== VERSION) throw new Error(`npm installed ${installed ?? 'nothing'} instead of ${VERSION}`)
}

async function readInstalledVersion(prefix: string): Promise<string | null> {
  try {
    const manifest = await readFile(join(prefix, 'node_modules', '@supabase', 'realtime-js', 'package.json'), 'utf8')
    return (JSON.parse(manifest) as { version: string }).version
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

await run()

import { execFile } from 'node:child_process'
import { mkdir, readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { createClientEnvironment, findClient } from './install.ts'

/** The MCP Inspector's command line, pinned; it needs a newer Node than the clients, which is installed beside it. */

const INSTALL_MS_MAX = 10 * 60_000
const RUN_MS_MAX = 180_000
const INSPECTOR = { name: '@modelcontextprotocol/inspector', version: '2.12.0' }
/** npm's package of the Node binary alone. */
const NODE = { name: `node-linux-${process.arch}`, version: '24.22.3' }

/** A folder of its own in the clients' folder, as its dependencies are not theirs. */
function findFolder(): string {
  return join(dirname(dirname(dirname(findClient('codex')))), 'inspector')
}

/** Installs what is missing or has another version; needs the network only then. */
export async function installInspector(): Promise<void> {
  const folder = findFolder()
  const versions = await Promise.all([INSPECTOR, NODE].map(({ name }) => findVersion(folder, name)))
  if (versions[0] === INSPECTOR.version && versions[1] === NODE.version) return
  await mkdir(folder, { recursive: true })
  const flags = ['--no-audit', '--no-fund', '--loglevel=error', '--save-exact', '--ignore-scripts']
  const packages = [INSPECTOR, NODE].map(({ name, version }) => `${name}@${version}`)
  console.log(`installing ${packages.join(', ')} into ${folder}`)
  await promisify(execFile)('npm', ['install', '--prefix', folder, ...flags, ...packages], { timeout: INSTALL_MS_MAX })
}

async function findVersion(folder: string, name: string): Promise<string | null> {
  try {
    return JSON.parse(await readFile(join(folder, 'node_modules', name, 'package.json'), 'utf8')).version
  } catch {
    // Not there, or half written: npm makes it whole.
    return null
  }
}

export interface Inspection {
  /** 0 ok · 3 authorization · 4 unreachable · 5 tool error · 6 `--strict` found something. */
  code: number
  stdout: string
  stderr: string
}

/** One run of `mcp-inspector --cli`. */
export async function inspect(home: string, url: string, token: string, args: string[]): Promise<Inspection> {
  const modules = join(findFolder(), 'node_modules')
  const program = join(modules, INSPECTOR.name, 'clients/launcher/build/index.js')
  const server = ['--cli', '--transport', 'http', '--server-url', url, '--header', `Authorization: Bearer ${token}`]
  const running = promisify(execFile)(join(modules, NODE.name, 'bin/node'), [program, ...server, ...args], {
    env: createClientEnvironment(home, { MCP_CATALOG_PATH: join(home, 'catalog.json') }),
    cwd: home,
    timeout: RUN_MS_MAX,
    killSignal: 'SIGKILL',
  })
  try {
    const { stdout, stderr } = await running
    return { code: 0, stdout, stderr }
  } catch (error) {
    const { code, stdout = '', stderr = '' } = error as { code?: unknown; stdout?: string; stderr?: string }
    if (typeof code !== 'number') throw error
    return { code, stdout, stderr }
  }
}

import { execFile } from 'node:child_process'
import { mkdir, readFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { installPrograms } from '../../helpers/debian.ts'

/** The real clients at the versions that these scenarios were written against, and the programs that the harness needs. */

const run = promisify(execFile)
const INSTALL_MS_MAX = 10 * 60_000
/** Less than the 2.5 s after which a hook ends whatever happens. */
const HOOK_MS = '2000'

const CLIENTS = {
  claude: { package: '@anthropic-ai/claude-code', version: '2.1.332' },
  codex: { package: '@openai/codex', version: '0.171.0' },
} as const
/** Programs by the Debian package that has them. */
const TOOLS = { bash: 'bash', tmux: 'tmux', ip: 'iproute2', unshare: 'util-linux', mount: 'mount', git: 'git' } as const

export type ClientName = keyof typeof CLIENTS

/** Where the clients are kept between runs: CLIENTS_DIR, else a folder in the user's cache. */
function findFolder(): string {
  return process.env.CLIENTS_DIR ?? join(homedir(), '.cache', 'patchcord-clients')
}

/** The program to start. It must have been installed, which test/clients/run.ts does before any test. */
export function findClient(name: ClientName): string {
  return join(findFolder(), 'node_modules', '.bin', name)
}

/** The version that is pinned, for what a run records. */
export function getClientVersion(name: ClientName): string {
  return CLIENTS[name].version
}

/** Installs what is missing or has another version; needs the network only then. About 800 MB. */
export async function installClients(): Promise<void> {
  const missing: string[] = []
  for (const client of Object.values(CLIENTS)) {
    if ((await findInstalledVersion(client.package)) !== client.version)
      missing.push(`${client.package}@${client.version}`)
  }
  if (missing.length === 0) return
  const folder = findFolder()
  console.log(`installing ${missing.join(', ')} into ${folder}`)
  await mkdir(folder, { recursive: true })
  const options = ['--no-audit', '--no-fund', '--loglevel=error', '--save-exact']
  await run('npm', ['install', '--prefix', folder, ...options, ...missing], { timeout: INSTALL_MS_MAX })
}

async function findInstalledVersion(name: string): Promise<string | null> {
  try {
    const text = await readFile(join(findFolder(), 'node_modules', name, 'package.json'), 'utf8')
    return (JSON.parse(text) as { version: string }).version
  } catch {
    // Not there, or half written by an install that was broken off: npm makes it whole.
    return null
  }
}

/** Makes sure of the programs above. */
export async function installTools(): Promise<void> {
  await installPrograms(TOOLS)
}

/**
 * The environment of a client and of everything it starts: a HOME of its own and nothing of the caller's. Hooks have more time for
 * the server than users give them, or a busy machine would decide what they say; `npm run bench:hook` holds the time itself.
 */
export function createClientEnvironment(home: string, more: Record<string, string> = {}): Record<string, string> {
  const path = [dirname(process.execPath), '/usr/local/bin', '/usr/bin', '/bin'].join(delimiter)
  return { PATH: path, HOME: home, TERM: 'xterm-256color', LANG: 'C.UTF-8', PATCHCORD_HOOK_MS: HOOK_MS, ...more }
}

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir } from 'node:fs/promises'

/**
 * A run of its own: only the loopback interface, process ids of its own that all die with it, and private places for the sockets
 * and task files of clients, so that a client under test can neither reach out nor meet one that is not.
 */

const MARK = 'PATCHCORD_ISOLATED'
/** Claude Code's sockets between sessions, and its tasks' output; the socket of Codex's shared daemon, which refuses any other mode. */
const PRIVATE_FOLDERS = ['/tmp/cc-socks', '/tmp/claude-0', '/tmp/codex-daemon-0']
/** The shell stays as process 1 and reaps orphans: a zombie would look like a listener that lives. */
const INIT = `set -e
PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
for folder in ${PRIVATE_FOLDERS.join(' ')}; do mount -t tmpfs -o mode=0700 none "$folder"; done
set +e
"$@"
exit $?`
const NAMESPACES = ['-n', '-m', '-p', '-i', '-f', '--kill-child', '--mount-proc', '--propagation', 'private']

export function isIsolated(): boolean {
  return process.env[MARK] === '1'
}

/** Throws unless this process runs isolated: a client must never be started with the network at hand. */
export function assertIsolated(): void {
  if (!isIsolated()) throw new Error('clients run isolated only: start this through test/clients/run.ts or runIsolated')
}

/** Throws where no such run can be: before anything is fetched for it. */
export function assertIsolatable(): void {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) {
    throw new Error('the clients run in network and mount namespaces of their own: run this as root on Linux')
  }
}

/** Runs this very program again, isolated; its exit code. Needs root on Linux. */
export async function runIsolated(file: string, args: string[]): Promise<number> {
  assertIsolatable()
  for (const folder of PRIVATE_FOLDERS) await mkdir(folder, { recursive: true, mode: 0o700 })
  const command = [process.execPath, ...process.execArgv, file, ...args]
  const child = spawn('unshare', [...NAMESPACES, 'bash', '-c', INIT, 'isolated', ...command], {
    stdio: 'inherit',
    // The path of a socket is short, which that of a caller's own folder may not be.
    env: { ...process.env, TMPDIR: '/tmp', [MARK]: '1' },
  })
  // unshare ignores SIGTERM; when it is killed, everything inside dies with it.
  const kill = () => child.kill('SIGKILL')
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, kill)
  const [code] = (await once(child, 'exit')) as [number | null]
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.off(signal, kill)
  return code ?? 1
}

import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/** What a run has left open when all of it was stopped: processes of its folder, and handles of this process. */

const GRACE_MS = 3_000
const POLL_MS = 50
const HANDLES = ['TCPSocketWrap', 'TCPServerWrap', 'PipeWrap', 'ProcessWrap', 'FSEventWrap']

export async function findLeftovers(folder: string | null, before: string[]): Promise<string[]> {
  const until = performance.now() + GRACE_MS
  let found = look(folder, before)
  while (found.length > 0 && performance.now() < until) {
    await sleep(POLL_MS)
    found = look(folder, before)
  }
  return found
}

function look(folder: string | null, before: string[]): string[] {
  const now = process.getActiveResourcesInfo()
  const count = (all: string[], kind: string) => all.filter((each) => each === kind).length
  const more = HANDLES.filter((kind) => count(now, kind) > count(before, kind))
  return [
    ...more.map((kind) => `${count(now, kind) - count(before, kind)} ${kind} of this process are still open`),
    ...(folder === null ? [] : findProcesses(folder)).map(({ pid, command }) => `still runs: ${pid} ${command}`),
  ]
}

/** Programs that name the folder in their command or environment; only Linux shows them. */
export function findProcesses(folder: string): { pid: number; command: string }[] {
  if (process.platform !== 'linux') return []
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
  return pids.flatMap((pid) => {
    const [command = '', environment] = ['cmdline', 'environ'].map((file) => read(`/proc/${pid}/${file}`))
    if (!`${command}${environment}`.includes(folder)) return []
    return [{ pid: Number(pid), command: command.replaceAll('\0', ' ') }]
  })
}

/** How many sockets another process has open; null where the system does not show it. */
export function countSockets(pid: number): number | null {
  if (process.platform !== 'linux') return null
  return readdirSync(`/proc/${pid}/fd`).filter((fd) => readSocket(`/proc/${pid}/fd/${fd}`)).length
}

/** A file may be closed while it is looked at. */
function readSocket(path: string): boolean {
  try {
    return readlinkSync(path).startsWith('socket:')
  } catch {
    return false
  }
}

/** A process may end while it is looked at. */
function read(path: string): string {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return ''
  }
}

import { execFileSync } from 'node:child_process'
import { readFileSync, readlinkSync } from 'node:fs'
import { basename } from 'node:path'

const START_TICKS_FIELD = 19

/** Whether a process with this id exists and still runs; one that only waits to be reaped does not. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
  } catch (error) {
    // EPERM: it exists and belongs to somebody else.
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') return false
  }
  return readStat(pid)?.state !== 'Z'
}

/** A text that differs between two processes that had the same id, or null where this system does not tell. */
export function processStart(pid: number): string | null {
  const stat = readStat(pid)
  if (stat) return `${readText('/proc/sys/kernel/random/boot_id') ?? ''}:${stat.startTicks}`
  return process.platform === 'win32' ? null : readProcess(pid, 'lstart') || null
}

/** Whether `pid` is a Postgres that works in `dataFolder`; on Windows always, pg_ctl looks for itself there. */
export function isPostgresOf(pid: number, dataFolder: string): boolean {
  if (process.platform === 'win32') return true
  if (process.platform !== 'linux') return readProcess(pid, 'command').includes(`postgres -D ${dataFolder} `)
  try {
    return (
      basename(readlinkSync(`/proc/${pid}/exe`)).startsWith('postgres') &&
      readlinkSync(`/proc/${pid}/cwd`) === dataFolder
    )
  } catch {
    return false // Closed to us: we are the user who started Postgres, or root, so it is a stranger's process.
  }
}

/** One column of ps(1), for systems without /proc; empty when there is no such process. */
function readProcess(pid: number, column: string): string {
  try {
    return execFileSync('ps', ['-o', `${column}=`, '-p', String(pid)], { encoding: 'utf8' }).trim()
  } catch {
    return ''
  }
}

/** proc(5): the fields after the command, which stands in parentheses and may hold any character. */
function readStat(pid: number): { state: string; startTicks: string } | null {
  const text = readText(`/proc/${pid}/stat`)
  if (text === null) return null
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return { state: fields[0] ?? '', startTicks: fields[START_TICKS_FIELD] ?? '' }
}

function readText(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch {
    return null // Not Linux, or the process is gone.
  }
}

import { hostname } from 'node:os'
import { readStartTime } from '../../scripts/lib/processes.mjs'
import { isRecord } from '../../scripts/lib/text.mjs'

/** Whose a lock or a temporary folder is: facts of this process that no later one shares. */
export function describeOwner(more: Record<string, string> = {}): string {
  return JSON.stringify({ pid: process.pid, started: readStartTime(process.pid), host: hostname(), ...more })
}

/** Whether the process that a text names has ended; null where it does not say, or speaks of another machine. */
export function hasEnded(text: string): boolean | null {
  const owner = parseOwner(text)
  if (owner === null || owner.host !== hostname()) return null
  const started = readStartTime(owner.pid)
  return started === null ? !isRunning(owner.pid) : started !== owner.started
}

/** For where the start time of a process that runs may stay unknown. */
function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return !(error instanceof Error && 'code' in error && error.code === 'ESRCH')
  }
}

function parseOwner(text: string): { pid: number; started: string; host: string } | null {
  try {
    const json: unknown = JSON.parse(text)
    if (!isRecord(json)) return null
    const { pid, started, host } = json
    if (!Number.isSafeInteger(pid) || (pid as number) < 1 || typeof started !== 'string' || typeof host !== 'string')
      return null
    return { pid: pid as number, started, host }
  } catch {
    // Not written to its end yet, or by something else.
    return null
  }
}

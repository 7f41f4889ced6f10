/** Questions about processes of this machine: is it alive, when did it start. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'

/**
 * @param {number} pid
 * @param {(pid: number, signal: 0) => unknown} [kill]
 */
export function isAlive(pid, kill = process.kill) {
  try {
    kill(pid, 0)
    return true
  } catch (error) {
    // EPERM: it exists and belongs to somebody else, which is alive all the same.
    return error instanceof Error && 'code' in error && error.code === 'EPERM'
  }
}

/**
 * When the process started, as a text that differs for two processes with the same pid; null: unknown or not running.
 * @param {number} pid @returns {string | null}
 */
export function readStartTime(pid) {
  if (process.platform === 'linux') return readLinuxStartTime(pid)
  if (process.platform === 'win32') return null
  try {
    const output = execFileSync('ps', ['-o', 'lstart=', '-p', String(pid)], {
      encoding: 'utf8',
      timeout: 2_000,
      stdio: ['ignore', 'pipe', 'ignore'],
      env: { LC_ALL: 'C', TZ: 'UTC', PATH: '/bin:/usr/bin' },
    })
    return output.trim() || null
  } catch {
    return null
  }
}

/** proc(5): field 22 of /proc/<pid>/stat, counted after the name in parentheses, which may hold anything. @param {number} pid */
function readLinuxStartTime(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    // A zombie has ended and only waits for its parent to notice.
    return fields[0] === 'Z' || fields[0] === 'X' ? 'ended' : (fields[19] ?? null)
  } catch {
    return null
  }
}

/**
 * Calls `onGone` once when the parent has ended, and `onSlept` after each time in which nothing here ran: a sleep of the
 * machine, during which the clock of the timers stands still on Linux and goes on elsewhere, or a stopped process.
 * @param {{ clientPid: number | null, everyMs: number, sleptMs: number, onGone: () => void, onSlept: () => void,
 *   wallClock?: () => number }} options
 * @returns {() => void} stops watching
 */
export function watchSurroundings({ clientPid, everyMs, sleptMs, onGone, onSlept, wallClock = Date.now }) {
  const parent = process.ppid
  const watched = clientPid !== null && isAlive(clientPid) ? clientPid : null
  let before = { wall: wallClock(), timers: performance.now() }
  const timer = setInterval(() => {
    const isGone = process.ppid !== parent || !isAlive(parent) || (watched !== null && !isAlive(watched))
    if (isGone) {
      clearInterval(timer)
      return onGone()
    }
    const now = { wall: wallClock(), timers: performance.now() }
    // The wall clock may be set; to take that for a sleep costs one reconnect.
    if (Math.max(now.wall - before.wall, now.timers - before.timers) - everyMs > sleptMs) onSlept()
    before = now
  }, everyMs)
  return () => clearInterval(timer)
}

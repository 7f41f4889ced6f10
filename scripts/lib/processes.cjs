/** Whether a process of this machine lives, and when it started. */

const { readFileSync } = require('node:fs')

/**
 * @param {number} pid
 * @param {(pid: number, signal: 0) => unknown} [kill]
 */
function isAlive(pid, kill = process.kill) {
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
function readStartTime(pid) {
  if (process.platform === 'linux') return readLinuxStartTime(pid)
  if (process.platform === 'win32') return null
  try {
    // Only where there is no /proc: it takes its time to load.
    const output = require('node:child_process').execFileSync('ps', ['-o', 'lstart=', '-p', String(pid)], {
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

module.exports = { isAlive, readStartTime }

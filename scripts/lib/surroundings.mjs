/** What a listener lives in: its parent and its client, a machine that may sleep. */
import { monotonicMs } from './basics.cjs'
import { isAlive } from './processes.cjs'

/**
 * The one clock of an idle listener. Calls `onGone` once when the parent has ended, `onSlept` after each time in which nothing
 * here ran: a sleep of the machine, during which the clock of the timers stands still on Linux and goes on elsewhere, or a
 * stopped process, and `onTick` each time.
 * @param {{ clientPid: number | null, everyMs: number, sleptMs: number, onGone: () => void, onSlept: () => void,
 *   onTick: () => void, wallClock?: () => number }} options
 * @returns {() => void} stops watching
 */
export function watchSurroundings({ clientPid, everyMs, sleptMs, onGone, onSlept, onTick, wallClock = Date.now }) {
  const parent = process.ppid
  const watched = clientPid !== null && isAlive(clientPid) ? clientPid : null
  let before = { wall: wallClock(), timers: monotonicMs() }
  const timer = setInterval(() => {
    const isGone = process.ppid !== parent || !isAlive(parent) || (watched !== null && !isAlive(watched))
    if (isGone) {
      clearInterval(timer)
      return onGone()
    }
    const now = { wall: wallClock(), timers: monotonicMs() }
    // The wall clock may be set; to take that for a sleep costs one reconnect.
    if (Math.max(now.wall - before.wall, now.timers - before.timers) - everyMs > sleptMs) onSlept()
    before = now
    onTick()
  }, everyMs)
  return () => clearInterval(timer)
}

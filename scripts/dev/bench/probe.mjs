// Loaded into the server that measured-server.ts starts (`node --import`); the server itself knows nothing of it. Answers
// each message with what the process has used since the last, and when it published wakes.
import { register } from 'node:module'
import { monitorEventLoopDelay } from 'node:perf_hooks'

/** Milliseconds of the machine's monotonic clock, which other processes share. */
const now = () => Number(process.hrtime.bigint()) / 1e6

/** When each was, and how long until it was written to its socket. @type {{ at: number, ms: number }[]} */
let published = []
/** @param {number} at */
const notePublished = (at) => published.push({ at, ms: now() - at })
Object.assign(globalThis, { probe: { now, notePublished } })
const HOOKS = `
export async function resolve(specifier, context, next) {
  const found = await next(specifier, context)
  if (!found.url.endsWith('/server/wakes/bus.js') || context.parentURL.startsWith('data:')) return found
  const wrapped = \`
    import * as bus from '\${found.url}'
    export function createBus(...given) {
      const made = bus.createBus(...given)
      const publish = (...told) => {
        const at = probe.now()
        made.publish(...told)
        probe.notePublished(at)
      }
      return { ...made, publish }
    }\`
  return { url: 'data:text/javascript,' + encodeURIComponent(wrapped), format: 'module', shortCircuit: true }
}`
register(`data:text/javascript,${encodeURIComponent(HOOKS)}`)

const delay = monitorEventLoopDelay({ resolution: 2 })
/** @param {NodeJS.CpuUsage} usage */
const milliseconds = ({ user, system }) => (user + system) / 1000
let cpu = process.cpuUsage()
/** @type {NodeJS.Timeout | undefined} */
let turn
let turnAt = 0
let turnCpu = process.cpuUsage()
/** The most CPU time between two turns of the event loop, which tells its own stalls from those of a busy machine. */
let busyMs = 0

function watch() {
  const at = performance.now()
  busyMs = Math.max(busyMs, Math.min(at - turnAt, milliseconds(process.cpuUsage(turnCpu))))
  turnAt = at
  turnCpu = process.cpuUsage()
}

process.on('message', (/** @type {{ collects?: boolean, watches?: boolean }} */ { collects, watches }) => {
  const stallMs = delay.max / 1e6
  const cpuMs = milliseconds(process.cpuUsage(cpu))
  clearInterval(turn)
  for (let count = 0; collects && count < 2; count++) globalThis.gc?.()
  const { rss, heapUsed } = process.memoryUsage()
  const timers = process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length
  process.send?.({ rss, heap: heapUsed, stallMs, busyMs, cpuMs, timers, published })
  published = []
  delay.reset()
  if (watches) delay.enable()
  else delay.disable()
  turnAt = performance.now()
  turnCpu = process.cpuUsage()
  if (watches) turn = setInterval(watch, 2)
  busyMs = 0
  cpu = process.cpuUsage()
})
process.channel?.unref()

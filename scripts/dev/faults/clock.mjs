/**
 * Loaded before a program (`--import …/clock.mjs?file=…`): its wall clock is as far off as the file says, in milliseconds,
 * and jumps when the file changes. What counts steadily (performance.now, process.hrtime, timers) goes on, as on a machine
 * whose clock is set.
 */
import { readFileSync } from 'node:fs'

/** How long a jump may go unnoticed. */
const LOOK_MS = 50

const file = new URL(import.meta.url).searchParams.get('file') ?? ''
const RealDate = Date
let offMs = 0
let lookedAt = Number.NEGATIVE_INFINITY

function now() {
  const at = performance.now()
  if (at - lookedAt >= LOOK_MS) {
    lookedAt = at
    offMs = readOff()
  }
  return RealDate.now() + offMs
}

/** While the file is being written it may be empty. */
function readOff() {
  try {
    return Number(readFileSync(file, 'utf8')) || 0
  } catch {
    return 0
  }
}

globalThis.Date = new Proxy(RealDate, {
  construct: (target, args, newTarget) => Reflect.construct(target, args.length === 0 ? [now()] : args, newTarget),
  apply: (target) => new target(now()).toString(),
  get: (target, name) => (name === 'now' ? now : Reflect.get(target, name)),
})

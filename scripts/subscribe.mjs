#!/usr/bin/env node
import { describeError, monotonicMs, toOneLine } from './lib/basics.cjs'
/**
 * The listener: prints `PATCHCORD: 1 new from alice` when a message comes. Started by hand, by the skill, or with `--auto`
 * by the plugin. Exit: 0 ended from outside · 1 a fault that no later try can mend · 2 already running.
 */
import { readSettings } from './lib/config.cjs'
import { Lines } from './lib/lines.mjs'
import { Supervisor } from './lib/supervisor.mjs'
import { watchSurroundings } from './lib/surroundings.mjs'

/** What a reader of stderr that does not read may cost us. */
const LOG_BYTES_MAX = 64 * 1024

const USAGE =
  'usage: node subscribe.mjs [--auto | --once]   prints one line per wake; --auto: for plugins, acts as trusted agents only; --once: trusts nobody from then on'

const [option, ...more] = process.argv.slice(2)
const isAuto = option === '--auto'
const isOnce = option === '--once'
if (option !== undefined && (!(isAuto || isOnce) || more.length > 0)) {
  // A mistyped --auto must not act as an agent that nobody trusts. stdout stays silent, whatever reads it.
  process.stderr.write(`subscribe: ${USAGE}\n`)
  process.exit(option === '--help' ? 0 : 1)
}
const settings = readSettings()
const lines = new Lines({ stream: process.stdout, times: settings.times, onClosed: () => void exit(0) })
const supervisor = new Supervisor({ settings, folder: findFolder(), isOnce, lines, log })
let isExiting = false
let recoveredAt = Number.NEGATIVE_INFINITY

process.stderr.on('error', () => {})
process.on('uncaughtException', (error) => void noteBug(error))
for (const signal of /** @type {const} */ (['SIGTERM', 'SIGINT', 'SIGHUP'])) process.on(signal, () => void exit(0))
process.on('exit', () => supervisor.release())
watchSurroundings({
  clientPid: settings.clientPid,
  everyMs: settings.times.tickMs,
  sleptMs: settings.times.sleptMs,
  onGone: () => void exit(0),
  onSlept: () => supervisor.reconnect(),
  onTick: () => supervisor.tick(),
})
if (settings.warning !== null) log(settings.warning)
if (!settings.isListening) {
  log('PATCHCORD_LISTEN=0: not listening')
  if (!isAuto) void exit(0)
} else if (isAuto) void supervisor.runAuto()
else void supervisor.runByHand().then(exit)

/** @param {number} code */
async function exit(code) {
  if (isExiting) return
  isExiting = true
  await Promise.race([supervisor.stop(), new Promise((resolve) => setTimeout(resolve, settings.times.exitMs))])
  process.exit(code)
}

/**
 * A fault of our own. By hand it is the end, and told of with what to do next. An exit of a plugin monitor starts a turn of a
 * model, so with `--auto` the rest goes on, and what the fault has broken is replaced by a fresh connection, now and then.
 * @param {unknown} error
 */
async function noteBug(error) {
  log(`error: ${describeError(error)}`)
  if (!isAuto) {
    await lines.stop(`the listener failed, start it again (${describeError(error)})`)
    return exit(1)
  }
  if (monotonicMs() - recoveredAt < settings.times.healthyMs) return
  recoveredAt = monotonicMs()
  supervisor.reconnect()
}

/** @param {string} text */
function log(text) {
  if (process.stderr.writableLength < LOG_BYTES_MAX) process.stderr.write(`subscribe: ${toOneLine(text, 500)}\n`)
}

function findFolder() {
  try {
    return process.cwd()
  } catch {
    // The folder was removed under us.
    return '/'
  }
}

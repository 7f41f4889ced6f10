#!/usr/bin/env node
/**
 * The listener of one Codex thread: `node codex-listener.mjs THREAD`, started detached by scripts/codex-hook.mjs in the project's
 * folder. It wakes the thread with `codex queue` and ends with it. Exit: 0 the thread has ended, or another listens for it.
 */
import { CodexSession } from './lib/codex-session.mjs'
import { isThreadId } from './lib/codex-thread.mjs'
import { readSettings } from './lib/config.mjs'
import { prepareRuntimeFolder } from './lib/pidfile.mjs'
import { describeError, toOneLine } from './lib/text.mjs'

/** The log lives in a folder that is often memory. */
const LOG_CHARACTERS_MAX = 64 * 1024

const [thread] = process.argv.slice(2)
let logged = 0
if (!isThreadId(thread)) {
  process.stderr.write('usage: node codex-listener.mjs THREAD   the hook of the plugin starts it, nobody needs to\n')
  process.exit(1)
}
const settings = Object.freeze({ ...readSettings(), session: thread, client: 'codex', clientPid: null })
const runtime = prepareRuntimeFolder(settings.runtimeFolders)
const session = new CodexSession({ thread, folder: process.cwd(), runtime, settings, log })

process.stderr.on('error', () => {})
for (const signal of /** @type {const} */ (['SIGTERM', 'SIGINT', 'SIGHUP'])) process.on(signal, () => void exit())
process.on('exit', () => session.release())
process.on('uncaughtException', (error) => log(`error: ${describeError(error)}`))
await session.run().catch((error) => log(`error: ${describeError(error)}`))
await exit()

/** Nobody would end a listener that has lost its loop, and it would stand in the way of the next one. */
async function exit() {
  const stopped = session.stop().catch((error) => log(`error: ${describeError(error)}`))
  await Promise.race([stopped, new Promise((resolve) => setTimeout(resolve, settings.times.exitMs))])
  process.exit(0)
}

/** @param {string} text */
function log(text) {
  const line = `${new Date().toISOString()} ${toOneLine(text, 500)}\n`
  logged += line.length
  if (logged < LOG_CHARACTERS_MAX) process.stderr.write(line)
}

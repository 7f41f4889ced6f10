/** What a hook of Codex does for the listener of its thread: notes the thread's state and starts the listener when there is none. */
import { spawn } from 'node:child_process'
import { closeSync, constants, fstatSync, ftruncateSync, openSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { findCodex } from './codex-process.mjs'
import { hasListener, isThreadId, listThreadFiles, readThread, removeThread, writeThread } from './codex-thread.mjs'
import { isHumanPrompt } from './hook-input.mjs'
import { discoverIdentities } from './mcp-json.mjs'
import { prepareRuntimeFolder } from './pidfile.mjs'
import { readTrusted, toTrustId } from './trust.mjs'

const LISTENER = fileURLToPath(new URL('../codex-listener.mjs', import.meta.url))

/**
 * Added to, not begun anew: the first prompt comes right after SessionStart, when the listener that was started then may not hold
 * its lock yet; so a second one is started, which ends at once and must not take the log of the first away.
 */
const LOG_FLAGS = constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND | (constants.O_NOFOLLOW ?? 0)
const LOG_BYTES_KEPT = 256 * 1024

/** When this hook began, as Date.now() counts. */
const BEGAN_AT = Date.now() - process.uptime() * 1_000

/** The state of a thread after an event; events that are not here change nothing. */
const STATES = /** @type {const} */ ({
  SessionStart: 'idle',
  UserPromptSubmit: 'busy',
  PostToolUse: 'busy',
  Stop: 'idle',
  Interrupt: 'idle',
  SessionEnd: 'ended',
})

/**
 * @typedef {import('./config.mjs').Settings} Settings
 *
 * @typedef {object} Event
 * @property {Record<string, unknown>} input what Codex writes to a hook's stdin
 * @property {Settings} settings
 * @property {boolean} [isContinued] our answer makes the turn go on
 */

/** @param {Event} event @returns {Promise<boolean>} false: a prompt came after the end of the turn that this hook is late to tell of */
export async function noteEvent({ input, settings, isContinued = false }) {
  const { session_id: thread, cwd: folder, hook_event_name: name } = input
  // A thread that another thread has started is not the person's.
  if (typeof input.agent_id === 'string') return true
  if (!isThreadId(thread) || typeof folder !== 'string' || !isKnown(name) || !settings.isListening) return true
  const runtime = prepareRuntimeFolder(settings.runtimeFolders)
  const before = readThread(runtime, thread)
  if (before === null && !isConfigured(folder, settings)) return true
  const state = isContinued ? 'busy' : STATES[name]
  if (state === 'idle' && before !== null && before.turnAt > BEGAN_AT) return false
  const codex = findCodex()
  if (codex === null || codex.isOneTurn) return true
  const { isOneTurn: _, ...process } = codex
  const now = Date.now()
  const isPrompt = name === 'UserPromptSubmit'
  const turnAt = isPrompt || before === null ? now : before.turnAt
  const promptedAt = (isPrompt && isHumanPrompt(input.prompt)) || before === null ? now : before.promptedAt
  writeThread(runtime, { thread, folder, state, changedAt: now, turnAt, promptedAt, codex: process })
  if (hasListener(runtime, thread)) return true
  if (state === 'ended') removeThread(runtime, thread)
  // A thread whose configuration came later, or whose listener was killed, gets one with its next prompt.
  else if (name === 'SessionStart' || isPrompt) await startListener(runtime, thread, folder, settings)
  return true
}

/** @param {unknown} name @returns {name is keyof typeof STATES} */
function isKnown(name) {
  return typeof name === 'string' && Object.hasOwn(STATES, name)
}

/** Whether there is an identity that the user trusts: nothing is written or started for other projects. @param {string} folder @param {Settings} settings */
function isConfigured(folder, { pair, lookup, trustFile }) {
  const { identities } = discoverIdentities({ folder, pair, lookup })
  const trusted = readTrusted(trustFile)
  return identities.some((identity) => trusted.has(toTrustId(identity)))
}

/** @param {string} runtime @param {string} thread @param {string} folder @param {Settings} settings */
async function startListener(runtime, thread, folder, settings) {
  if (!isConfigured(folder, settings)) return
  const { log } = listThreadFiles(runtime, thread)
  const output = openSync(log, LOG_FLAGS, 0o600)
  try {
    if (fstatSync(output).size > LOG_BYTES_KEPT) ftruncateSync(output)
    // A session of its own: Codex ends what a hook leaves in its process group.
    const child = spawn(process.execPath, [LISTENER, thread], {
      cwd: folder,
      detached: true,
      stdio: ['ignore', 'ignore', output],
      windowsHide: true,
    })
    child.on('error', () => {})
    child.unref()
  } finally {
    closeSync(output)
  }
}

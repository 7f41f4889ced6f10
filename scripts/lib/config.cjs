/** All that a program is told: by its environment, read here alone, as one frozen object; and, if it is a hook, on its stdin. */
const { fstatSync, readSync } = require('node:fs')
const { hostname, tmpdir, userInfo } = require('node:os')
const { isAbsolute, join } = require('node:path')
const { monotonicMs, parseObject } = require('./basics.cjs')

/**
 * @typedef {{ readonly [name in 'httpMs' | 'handshakeMs' | 'heartbeatMs' | 'heartbeatReplyMs' | 'joinMs' | 'subscribedMs'
 *   | 'compareMs' | 'compareSoonMs' | 'compareGapMs' | 'leaseMs' | 'leaseAfterLineMs' | 'leaseGraceMs' | 'healthyMs' | 'askAgainMs' | 'standbyMs' | 'configMs'
 *   | 'tickMs' | 'sleptMs' | 'refreshShare' | 'lineGapMs' | 'lineRefillMs' | 'lineBurst' | 'stalledMs' | 'exitMs']: number }
 *   & { readonly backoffMs: readonly number[] }} Times
 * @typedef {Record<string, string | undefined>} Environment
 */

/**
 * Every time of the listener, in milliseconds unless named otherwise.
 * @type {Times}
 */
const TIMES = Object.freeze({
  httpMs: 10_000,
  handshakeMs: 10_000,
  heartbeatMs: 25_000,
  heartbeatReplyMs: 10_000,
  /** Refusals of a join come 5 s late by design of Supabase Realtime. */
  joinMs: 15_000,
  /** From an accepted join of postgres_changes to its system message "Subscribed". */
  subscribedMs: 30_000,
  compareMs: 300_000,
  /** While a connection is on its way: its join asks for a comparison, which is enough if it comes within this time. */
  compareSoonMs: 1_000,
  compareGapMs: 250,
  leaseMs: 30_000,
  leaseAfterLineMs: 100,
  /** As long as a reconnect may take that nobody need know of. Then a deaf listener gives its lease back. */
  leaseGraceMs: 15_000,
  healthyMs: 60_000,
  askAgainMs: 1_000,
  /** Standing by: how often the other listener is looked for, to take over within 5 s of its end. */
  standbyMs: 3_000,
  /** `--auto`: how often .mcp.json and the list of trusted identities are looked at again. */
  configMs: 15_000,
  /** The one clock of an idle listener: is the parent there, is the pidfile ours, did the machine sleep? */
  tickMs: 5_000,
  /** A wall clock this far ahead of the timers means that the machine slept. */
  sleptMs: 20_000,
  /** The part of a ticket's life after which a fresh one is fetched. */
  refreshShare: 0.7,
  lineGapMs: 250,
  lineRefillMs: 2_000,
  lineBurst: 10,
  /** A write of stdout that takes longer counts as a reader that does not read. */
  stalledMs: 2_000,
  exitMs: 1_000,
  backoffMs: Object.freeze([1_000, 2_000, 4_000, 8_000, 15_000, 30_000]),
})

/** With what the process of a hook costs itself, it stays below 300 ms. */
const HOOK_MS = 220
const HOOK_MS_MAX = 10_000

/**
 * @typedef {object} Settings
 * @property {boolean} isListening false when PATCHCORD_LISTEN=0
 * @property {{ url: string, token: string } | null} pair PATCHCORD_URL and PATCHCORD_TOKEN, only together
 * @property {string | null} warning a sentence for stderr
 * @property {(name: string) => string | undefined} lookup a variable for `${VAR}` in .mcp.json
 * @property {string} session
 * @property {string} client
 * @property {boolean} isStartedByModel a session of Claude Code or Codex has started this, through one of its tools or its shell
 * @property {string} machine
 * @property {number | null} clientPid the process that the listener works for, beside its parent
 * @property {string[]} runtimeFolders where the pidfile may live, best first
 * @property {string} trustFile the user's list of trusted identities
 * @property {number} hookMs for all that a hook asks servers
 * @property {Times} times
 */

/**
 * @param {Environment} [env]
 * @returns {Settings}
 */
function readSettings(env = process.env) {
  const url = env.PATCHCORD_URL || undefined
  const token = env.PATCHCORD_TOKEN || undefined
  const pair = url !== undefined && token !== undefined ? { url, token } : null
  const clientPid = Number(env.CLAUDE_PID)
  const isInClaudeCode = Boolean(env.CLAUDECODE)
  return Object.freeze({
    isListening: env.PATCHCORD_LISTEN !== '0',
    pair,
    warning: url !== undefined && pair === null ? 'PATCHCORD_URL without PATCHCORD_TOKEN is ignored' : null,
    lookup: (/** @type {string} */ name) => env[name],
    session: toLabel(env.CLAUDE_CODE_SESSION_ID || `pid-${process.pid}-${Date.now().toString(36)}`),
    client: isInClaudeCode ? 'claude-code' : 'listener',
    isStartedByModel: isInClaudeCode || isInCodex(env),
    machine: toLabel(hostname()),
    clientPid: Number.isInteger(clientPid) && clientPid > 1 ? clientPid : null,
    runtimeFolders: listRuntimeFolders(env),
    trustFile: join(findConfigFolder(env), 'trusted.json'),
    hookMs: readHookMs(env.PATCHCORD_HOOK_MS),
    times: readTimes(env.PATCHCORD_LISTENER_TIMES),
  })
}

/** What Codex gives to the commands of a model, also where it has no sandbox. @param {Environment} env */
function isInCodex(env) {
  const names = Object.keys(env).filter((name) => /^CODEX_(?:THREAD_ID$|SESSION_ID$|SANDBOX)/.test(name))
  return names.some((name) => Boolean(env[name]))
}

/** What the API takes for a session, client or machine. @param {unknown} value */
function toLabel(value) {
  const label = String(value ?? '')
    .replace(/[^\w.:@/+-]/g, '-')
    .slice(0, 40)
  return /^[A-Za-z0-9]/.test(label) ? label : 'unknown'
}

/** @param {Environment} env */
function listRuntimeFolders(env) {
  const runtime = env.XDG_RUNTIME_DIR
  const fallback = join(tmpdir(), `patchcord-${process.getuid?.() ?? userInfo().username}`)
  return runtime !== undefined && isAbsolute(runtime) ? [join(runtime, 'patchcord'), fallback] : [fallback]
}

/** @param {Environment} env */
function findConfigFolder(env) {
  const config = env.XDG_CONFIG_HOME
  return config !== undefined && isAbsolute(config)
    ? join(config, 'patchcord')
    : join(env.HOME || findHome(), '.config', 'patchcord')
}

/** More than the default is for servers that are far away. @param {string | undefined} text */
function readHookMs(text) {
  const wanted = Number(text || HOOK_MS)
  return wanted > 0 ? Math.min(wanted, HOOK_MS_MAX) : HOOK_MS
}

/** A user without an entry in the list of users has none; nobody is trusted then. */
function findHome() {
  try {
    return userInfo().homedir
  } catch {
    return '/'
  }
}

/**
 * For tests only: PATCHCORD_LISTENER_TIMES is a JSON object that overrides entries of TIMES; what does not fit is ignored.
 * @param {string | undefined} json
 * @returns {Times}
 */
function readTimes(json) {
  if (json === undefined) return TIMES
  const overrides = parseObject(json) ?? {}
  /** @type {Record<string, unknown>} */
  const times = { ...TIMES }
  for (const [name, value] of Object.entries(overrides)) {
    if (name in TIMES && (typeof value === 'number' || Array.isArray(value))) times[name] = value
  }
  return /** @type {Times} */ (Object.freeze(times))
}

/** Above this, as with the result of a tool that has read a large file, the event is not understood and nothing is said. */
const INPUT_BYTES_MAX = 32 * 1024 * 1024
const CHUNK_BYTES = 64 * 1024
/** How long a client may take that keeps stdin open, whatever it writes. */
const READ_MS_MAX = 1_500
const PAUSE_MS_MAX = 5
const CLOSING_BRACE = 0x7d

/** Prompts that no person typed: events of Claude Code, and our own lines, which Codex is woken with. */
const MACHINE_PROMPT = /^\s*(?:<task-notification>|PATCHCORD: )/

/**
 * The event, whole; read to its end even where it is too long, as a client may not bear a closed pipe. Within two seconds.
 * @returns {Record<string, unknown> | null} null: not a JSON object
 */
function readInput() {
  // A person's terminal tells no event.
  const stats = fstatSync(0)
  if (stats.isCharacterDevice()) return null
  makeNonBlocking(stats)
  const deadline = monotonicMs() + READ_MS_MAX
  /** @type {Buffer[]} */
  const chunks = []
  let length = 0
  let parsedLength = 0
  for (let chunk = readChunk(deadline); chunk !== null; chunk = readChunk(deadline)) {
    length += chunk.length
    if (length > INPUT_BYTES_MAX) chunks.length = 0
    else chunks.push(chunk)
    // A client may leave the pipe open behind a whole event. Parsed again only at twice the length: a text full of braces
    // would otherwise be parsed at each of them.
    if (chunk.length === CHUNK_BYTES || length < 2 * parsedLength || !endsWithBrace(chunk)) continue
    parsedLength = length
    const event = parseObject(Buffer.concat(chunks).toString('utf8'))
    if (event !== null) return event
  }
  return parseObject(Buffer.concat(chunks).toString('utf8'))
}

/**
 * A read that blocks is ended by no timer. Node has no cheaper way to this for what it starts children with.
 * @param {import('node:fs').Stats} stats of stdin
 */
function makeNonBlocking(stats) {
  if (process.platform === 'win32' || !(stats.isFIFO() || stats.isSocket())) return
  const { Socket } = require('node:net')
  // Not process.stdin, which would begin to read. The descriptor lives on; an idle socket must not keep the process.
  new Socket({ fd: 0, readable: false, writable: false }).unref()
}

/**
 * @param {number} deadline as monotonicMs counts
 * @returns {Buffer | null} null: the end. Read synchronously, as `process.stdin` costs several milliseconds.
 */
function readChunk(deadline) {
  const chunk = Buffer.allocUnsafe(CHUNK_BYTES)
  const startedAt = monotonicMs()
  for (let now = startedAt; now < deadline; now = monotonicMs()) {
    try {
      const length = readSync(0, chunk)
      return length === 0 ? null : chunk.subarray(0, length)
    } catch (error) {
      // A pipe that does not block, and is empty yet. Anything else, as EOF on Windows, is the end.
      if (!(error instanceof Error && 'code' in error && error.code === 'EAGAIN')) return null
      const pauseMs = Math.min(PAUSE_MS_MAX, 0.5 + (now - startedAt) / 20)
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, pauseMs)
    }
  }
  return null
}

/** @param {Buffer} chunk */
function endsWithBrace(chunk) {
  return chunk.at(-1) === CLOSING_BRACE || (chunk.at(-1) === 0x0a && chunk.at(-2) === CLOSING_BRACE)
}

/** @param {unknown} prompt @returns {boolean} */
function isHumanPrompt(prompt) {
  return typeof prompt === 'string' && !MACHINE_PROMPT.test(prompt)
}

module.exports = { isHumanPrompt, readInput, readSettings, TIMES, toLabel }

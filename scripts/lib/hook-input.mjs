/** What a client tells its hook, on stdin. */
import { getBuiltin, monotonicMs } from './node.mjs'
import { parseObject } from './text.mjs'

const { fstatSync, readSync } = getBuiltin('fs')

/** Above this, as with the result of a tool that has read a large file, the event is not understood and nothing is said. */
const INPUT_BYTES_MAX = 32 * 1024 * 1024
const CHUNK_BYTES = 64 * 1024
/** How long a client may take that keeps stdin open, whatever it writes. */
const READ_MS_MAX = 1_500
const PAUSE_MS_MAX = 5
const CLOSING_BRACE = 0x7d
const LABEL = /^[A-Za-z0-9][\w.:@/+-]{0,39}$/

/** Prompts that no person typed: events of Claude Code, and our own lines, which Codex is woken with. */
const MACHINE_PROMPT = /^\s*(?:<task-notification>|PATCHCORD: )/

/**
 * The event, whole; read to its end even where it is too long, as a client may not bear a closed pipe. Within two seconds.
 * @returns {Record<string, unknown> | null} null: not a JSON object
 */
export function readInput() {
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
  const { Socket } = getBuiltin('net')
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
export function isHumanPrompt(prompt) {
  return typeof prompt === 'string' && !MACHINE_PROMPT.test(prompt)
}

/** A label as the API takes it for a client or a session. @param {unknown} value */
export function toLabel(value) {
  const label = String(value ?? '')
    .replace(/[^\w.:@/+-]/g, '-')
    .slice(0, 40)
  return LABEL.test(label) ? label : 'unknown'
}

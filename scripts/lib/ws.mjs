/**
 * WebSocket client (RFC 6455): no extensions, no subprotocols, TLS always verified.
 * The handshake's bytes are parsed by http-wire.cjs, the frames by ws-frames.mjs.
 */
import { Buffer } from 'node:buffer'
import { createHash, randomBytes } from 'node:crypto'
import { HeadReader, openSocket, readRetryAfter, writeHead } from './http-wire.cjs'
import { encodeClosePayload, encodeFrame, FrameParser, isCloseCode, MESSAGE_BYTES_MAX, OPCODE } from './ws-frames.mjs'

/** More is no answer of a server that means well. */
const HANDSHAKE_HEADERS_MAX = 256
const HANDSHAKE_MS = 10_000
const CLOSE_MS = 2_000
/** A peer that pings and never reads must not fill our memory with pongs; §5.5.3: the last of its pings is enough. */
const UNSENT_BYTES_BEFORE_PONG_MAX = 1024 * 1024
/** Whoever sends to a peer that does not read is told so instead of losing messages: any one message fits. */
const UNSENT_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
const UPGRADE_TOKEN = /(?:^|,)[\t ]*upgrade[\t ]*(?:,|$)/i
/** RFC 6455 §1.3. */
const ACCEPT_GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'

/**
 * @typedef {object} WebSocketEvents
 * @property {() => void} [onOpen]
 * @property {(text: string) => void} [onText]
 * @property {(data: Buffer) => void} [onBinary]
 * @property {(end: WebSocketEnd) => void} onClose once, and the last of all callbacks
 *
 * @typedef {object} WebSocketEnd
 * @property {number} code the peer's close code; 1005 without one, 1006 where none came, ours for a violation
 * @property {string} reason
 * @property {string | null} error what went wrong, null for an orderly close
 * @property {number | null} status the HTTP status of a refused handshake
 * @property {number} [retryAfterMs] for how long a refused handshake asked to be left alone, if it did
 */

export class WebSocketClient {
  /** @type {WebSocketEvents} */
  #events
  #times
  /** @type {import('node:net').Socket | null} until the handshake has ended well */
  #connecting = null
  /** @type {import('node:net').Socket | null} */
  #socket = null
  #parser
  /** @type {NodeJS.Timeout | undefined} */
  #timer
  /** @type {WebSocketEnd | null} set once a close frame went either way; what onClose will say */
  #end = null
  /** @type {Uint8Array | null} of the last ping, while what was sent before waits to be read */
  #owedPong = null
  #isClosed = false

  /**
   * Connects at once.
   * @param {URL} url ws: or wss:
   * @param {WebSocketEvents} events
   * @param {{ handshakeMs?: number, closeMs?: number, messageBytesMax?: number }} [options] a longer message ends with 1009
   */
  constructor(url, events, { messageBytesMax = MESSAGE_BYTES_MAX, ...times } = {}) {
    this.#parser = new FrameParser({ messageBytesMax })
    this.#events = events
    this.#times = { handshakeMs: HANDSHAKE_MS, closeMs: CLOSE_MS, ...times }
    this.#timer = setTimeout(() => this.#fail('handshake timed out'), this.#times.handshakeMs)
    this.#connect(url).catch((error) => this.#fail(describe(error)))
  }

  /** @param {URL} url */
  async #connect(url) {
    if (url.protocol !== 'wss:' && url.protocol !== 'ws:') throw new Error(`not a WebSocket address: ${url.protocol}`)
    const key = randomBytes(16).toString('base64')
    const socket = openSocket(url)
    this.#connecting = socket
    socket.on('error', (error) => this.#fail(describe(error)))
    if (this.#isClosed) return void socket.destroy()
    const reader = new HeadReader()
    socket.on('close', () => this.#fail('connection lost before the handshake ended'))
    socket.on('data', (chunk) => this.#readHead(reader, chunk, key))
    socket.write(
      writeHead('GET', url, {
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-key': key,
        'sec-websocket-version': '13',
      }),
    )
  }

  /** @param {InstanceType<typeof HeadReader>} reader @param {Buffer} chunk @param {string} key */
  #readHead(reader, chunk, key) {
    if (this.#isClosed) return
    try {
      const found = reader.push(chunk)
      if (found === null) return
      const problem = findHandshakeProblem(found.head, key)
      if (problem === null) this.#open(found.rest)
      else this.#fail(problem, found.head)
    } catch (error) {
      this.#fail(describe(error))
    }
  }

  /** @param {Buffer} rest bytes that came with the answer's head */
  #open(rest) {
    const socket = this.#connecting
    if (socket === null) return
    clearTimeout(this.#timer)
    this.#connecting = null
    this.#socket = socket
    for (const event of ['data', 'close']) socket.removeAllListeners(event)
    socket.on('data', (data) => this.#receive(data))
    socket.on('drain', () => this.#payPong())
    socket.on('close', () => this.#finish())
    // With a close frame still on its way out, the end of the socket or the timer comes next.
    socket.on('end', () => this.#end === null && this.#finish())
    this.#events.onOpen?.()
    if (rest.length > 0) this.#receive(rest)
  }

  /** @param {Uint8Array} chunk */
  #receive(chunk) {
    for (const event of this.#parser.push(chunk)) {
      if (this.#isClosed) return
      if (event.type === 'ping') this.#answerPing(event.data)
      else if (event.type === 'close') return this.#answerClose(event.code, event.reason)
      else if (event.type === 'violation') return this.#answerViolation(event.code, event.message)
      // §1.4: after our own close frame data may still arrive, and nobody waits for it.
      else if (this.#end !== null) continue
      else if (event.type === 'text') this.#events.onText?.(event.text)
      else if (event.type === 'binary') this.#events.onBinary?.(event.data)
    }
  }

  /** @param {Uint8Array} data */
  #answerPing(data) {
    this.#owedPong = data
    if ((this.#socket?.writableLength ?? 0) <= UNSENT_BYTES_BEFORE_PONG_MAX) this.#payPong()
  }

  #payPong() {
    if (this.#owedPong !== null) this.#send(OPCODE.pong, this.#owedPong)
    this.#owedPong = null
  }

  /** Echoes a close (§5.5.1); the server then closes the connection (§7.1.1), or the timer does. */
  #answerClose(/** @type {number} */ code, /** @type {string} */ reason) {
    const isEcho = this.#end !== null
    this.#end = { code, reason, error: null, status: null }
    if (!isEcho) this.#send(OPCODE.close, code === 1005 ? new Uint8Array() : encodeClosePayload(code, ''))
    this.#socket?.end()
    this.#finishLater()
  }

  /** §7.1.7. @param {number} code @param {string} message */
  #answerViolation(code, message) {
    if (this.#end !== null) return this.#finish()
    this.#end = { code, reason: message, error: message, status: null }
    this.#send(OPCODE.close, encodeClosePayload(code, message))
    this.#socket?.end()
    this.#finishLater()
  }

  #finishLater() {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#finish(), this.#times.closeMs)
  }

  /** @param {number} opcode @param {Uint8Array} payload */
  #send(opcode, payload) {
    if (this.#socket?.writable) this.#socket.write(encodeFrame(opcode, payload, randomBytes(4)))
  }

  /** @param {number} opcode @param {Uint8Array} payload */
  #sendMessage(opcode, payload) {
    if (this.#end !== null || this.#isClosed || this.#socket === null) return
    if (this.#socket.writableLength > UNSENT_BYTES_MAX) this.#fail('the server does not read')
    else this.#send(opcode, payload)
  }

  /** @param {string} error @param {import('./http-wire.cjs').Head} [head] of the answer that refuses */
  #fail(error, head) {
    const retryAfterMs = head === undefined ? null : readRetryAfter(head)
    const asked = retryAfterMs === null ? {} : { retryAfterMs }
    this.#end ??= { code: 1006, reason: '', error, status: head?.status ?? null, ...asked }
    this.#finish()
  }

  #finish() {
    if (this.#isClosed) return
    this.destroy()
    this.#events.onClose(this.#end ?? { code: 1006, reason: '', error: null, status: null })
  }

  /** Sends a message; what can no longer be sent is dropped, as onClose has come or is coming. @param {string} text */
  sendText(text) {
    this.#sendMessage(OPCODE.text, Buffer.from(text, 'utf8'))
  }

  /** The same with bytes. @param {Uint8Array} data */
  sendBinary(data) {
    this.#sendMessage(OPCODE.binary, data)
  }

  /**
   * Starts the closing handshake, once; onClose follows.
   * @param {number} [code] @param {string} [reason]
   */
  close(code = 1000, reason = '') {
    if (!isCloseCode(code)) throw new RangeError(`close code ${code} cannot be sent`)
    if (this.#isClosed || this.#end !== null) return
    if (this.#socket === null) return this.#fail('closed before the handshake ended')
    this.#end = { code: 1006, reason: '', error: null, status: null }
    this.#send(OPCODE.close, encodeClosePayload(code, reason))
    this.#finishLater()
  }

  /** Sends a close frame if it can, waits a moment for the server to end, and calls nothing back. */
  leave() {
    if (this.#isClosed) return
    this.#events = { onClose: () => {} }
    this.close(1000)
  }

  /** Ends everything at once: no callback is called any more, not even onClose. */
  destroy() {
    this.#isClosed = true
    clearTimeout(this.#timer)
    this.#connecting?.destroy()
    this.#socket?.destroy()
  }
}

/**
 * RFC 6455 §4.1, what the client must check in the answer.
 * @param {import('./http-wire.cjs').Head} head @param {string} key
 * @returns {string | null}
 */
function findHandshakeProblem({ status, headers, headerCount }, key) {
  const hasUpgrade = headers.has('upgrade') && UPGRADE_TOKEN.test(headers.get('connection') ?? '')
  if (status !== 101 || !hasUpgrade) return `HTTP ${status}`
  if (headerCount > HANDSHAKE_HEADERS_MAX) return 'the answer has too many headers'
  if (headers.get('upgrade')?.toLowerCase() !== 'websocket') return 'the answer does not upgrade to websocket'
  const accept = createHash('sha1').update(`${key}${ACCEPT_GUID}`).digest('base64')
  if (headers.get('sec-websocket-accept') !== accept) return 'the answer has a wrong sec-websocket-accept'
  if (headers.has('sec-websocket-extensions')) return 'the server uses an extension nobody offered'
  if (headers.has('sec-websocket-protocol')) return 'the server chose a subprotocol nobody offered'
  return null
}

/** @param {unknown} error */
function describe(error) {
  if (!(error instanceof Error)) return String(error)
  const code = 'code' in error && typeof error.code === 'string' ? error.code : ''
  // A connection tried on several addresses fails with an AggregateError that has a code and no message.
  return error.message === '' ? code || error.name : error.message
}

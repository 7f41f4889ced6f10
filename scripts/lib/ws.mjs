/**
 * WebSocket client (RFC 6455) on node:http: no extensions, no subprotocols, TLS always verified.
 * The handshake's bytes are parsed by Node's HTTP parser; the frames by ws-frames.mjs.
 */
import { Buffer } from 'node:buffer'
import { createHash, randomBytes } from 'node:crypto'
import { request as requestHttp } from 'node:http'
import { encodeClosePayload, encodeFrame, FrameParser, isCloseCode, MESSAGE_BYTES_MAX, OPCODE } from './ws-frames.mjs'

export const HANDSHAKE_HEADER_BYTES_MAX = 64 * 1024
/** Node drops headers from the thousandth on without a word, and a header that forbids us to go on may be among them. */
const HANDSHAKE_HEADERS_MAX = 256
const HANDSHAKE_MS = 10_000
const CLOSE_MS = 2_000
/** A peer that pings and never reads must not fill our memory with pongs; §5.5.3: the last of its pings is enough. */
const UNSENT_BYTES_BEFORE_PONG_MAX = 1024 * 1024
/** Whoever sends to a peer that does not read is told so instead of losing messages: any one message fits. */
const UNSENT_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
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
 */

export class WebSocketClient {
  /** @type {WebSocketEvents} */
  #events
  #times
  /** @type {import('node:http').ClientRequest | null} */
  #request = null
  /** @type {import('node:stream').Duplex | null} */
  #socket = null
  #parser = new FrameParser()
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
   * @param {{ handshakeMs?: number, closeMs?: number }} [times]
   */
  constructor(url, events, times = {}) {
    this.#events = events
    this.#times = { handshakeMs: HANDSHAKE_MS, closeMs: CLOSE_MS, ...times }
    this.#timer = setTimeout(() => this.#fail('handshake timed out'), this.#times.handshakeMs)
    this.#connect(url).catch((error) => this.#fail(describe(error)))
  }

  /** @param {URL} url */
  async #connect(url) {
    const isSecure = url.protocol === 'wss:'
    if (!isSecure && url.protocol !== 'ws:') throw new Error(`not a WebSocket address: ${url.protocol}`)
    const request = isSecure ? (await import('node:https')).request : requestHttp
    if (this.#isClosed) return
    const key = randomBytes(16).toString('base64')
    this.#request = request({
      protocol: isSecure ? 'https:' : 'http:',
      // A URL keeps the brackets of an IPv6 address; a socket address has none.
      hostname: url.hostname.replace(/^\[|\]$/g, ''),
      port: url.port === '' ? undefined : Number(url.port),
      path: `${url.pathname}${url.search}`,
      agent: false,
      maxHeaderSize: HANDSHAKE_HEADER_BYTES_MAX,
      rejectUnauthorized: true,
      headers: {
        host: url.host,
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-key': key,
        'sec-websocket-version': '13',
      },
    })
    this.#request.on('upgrade', (response, socket, head) => this.#open(response, socket, head, key))
    this.#request.on('response', (response) => {
      this.#fail(`HTTP ${response.statusCode}`, response.statusCode)
    })
    this.#request.on('error', (error) => this.#fail(describe(error)))
    this.#request.on('close', () => {
      if (this.#socket === null) this.#fail('connection lost before the handshake ended')
    })
    this.#request.end()
  }

  /**
   * @param {import('node:http').IncomingMessage} response
   * @param {import('node:stream').Duplex} socket
   * @param {Buffer} head bytes that came with the answer's headers
   * @param {string} key
   */
  #open(response, socket, head, key) {
    socket.on('error', (error) => this.#fail(describe(error)))
    this.#socket = socket
    const problem = findHandshakeProblem(response, key)
    if (problem !== null) return this.#fail(problem)
    clearTimeout(this.#timer)
    if ('setNoDelay' in socket && typeof socket.setNoDelay === 'function') socket.setNoDelay(true)
    socket.on('data', (chunk) => this.#receive(chunk))
    socket.on('drain', () => this.#payPong())
    socket.on('close', () => this.#finish())
    // With a close frame still on its way out, the end of the socket or the timer comes next.
    socket.on('end', () => this.#end === null && this.#finish())
    this.#events.onOpen?.()
    if (head.length > 0) this.#receive(head)
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

  /** @param {string} error @param {number} [status] */
  #fail(error, status) {
    this.#end ??= { code: 1006, reason: '', error, status: status ?? null }
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
    this.#request?.destroy()
    this.#socket?.destroy()
  }
}

/**
 * RFC 6455 §4.1, what the client must check in the answer; that it has `connection: upgrade` Node has checked.
 * @param {import('node:http').IncomingMessage} response @param {string} key
 * @returns {string | null}
 */
function findHandshakeProblem(response, key) {
  const { headers } = response
  if (response.statusCode !== 101) return `HTTP ${response.statusCode}`
  if (response.rawHeaders.length > 2 * HANDSHAKE_HEADERS_MAX) return 'the answer has too many headers'
  if (headers.upgrade?.toLowerCase() !== 'websocket') return 'the answer does not upgrade to websocket'
  const accept = createHash('sha1').update(`${key}${ACCEPT_GUID}`).digest('base64')
  if (headers['sec-websocket-accept']?.trim() !== accept) return 'the answer has a wrong sec-websocket-accept'
  if (headers['sec-websocket-extensions'] !== undefined) return 'the server uses an extension nobody offered'
  if (headers['sec-websocket-protocol'] !== undefined) return 'the server chose a subprotocol nobody offered'
  return null
}

/** @param {unknown} error */
function describe(error) {
  if (!(error instanceof Error)) return String(error)
  const code = 'code' in error && typeof error.code === 'string' ? error.code : ''
  // A connection tried on several addresses fails with an AggregateError that has a code and no message.
  return error.message === '' ? code || error.name : error.message
}

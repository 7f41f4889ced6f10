/**
 * HTTP/1.1 as a client sees it, byte by byte (RFC 9112): a connection to a server, the head of its answer, and the body as the
 * head announces it. For our calls and for the WebSocket handshake. node:http knows all of it, too, but a listener would pay for
 * its agents, servers and streams at every start.
 */

const { connect: connectTcp, isIP } = require('node:net')

const HEAD_BYTES_MAX = 64 * 1024
const END = '\r\n\r\n'
const START = 'HTTP/1.'
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?$/
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/
const LINE_BYTES_MAX = 4 * 1024
const TRAILER_BYTES_MAX = 64 * 1024
const SIZE_LINE = /^([0-9A-Fa-f]{1,8})(?:[\t ]*;[\t\x20-\x7e\x80-\xff]*)?$/

/**
 * @typedef {object} Head
 * @property {number} status
 * @property {boolean} isHttp10
 * @property {Map<string, string>} headers names in lower case; what came several times is joined by commas
 * @property {number} headerCount
 */

/**
 * A socket on its way to the server; TLS is always verified.
 * @param {URL} url http:, https:, ws: or wss:
 * @param {{ session?: Buffer | undefined, address?: string | undefined }} [known] session: of an earlier connection to the same
 *   server; address: of the host, which is then not looked up
 * @returns {import('node:net').Socket}
 */
function openSocket(url, { session, address } = {}) {
  // A URL keeps the brackets of an IPv6 address; a socket address has none.
  const name = url.hostname.replace(/^\[|\]$/g, '')
  const host = address ?? name
  const isSecure = url.protocol === 'https:' || url.protocol === 'wss:'
  const port = url.port === '' ? (isSecure ? 443 : 80) : Number(url.port)
  if (!isSecure) return connectTcp({ host, port, noDelay: true })
  // TLS costs memory and start-up time, and a server on this machine has none.
  const { connect } = require('node:tls')
  const resumed = session === undefined ? {} : { session }
  const servername = isIP(name) === 0 ? name : ''
  return connect({ host, port, servername, ALPNProtocols: ['http/1.1'], rejectUnauthorized: true, ...resumed })
}

/**
 * The bytes of a request without a body, or of the part before it.
 * @param {string} method @param {URL} url @param {Record<string, string>} headers
 * @throws {Error} for a value that would end its line: nothing but what is meant may stand in a request
 */
function writeHead(method, url, headers) {
  const lines = Object.entries({ host: url.host, ...headers }).map(([name, value]) => {
    if (!NAME.test(name) || !VALUE.test(value)) throw new Error(`header ${name} cannot be sent`)
    return `${name}: ${value}\r\n`
  })
  return `${method} ${url.pathname}${url.search} HTTP/1.1\r\n${lines.join('')}\r\n`
}

/** Reads the head of an answer from chunks of any size; interim answers (1xx but 101) before it are left out. */
class HeadReader {
  /** @type {string[]} */
  #parts = []
  /** The last bytes of what came before, in which the end of the head may have begun. */
  #tail = ''
  #start = ''
  #length = 0

  /**
   * @param {Buffer} chunk
   * @returns {{ head: Head, rest: Buffer } | null} null: more is needed
   * @throws {Error} a parse error
   */
  push(chunk) {
    for (let rest = chunk; ; ) {
      const text = rest.toString('latin1')
      const at = (this.#tail + text).indexOf(END)
      const length = at < 0 ? text.length : at + END.length - this.#tail.length
      this.#take(text.slice(0, length))
      if (at < 0) return null
      const head = parseHead(this.#parts.join('').slice(0, -END.length))
      rest = rest.subarray(length)
      if (head.status >= 200 || head.status === 101) return { head, rest }
      this.#parts = []
      this.#tail = ''
      this.#start = ''
    }
  }

  /** @param {string} text */
  #take(text) {
    this.#length += text.length
    if (this.#length > HEAD_BYTES_MAX) throw new Error('Parse Error: header overflow')
    if (this.#start.length < START.length) {
      this.#start = (this.#start + text).slice(0, START.length)
      // What is no HTTP may never come to the end of a head.
      if (!START.startsWith(this.#start)) throw new Error('Parse Error: expected HTTP/1')
    }
    this.#parts.push(text)
    this.#tail = (this.#tail + text).slice(1 - END.length)
  }
}

/** @param {string} text without the empty line @returns {Head} */
function parseHead(text) {
  const [statusLine = '', ...lines] = text.split('\r\n')
  const [, minor, status] = STATUS_LINE.exec(statusLine) ?? []
  if (status === undefined) throw new Error('Parse Error: bad status line')
  /** @type {Map<string, string>} */
  const headers = new Map()
  for (const line of lines) {
    const colon = line.indexOf(':')
    const name = line.slice(0, Math.max(colon, 0)).toLowerCase()
    if (!NAME.test(name)) throw new Error('Parse Error: bad header name')
    if (!VALUE.test(line.slice(colon + 1))) throw new Error('Parse Error: bad header value')
    const value = line.slice(colon + 1).trim()
    const before = headers.get(name)
    headers.set(name, before === undefined ? value : `${before}, ${value}`)
  }
  return { status: Number(status), isHttp10: minor === '0', headers, headerCount: lines.length }
}

/**
 * RFC 9110 §10.2.3, the form in seconds.
 * @param {Head} head @returns {number | null} ms
 */
function readRetryAfter({ headers }) {
  const value = headers.get('retry-after') ?? ''
  return /^\d{1,9}$/.test(value) ? Number(value) * 1000 : null
}

/**
 * @typedef {object} Body
 * @property {(chunk: Buffer) => void} push throws an Error for what is not allowed
 * @property {boolean} isWhole nothing more belongs to it
 * @property {boolean} isWholeAtEnd the end of the connection is its end
 * @property {() => Buffer} read
 */

/**
 * @param {Head} head @param {number} bytesMax
 * @returns {Body}
 * @throws {Error} a head that leaves open where its body ends
 */
function createBody({ status, headers, isHttp10 }, bytesMax) {
  const coding = headers.get('transfer-encoding')
  const length = headers.get('content-length')
  if (status === 204 || status === 304) return new SizedBody(0, bytesMax)
  if (coding !== undefined) {
    // Both, or another coding: what one reader takes for the end another does not (§6.1, §11.2).
    if (length !== undefined || isHttp10 || coding.toLowerCase() !== 'chunked') throw new Error('bad transfer-encoding')
    return new ChunkedBody(bytesMax)
  }
  if (length === undefined) return new SizedBody(Number.POSITIVE_INFINITY, bytesMax)
  if (!/^\d{1,15}$/.test(length)) throw new Error('bad content-length')
  if (Number(length) > bytesMax) throw new Error('the answer is too long')
  return new SizedBody(Number(length), bytesMax)
}

class Pieces {
  /** @type {Buffer[]} */
  #pieces = []
  #length = 0
  #bytesMax

  /** @param {number} bytesMax */
  constructor(bytesMax) {
    this.#bytesMax = bytesMax
  }

  /** @param {Buffer} piece */
  add(piece) {
    this.#length += piece.length
    if (this.#length > this.#bytesMax) throw new Error('the answer is too long')
    this.#pieces.push(piece)
  }

  read() {
    return Buffer.concat(this.#pieces)
  }
}

/** @implements {Body} */
class SizedBody {
  #left
  #pieces
  isWholeAtEnd

  /** @param {number} length Infinity: up to the end of the connection @param {number} bytesMax */
  constructor(length, bytesMax) {
    this.#left = length
    this.#pieces = new Pieces(bytesMax)
    this.isWholeAtEnd = length === Number.POSITIVE_INFINITY
  }

  get isWhole() {
    return this.#left === 0
  }

  /** @param {Buffer} chunk */
  push(chunk) {
    const piece = chunk.subarray(0, Math.min(this.#left, chunk.length))
    this.#left -= piece.length
    this.#pieces.add(piece)
  }

  read() {
    return this.#pieces.read()
  }
}

/** §7.1. @implements {Body} */
class ChunkedBody {
  #pieces
  /** @type {'size' | 'data' | 'data-end' | 'trailer' | 'done'} */
  #state = 'size'
  #line = ''
  #left = 0
  #trailerBytes = 0
  isWholeAtEnd = false

  /** @param {number} bytesMax */
  constructor(bytesMax) {
    this.#pieces = new Pieces(bytesMax)
  }

  get isWhole() {
    return this.#state === 'done'
  }

  /** @param {Buffer} chunk */
  push(chunk) {
    for (let rest = chunk; rest.length > 0 && this.#state !== 'done'; ) {
      rest = this.#state === 'data' ? this.#pushData(rest) : this.#pushLine(rest)
    }
  }

  /** @param {Buffer} chunk @returns {Buffer} what is left of it */
  #pushData(chunk) {
    const piece = chunk.subarray(0, this.#left)
    this.#left -= piece.length
    this.#pieces.add(piece)
    if (this.#left === 0) this.#state = 'data-end'
    return chunk.subarray(piece.length)
  }

  /** @param {Buffer} chunk @returns {Buffer} what is left of it */
  #pushLine(chunk) {
    const end = chunk.indexOf(10)
    const part = end < 0 ? chunk : chunk.subarray(0, end)
    this.#line += part.toString('latin1')
    if (this.#line.length > LINE_BYTES_MAX) throw new Error('Parse Error: a line of the body is too long')
    if (end < 0) return chunk.subarray(chunk.length)
    if (!this.#line.endsWith('\r')) throw new Error('Parse Error: a line of the body has no carriage return')
    const line = this.#line.slice(0, -1)
    this.#line = ''
    this.#endLine(line)
    return chunk.subarray(end + 1)
  }

  /** @param {string} line */
  #endLine(line) {
    if (this.#state === 'size') {
      const size = SIZE_LINE.exec(line)?.[1]
      if (size === undefined) throw new Error('Parse Error: bad chunk size')
      this.#left = Number.parseInt(size, 16)
      this.#state = this.#left === 0 ? 'trailer' : 'data'
    } else if (this.#state === 'data-end') {
      if (line !== '') throw new Error('Parse Error: a chunk is longer than its size')
      this.#state = 'size'
    } else {
      this.#trailerBytes += line.length
      if (this.#trailerBytes > TRAILER_BYTES_MAX) throw new Error('Parse Error: trailer overflow')
      if (line === '') this.#state = 'done'
    }
  }

  read() {
    return this.#pieces.read()
  }
}

module.exports = { createBody, HEAD_BYTES_MAX, HeadReader, openSocket, readRetryAfter, writeHead }

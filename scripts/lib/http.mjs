/**
 * One JSON request and its answer, HTTP/1.1 over a connection of its own. `fetch` would cost 8 MB of memory in every listener,
 * and a call every 30 s would find most kept connections closed by somebody between here and the server.
 */
import { createBody, HeadReader, openSocket, readRetryAfter, writeHead } from './http-wire.mjs'
import { parseObject } from './text.mjs'

/** The largest answer is an inbox of 1,000 pending ids, about 150 kB. */
const ANSWER_BYTES_MAX = 1024 * 1024

/**
 * @typedef {object} Answer
 * @property {number} status
 * @property {Record<string, unknown> | null} json null: the body is not a JSON object
 * @property {number | null} retryAfterMs of a 429 or 503 that names seconds
 *
 * @typedef {(input: { method: string, url: string, token: string, body?: unknown, timeoutMs: number, address?: string,
 *   signal?: AbortSignal }) => Promise<Answer>} RequestJson address: where the host is, if that is known
 *   Rejects with an Error when there is no whole answer: unreachable, timed out, cut off, too long, aborted.
 */

/**
 * A client of one server: follows no redirects (a token is for one server only).
 * @returns {{ requestJson: RequestJson, close: () => void }}
 */
export function createHttpClient() {
  /** @type {Set<Exchange>} */
  const running = new Set()
  /** Of the last connection over TLS: the next one is spared the certificates. @type {Buffer | undefined} */
  let session
  return {
    requestJson: async ({ signal, ...input }) => {
      if (signal?.aborted) throw new Error('aborted')
      const exchange = new Exchange(input, session)
      const abort = () => exchange.fail(new Error('aborted'))
      signal?.addEventListener('abort', abort)
      running.add(exchange)
      try {
        const answer = await exchange.answer
        session = exchange.session
        return answer
      } finally {
        running.delete(exchange)
        signal?.removeEventListener('abort', abort)
      }
    },
    close: () => {
      for (const exchange of running) exchange.fail(new Error('aborted'))
    },
  }
}

/** @typedef {Omit<Parameters<RequestJson>[0], 'signal'>} Input */

class Exchange {
  #reader = new HeadReader()
  /** @type {import('./http-wire.mjs').Head | null} */
  #head = null
  /** @type {import('./http-wire.mjs').Body | null} */
  #body = null
  /** @type {import('node:net').Socket | null} */
  #socket = null
  #isOver = false
  /** @type {(answer: Answer) => void} */
  #resolve = () => {}
  /** @type {(error: Error) => void} */
  #reject = () => {}
  #timer
  /** @type {Buffer | undefined} */
  session
  /** @type {Promise<Answer>} */
  answer

  /** @param {Input} input @param {Buffer | undefined} session */
  constructor(input, session) {
    this.session = session
    this.answer = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    // One deadline for the whole exchange: an answer that drips byte by byte would outlive an idle time-out.
    this.#timer = setTimeout(() => this.fail(new Error(`no answer within ${input.timeoutMs}ms`)), input.timeoutMs)
    this.#run(input).catch((error) => this.fail(error))
  }

  /** @param {Input} input */
  async #run({ method, url: text, token, body, address }) {
    const url = new URL(text)
    const payload = body === undefined ? '' : JSON.stringify(body)
    const head = writeHead(method, url, {
      authorization: `Bearer ${token}`,
      accept: 'application/json',
      'user-agent': 'patchcord-listener',
      connection: 'close',
      ...(payload !== '' && {
        'content-type': 'application/json',
        'content-length': String(Buffer.byteLength(payload)),
      }),
    })
    const socket = await openSocket(url, { session: this.session, address })
    this.#socket = socket
    socket.on('error', (error) => this.fail(error))
    if (this.#isOver) return void socket.destroy()
    socket.on('data', (chunk) => this.#receive(chunk))
    socket.on('end', () => this.#body?.isWholeAtEnd && this.#succeed())
    socket.on('close', () => this.fail(new Error(`the connection was closed ${this.#describeProgress()} an answer`)))
    socket.write(head + payload)
  }

  /** @param {Buffer} chunk */
  #receive(chunk) {
    try {
      this.#read(chunk)
    } catch (error) {
      this.fail(/** @type {Error} */ (error))
    }
  }

  /** @param {Buffer} chunk */
  #read(chunk) {
    if (this.#isOver) return
    let bytes = chunk
    if (this.#body === null) {
      const found = this.#reader.push(chunk)
      if (found === null) return
      if (found.head.status === 101) throw new Error('the server changes the protocol unasked')
      this.#head = found.head
      this.#body = createBody(found.head, ANSWER_BYTES_MAX)
      bytes = found.rest
    }
    this.#body.push(bytes)
    if (this.#body.isWhole) this.#succeed()
  }

  #describeProgress() {
    return this.#body === null ? 'without' : 'within'
  }

  #succeed() {
    if (this.#isOver || this.#head === null || this.#body === null) return
    const json = parseObject(this.#body.read().toString('utf8'))
    // Only here has TLS been verified for certain.
    if (this.#socket !== null && 'getSession' in this.#socket) this.session = readSession(this.#socket)
    this.#finish()
    this.#resolve({ status: this.#head.status, json, retryAfterMs: readRetryAfter(this.#head) })
  }

  /** Ends it without an answer. @param {Error} error */
  fail(error) {
    if (this.#isOver) return
    this.#finish()
    this.#reject(error)
  }

  #finish() {
    this.#isOver = true
    clearTimeout(this.#timer)
    this.#socket?.destroy()
  }
}

/** @param {import('node:net').Socket} socket of node:tls */
function readSession(socket) {
  return /** @type {import('node:tls').TLSSocket} */ (socket).getSession()
}

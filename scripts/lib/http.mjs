/** One JSON request over node:http or node:https: `fetch` would cost 8 MB of memory in every listener. */
import { Buffer } from 'node:buffer'
import { Agent, request as requestHttp } from 'node:http'
import { isRecord } from './text.mjs'

/** The largest answer is an inbox of 1,000 pending ids, about 150 kB. */
const ANSWER_BYTES_MAX = 1024 * 1024

/**
 * @typedef {object} Answer
 * @property {number} status
 * @property {Record<string, unknown> | null} json null: the body is not a JSON object
 * @property {number | null} retryAfterMs of a 429 or 503 that names seconds
 *
 * @typedef {(input: { method: string, url: string, token: string, body?: unknown, timeoutMs: number, signal?: AbortSignal }) => Promise<Answer>} RequestJson
 *   Rejects with an Error when there is no whole answer: unreachable, timed out, cut off, too long, aborted.
 */

/**
 * A client of one server: keeps a connection alive between calls, follows no redirects (a token is for one server only).
 * @returns {Promise<{ requestJson: RequestJson, close: () => void }>}
 */
export async function createHttpClient(/** @type {string} */ base) {
  // TLS costs memory and start-up time, and a server on this machine has none.
  const secure = base.startsWith('https:') ? await import('node:https') : null
  const options = { keepAlive: true, maxSockets: 4, maxFreeSockets: 1 }
  const agent = secure === null ? new Agent(options) : new secure.Agent({ ...options, rejectUnauthorized: true })
  const request = secure === null ? requestHttp : secure.request
  return {
    requestJson: async (input) => {
      try {
        return await exchange(request, agent, input)
      } catch (error) {
        // The server may close an idle connection in the moment we use it (RFC 9112 §9.3.1); every call of ours is idempotent.
        if (error instanceof StaleConnectionError) return await exchange(request, agent, input)
        throw error
      }
    },
    close: () => agent.destroy(),
  }
}

class StaleConnectionError extends Error {}

/**
 * @param {typeof requestHttp} request
 * @param {Agent} agent
 * @param {Parameters<RequestJson>[0]} input
 * @returns {Promise<Answer>}
 */
function exchange(request, agent, { method, url, token, body, timeoutMs, signal }) {
  return new Promise((resolve, reject) => {
    const payload = body === undefined ? null : Buffer.from(JSON.stringify(body), 'utf8')
    const outgoing = request(url, {
      method,
      agent,
      headers: {
        authorization: `Bearer ${token}`,
        accept: 'application/json',
        'user-agent': 'patchcord-listener',
        ...(payload !== null && { 'content-type': 'application/json', 'content-length': payload.length }),
      },
      ...(signal !== undefined && { signal }),
    })
    let hasAnswer = false
    // One deadline for the whole exchange: an answer that drips byte by byte would outlive an idle time-out.
    const timer = setTimeout(() => {
      settle(new Error(`no answer within ${timeoutMs}ms`))
      outgoing.destroy()
    }, timeoutMs)
    outgoing.on('response', (response) => {
      hasAnswer = true
      readBody(response).then((text) => {
        clearTimeout(timer)
        resolve({ status: response.statusCode ?? 0, json: parseObject(text), retryAfterMs: readRetryAfter(response) })
      }, settle)
    })
    outgoing.on('error', (error) => {
      const isStale = outgoing.reusedSocket && 'code' in error && /^(?:ECONNRESET|EPIPE)$/.test(String(error.code))
      settle(isStale && !hasAnswer ? new StaleConnectionError(error.message) : error)
    })
    outgoing.on('close', () => {
      // Once there is an answer, reading its body says how it ends, and may end after this event.
      if (!hasAnswer) settle(new Error('the connection was closed without an answer'))
    })
    outgoing.end(payload)

    function settle(/** @type {Error} */ error) {
      clearTimeout(timer)
      reject(error)
    }
  })
}

/** @param {import('node:http').IncomingMessage} response @returns {Promise<string>} */
async function readBody(response) {
  /** @type {Buffer[]} */
  const chunks = []
  let length = 0
  for await (const chunk of response) {
    length += chunk.length
    // Leaving the loop destroys the response.
    if (length > ANSWER_BYTES_MAX) throw new Error('the answer is too long')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

/** @param {string} text */
function parseObject(text) {
  try {
    const json = /** @type {unknown} */ (JSON.parse(text))
    return isRecord(json) ? json : null
  } catch {
    return null
  }
}

/** @param {import('node:http').IncomingMessage} response RFC 9110 §10.2.3, the form in seconds */
function readRetryAfter(response) {
  const seconds = Number(response.headers['retry-after'])
  return Number.isFinite(seconds) && seconds >= 0 && response.headers['retry-after'] !== '' ? seconds * 1000 : null
}

/** The four calls that a listener makes, with every answer checked before anything of it is used. */
import { spreadAskedWait } from './backoff.mjs'
import { isName, isRecord, toOneLine } from './basics.cjs'
import { createHttpClient } from './http.cjs'
import { isLoopback } from './mcp-json.cjs'

const TOPICS_MAX = 100
const EXPIRES_IN_SECONDS_MAX = 86_400
const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/** Our own `error.code` with its status → the contract's sentence. Any other answer is a fault that may pass. */
const FATAL = Object.freeze({
  token_rejected: { status: 401, text: 'token rejected (HTTP 401), check .mcp.json' },
  token_revoked: { status: 403, text: 'token rejected (HTTP 403), check .mcp.json' },
  agent_gone: { status: 404, text: 'namespace not owned, regenerate your token' },
  realtime_not_configured: { status: 501, text: 'server not configured for realtime' },
})

/**
 * @typedef {object} Ticket
 * @property {string} agent
 * @property {string[]} namespaces
 * @property {URL} url with apikey and vsn
 * @property {string} jwt
 * @property {number} expiresInMs from now
 * @property {{ name: string, config: Record<string, unknown> }[]} topics
 *
 * @typedef {{ id: string, from: unknown }} Pending
 *
 * @typedef {object} Api
 * @property {() => Promise<Ticket>} getTicket
 * @property {() => Promise<Pending[]>} listPending oldest first
 * @property {(lease: { session: string, client: string, machine: string, announced: string[] }) => Promise<void>} putLease
 * @property {(session: string, timeoutMs: number) => Promise<void>} deleteLease
 * @property {() => void} close
 */

/** An answer that was not the one asked for. */
export class ApiError extends Error {
  /** The contract's sentence when the server says, in our own JSON, that no later try can succeed. */
  fatalText
  retryAfterMs

  /** @param {import('./http.cjs').Answer} answer */
  constructor(answer) {
    const error = isRecord(answer.json?.error) ? answer.json.error : {}
    const code = typeof error.code === 'string' ? error.code : ''
    super(`HTTP ${answer.status}${code === '' ? '' : ` ${toOneLine(code, 40)}`}`)
    const fatal = Object.hasOwn(FATAL, code) ? FATAL[/** @type {keyof typeof FATAL} */ (code)] : null
    this.fatalText = fatal !== null && fatal.status === answer.status ? fatal.text : null
    this.retryAfterMs = answer.retryAfterMs
  }
}

/** How long to leave a server alone that has asked for it, 0 if it did not. @param {unknown} error */
export function readRetryAfterMs(error) {
  return error instanceof ApiError ? spreadAskedWait(error.retryAfterMs ?? 0) : 0
}

/**
 * @param {{ base: string, token: string, timeoutMs: number, signal?: AbortSignal }} options
 * @returns {Api}
 */
export function createApi({ base, token, timeoutMs, signal }) {
  const http = createHttpClient()
  /** @param {string} method @param {string} path @param {{ body?: unknown, timeoutMs?: number, isLast?: boolean }} [more] */
  const call = async (method, path, { isLast = false, ...more } = {}) => {
    const stop = signal === undefined || isLast ? {} : { signal }
    const answer = await http.requestJson({ method, url: `${base}${path}`, token, timeoutMs, ...stop, ...more })
    if (answer.status < 200 || answer.status > 299) throw new ApiError(answer)
    return answer.json
  }
  return {
    getTicket: async () => parseTicket(await call('GET', '/api/realtime/ticket'), base),
    listPending: async () => parsePending(await call('GET', '/api/inbox?status=new&count_only=1')),
    putLease: async (lease) => {
      await call('PUT', '/api/lease', { body: lease })
    },
    // The last call of a life: it must outlive the abort that ends all others.
    deleteLease: async (session, lastMs) => {
      await call('DELETE', `/api/lease?session=${encodeURIComponent(session)}`, { timeoutMs: lastMs, isLast: true })
    },
    close: () => http.close(),
  }
}

/** @param {Record<string, unknown> | null} json @param {string} base of the API @returns {Ticket} */
function parseTicket(json, base) {
  const { agent_id: agent, namespace_ids: namespaces, jwt, jwt_expires_in: expiresIn, apikey } = json ?? {}
  if (!isName(agent)) throw new Error('bad ticket: agent_id')
  if (!Array.isArray(namespaces) || namespaces.length === 0 || !namespaces.every(isName)) {
    throw new Error('bad ticket: namespace_ids')
  }
  if (typeof jwt !== 'string' || jwt === '') throw new Error('bad ticket: jwt')
  if (typeof expiresIn !== 'number' || !(expiresIn > 0)) throw new Error('bad ticket: jwt_expires_in')
  if (typeof apikey !== 'string') throw new Error('bad ticket: apikey')
  return {
    agent,
    namespaces,
    url: parseRealtimeUrl(json?.realtime_url, apikey, base),
    jwt,
    // A timer that is told more than 24 days runs at once.
    expiresInMs: Math.min(expiresIn, EXPIRES_IN_SECONDS_MAX) * 1000,
    topics: parseTopics(json?.topics),
  }
}

/** @param {unknown} text @param {string} apikey @param {string} base of the API */
function parseRealtimeUrl(text, apikey, base) {
  if (typeof text !== 'string' || !URL.canParse(text)) throw new Error('bad ticket: realtime_url')
  const url = new URL(text)
  // A server elsewhere has no business with the ports of this machine.
  const isLocal = isLoopback(url.hostname) && isLoopback(new URL(base).hostname)
  const isAllowed = url.protocol === 'wss:' || (url.protocol === 'ws:' && isLocal)
  if (!isAllowed || url.username !== '' || url.password !== '') throw new Error('bad ticket: realtime_url is not wss')
  url.hash = ''
  url.search = ''
  url.searchParams.set('apikey', apikey)
  url.searchParams.set('vsn', '1.0.0')
  return url
}

/** @param {unknown} topics @returns {Ticket['topics']} */
function parseTopics(topics) {
  if (!Array.isArray(topics) || topics.length === 0 || topics.length > TOPICS_MAX) throw new Error('bad ticket: topics')
  return topics.map((topic) => {
    if (!isRecord(topic) || typeof topic.name !== 'string') throw new Error('bad ticket: topics')
    return { name: topic.name, config: isRecord(topic.config) ? topic.config : {} }
  })
}

/** @param {Record<string, unknown> | null} json @returns {Pending[]} */
export function parsePending(json) {
  const pending = json?.pending
  if (!Array.isArray(pending)) throw new Error('bad inbox: pending')
  return pending.flatMap((row) => {
    return isRecord(row) && isMessageId(row.message_id) ? [{ id: row.message_id, from: row.from }] : []
  })
}

/** @param {unknown} value @returns {value is string} */
export function isMessageId(value) {
  return typeof value === 'string' && ID.test(value)
}

/** What a hook asks servers for, within a time that nobody notices, and without a word where no answer comes. */
import { createHttpClient } from './http.mjs'
import { monotonicMs } from './node.mjs'
import { isName, isRecord } from './text.mjs'

/** Ids are only compared here. */
const ID = /^[\w-]{1,64}$/
const VERSION = /^\d{1,4}\.\d{1,4}\.\d{1,4}$/
/** What is connected to without asking a name service. */
const ADDRESS = /^(?:localhost|[\d.]+|\[[\da-f:.]+\])$/

/**
 * @typedef {import('./mcp-json.mjs').Identity} Identity
 * @typedef {{ id: string, from: unknown }} Pending
 * @typedef {{ state: 'idle' | 'busy', client: string, session: string, machine: string, human_prompt?: true }} Presence
 * @typedef {{ agent: string, namespace: string, pending: Pending[] }} Inbox
 */

export class HookServers {
  #budgetMs
  /** @type {number | null} */
  #endsAt = null
  /** @type {Map<string, ReturnType<typeof createHttpClient>>} */
  #clients = new Map()

  /** @param {number} budgetMs for all calls together, from the first on */
  constructor(budgetMs) {
    this.#budgetMs = budgetMs
  }

  /** Who the token is, and everything that is new to it. @param {Identity} identity @returns {Promise<Inbox | null>} null: no answer */
  async peek(identity) {
    const json = await this.#call(identity, 'GET', '/api/inbox?status=new&count_only=1')
    const { agent_id: agent, namespace_id: namespace } = json ?? {}
    if (json === null || !isName(agent) || !isName(namespace) || !Array.isArray(json.pending)) return null
    return { agent, namespace, pending: json.pending.flatMap(toPending) }
  }

  /** @param {Identity} identity @param {Presence} presence */
  async report(identity, presence) {
    await this.#call(identity, 'PUT', '/api/presence', presence)
  }

  /**
   * Who the token is, and whether a listener of that agent holds a lease, on any machine.
   * @param {Identity} identity @returns {Promise<{ agent: string, namespace: string, isWakeable: boolean } | null>} null: no answer
   */
  async findSelf(identity) {
    const { namespace, agents } = (await this.#call(identity, 'GET', '/api/agents')) ?? {}
    const self = Array.isArray(agents) ? agents.find((agent) => isRecord(agent) && agent.is_you === true) : undefined
    if (!isRecord(self) || !isName(self.agent) || !isName(namespace)) return null
    return { agent: self.agent, namespace, isWakeable: self.reach === 'wakeable' }
  }

  /** @param {Identity} identity @returns {Promise<string | null>} */
  async findVersion(identity) {
    const version = (await this.#call(identity, 'GET', '/health'))?.version
    return typeof version === 'string' && VERSION.test(version) ? version : null
  }

  /**
   * @param {Identity} identity @param {string} method @param {string} path @param {unknown} [body]
   * @returns {Promise<Record<string, unknown> | null>} null: refused, late, or not an object
   */
  async #call(identity, method, path, body) {
    this.#endsAt ??= monotonicMs() + this.#budgetMs
    const leftMs = Math.ceil(this.#endsAt - monotonicMs())
    if (leftMs <= 0) return null
    /** @type {NodeJS.Timeout | undefined} */
    let timer
    const late = new Promise((resolve) => {
      timer = setTimeout(resolve, leftMs, null)
    })
    try {
      return await Promise.race([late, this.#request(identity, { method, path, body, leftMs })])
    } catch {
      // Unreachable, cut off, too long: a server that is down is no matter for the session.
      return null
    } finally {
      clearTimeout(timer)
    }
  }

  /** @param {Identity} identity @param {{ method: string, path: string, body: unknown, leftMs: number }} call */
  async #request({ base, token }, { method, path, body, leftMs }) {
    const found = await findAddress(new URL(base).hostname, leftMs)
    if (found === null) return null
    const client = this.#clients.get(base) ?? createHttpClient()
    this.#clients.set(base, client)
    const input = {
      method,
      url: `${base}${path}`,
      token,
      timeoutMs: leftMs,
      ...found,
      ...(body !== undefined && { body }),
    }
    const { status, json } = await client.requestJson(input)
    return status >= 200 && status <= 299 ? json : null
  }
}

/** @param {unknown} row @returns {Pending[]} */
function toPending(row) {
  if (!isRecord(row) || typeof row.message_id !== 'string' || !ID.test(row.message_id)) return []
  return [{ id: row.message_id, from: row.from }]
}

/**
 * Where a host is, by the name service itself. The system's own lookup waits many seconds for one that is dead, or deaf to one
 * kind of question, in a thread that even `process.exit` waits for. Only a name that the service answers for and does not know,
 * which the system may have in a file, is left to it.
 * @param {string} host as `URL.hostname` gives it @param {number} timeoutMs @param {string[]} [servers] instead of the system's
 * @returns {Promise<{ address?: string } | null>} null: not to be known in this time
 */
export async function findAddress(host, timeoutMs, servers) {
  if (ADDRESS.test(host)) return {}
  const { Resolver } = await import('node:dns/promises')
  const resolver = new Resolver({ timeout: timeoutMs, tries: 1 })
  if (servers !== undefined) resolver.setServers(servers)
  const [four, six] = [resolver.resolve4(host), resolver.resolve6(host)].map((answer) =>
    answer.then(([address]) => (address === undefined ? {} : { address }), toFailure),
  )
  const first = await four
  if (first?.address !== undefined) return first
  const second = await six
  if (second?.address !== undefined) return second
  return first && second ? {} : null
}

/** @param {unknown} error @returns {{ address?: string } | null} null: there was no answer */
function toFailure(error) {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return code === 'ETIMEOUT' || code === 'ECANCELLED' ? null : {}
}

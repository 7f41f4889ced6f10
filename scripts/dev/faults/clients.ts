import { Agent, request as httpRequest } from 'node:http'
import { connectMcp, type McpClient } from '../../../test/helpers/mcp.ts'

/** One agent's programs that ask the server: the JSON API and a real MCP client, over a network that loses answers. */

const ANSWER_MS_MAX = 4_000
const MCP_MS_MAX = 6_000
/** Codes that a token which has just been replaced is refused with. */
const TOKEN_CODES = new Set(['token_rejected', 'token_revoked'])
const PASSING_CODES = new Set(['unavailable'])

export type Json = Record<string, unknown>

/** null: there was no answer, so nobody knows whether it was done. `refused`: it was answered, and nothing was done. */
export type Answer = { facts: Json } | { refused: string } | null

export interface Credentials {
  token: string
}

export class Clients {
  readonly #name: string
  readonly #url: string
  readonly #credentials: Credentials
  readonly #problems: string[]
  readonly #agent = new Agent({ keepAlive: true })
  #mcp: { client: McpClient; token: string } | null = null

  constructor(name: string, url: string, credentials: Credentials, problems: string[]) {
    this.#name = name
    this.#url = url
    this.#credentials = credentials
    this.#problems = problems
  }

  /** A call of the JSON API. What is neither a success nor a passing fault is a problem of the run. */
  async call(method: string, path: string, body?: unknown): Promise<Answer> {
    const { token } = this.#credentials
    const answer = await this.#request(method, path, token, body)
    if (answer === null) return null
    const { status, json } = answer
    if (status >= 200 && status < 300) return { facts: json }
    return this.#refuse(
      String((json.error as Json | undefined)?.code),
      token,
      `${method} ${path}: ${status} ${JSON.stringify(json)}`,
    )
  }

  /** A call of a tool, with a client that is connected anew after a fault and for each token. */
  async callTool(tool: string, input: Json, waitMs = 0): Promise<Answer> {
    const { token } = this.#credentials
    const signal = AbortSignal.timeout(MCP_MS_MAX + waitMs)
    try {
      const client = await this.#connect(token, signal)
      const result = await client.call(tool, input, { signal })
      if (!result.isError) return { facts: result.facts as Json }
      return this.#refuse(result.code ?? 'none', token, `${tool}: ${result.text}`)
    } catch {
      await this.#dropMcp()
      return null
    }
  }

  async close(): Promise<void> {
    this.#agent.destroy()
    await this.#dropMcp()
  }

  #refuse(code: string, token: string, what: string): Answer {
    const isStale = TOKEN_CODES.has(code) && token !== this.#credentials.token
    if (!isStale && !PASSING_CODES.has(code)) this.#problems.push(`${this.#name} was refused: ${what}`)
    // A database that does not answer may have stored it all the same.
    return PASSING_CODES.has(code) ? null : { refused: code }
  }

  async #connect(token: string, signal: AbortSignal): Promise<McpClient> {
    if (this.#mcp !== null && this.#mcp.token === token) return this.#mcp.client
    await this.#dropMcp()
    const connecting = connectMcp({ url: this.#url }, token)
    const client = await Promise.race([connecting, rejectOn(signal)]).catch((error: unknown) => {
      connecting.then((late) => late.close()).catch(() => undefined)
      throw error
    })
    this.#mcp = { client, token }
    return client
  }

  async #dropMcp(): Promise<void> {
    const dropped = this.#mcp
    this.#mcp = null
    await dropped?.client.close().catch(() => undefined)
  }

  #request(method: string, path: string, token: string, body: unknown): Promise<{ status: number; json: Json } | null> {
    const text = body === undefined ? '' : JSON.stringify(body)
    return new Promise((resolve) => {
      const fail = () => resolve(null)
      const request = httpRequest(new URL(path, this.#url), {
        method,
        agent: this.#agent,
        headers: {
          authorization: `Bearer ${token}`,
          ...(text === '' ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
        },
        signal: AbortSignal.timeout(ANSWER_MS_MAX),
      })
      request.on('error', fail)
      request.on('response', (response) => {
        let answer = ''
        response.setEncoding('utf8').on('data', (part: string) => {
          answer += part
        })
        response.on('error', fail)
        response.on('end', () => {
          resolve(response.complete ? { status: response.statusCode ?? 0, json: parse(answer) } : null)
        })
        response.on('close', fail)
      })
      request.end(text)
    })
  }
}

function rejectOn(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true })
  })
}

function parse(text: string): Json {
  try {
    return JSON.parse(text) as Json
  } catch {
    return {}
  }
}

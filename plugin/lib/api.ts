import { isRecord } from '../../scripts/lib/basics.cjs'
import { CommandError, EXIT } from './errors.ts'
import { cleanLabel } from './frame.ts'
import { toOurWords } from './wording.ts'

const TIMEOUT_MS = 15_000
/** Far above the largest answer there is, an inbox in full. */
const ANSWER_BYTES_MAX = 8 * 1024 * 1024
const NOT_AUTHORISED = new Set(['token_missing', 'token_rejected', 'token_revoked', 'agent_gone', 'forbidden'])

export interface Server {
  /** Where the API lives: origin and path prefix, without a slash at the end. */
  base: string
  token: string
}

export interface Call {
  body?: unknown
  timeoutMs?: number
  signal?: AbortSignal | undefined
  headers?: Record<string, string>
}

/**
 * One call of the JSON API: its answer. Throws a CommandError in the server's own words, with exit code 4 where the token
 * does not open the door, and `unreachable` where nobody answers.
 */
export async function callApi<T>(server: Server, method: string, path: string, call: Call = {}): Promise<T> {
  const { body, timeoutMs = TIMEOUT_MS, headers = {} } = call
  const response = await request(server, path, {
    method,
    headers: { accept: 'application/json', ...(body === undefined ? {} : JSON_BODY), ...headers },
    signal: joinSignals(call.signal, AbortSignal.timeout(timeoutMs)),
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  const json = parseJson(await readText(server, response))
  if (response.ok && json !== null) return json as T
  throw toCommandError(server, response, json)
}

const JSON_BODY = { 'content-type': 'application/json' }

function joinSignals(...signals: (AbortSignal | undefined)[]): AbortSignal {
  return AbortSignal.any(signals.filter((signal) => signal !== undefined))
}

/** Sends the token to this one server: redirects are not followed. Throws `unreachable`, or what the caller's signal was aborted with. */
export async function request(server: Server, path: string, init: RequestInit): Promise<Response> {
  try {
    const headers = { ...init.headers, authorization: `Bearer ${server.token}`, 'user-agent': 'patchcord' }
    return await fetch(`${server.base}${path}`, { ...init, headers, redirect: 'manual' })
  } catch (error) {
    throw toUnreachable(server, error)
  }
}

/** Why there was no answer, in one sentence. What is no fault of the network goes through. */
export function toUnreachable(server: Server, thrown: unknown): unknown {
  if (!(thrown instanceof Error) || thrown.name === 'AbortError' || thrown instanceof CommandError) return thrown
  const cause = thrown.cause as { code?: string; message?: string } | undefined
  const reason =
    thrown.name === 'TimeoutError' ? 'no answer in time' : (cause?.code ?? cause?.message ?? thrown.message)
  return new CommandError('unreachable', `Cannot reach ${server.base} (${cleanLabel(reason)}).`, {
    hint: 'Check that the server runs (patchcord serve starts one here) and that the address is right.',
    cause: thrown,
  })
}

async function readText(server: Server, response: Response): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  let bytes = 0
  try {
    for await (const chunk of response.body ?? []) {
      bytes += (chunk as Uint8Array).length
      if (bytes > ANSWER_BYTES_MAX) throw new CommandError('too_long', `The answer of ${server.base} is too long.`)
      text += decoder.decode(chunk as Uint8Array, { stream: true })
    }
    return text + decoder.decode()
  } catch (error) {
    throw toUnreachable(server, error)
  }
}

function parseJson(text: string): Record<string, unknown> | null {
  try {
    const json: unknown = JSON.parse(text)
    return isRecord(json) ? json : null
  } catch {
    return null
  }
}

function toCommandError(server: Server, response: Response, json: Record<string, unknown> | null): CommandError {
  const error = isRecord(json?.error) ? json.error : null
  if (typeof error?.code !== 'string' || typeof error.message !== 'string') {
    return new CommandError(
      'not_patchcord',
      `${server.base} answered HTTP ${response.status}, and not as Patchcord does.`,
      {
        hint: 'Check the address; a proxy in front of the server may have answered.',
      },
    )
  }
  const retryAfter = response.headers.get('retry-after')
  const retry = retryAfter !== null && /^\d{1,6}$/.test(retryAfter) ? [`Try again in ${retryAfter} s.`] : []
  const said = toOurWords(error.code, {
    message: cleanLabel(error.message, 500),
    hint: typeof error.hint === 'string' ? cleanLabel(error.hint, 500) : undefined,
  })
  const hint = [...(said.hint === undefined ? [] : [said.hint]), ...retry].join(' ')
  return new CommandError(cleanLabel(error.code, 40), said.message, {
    hint: hint === '' ? undefined : hint,
    exit: exitOf(error.code),
    details: isRecord(error.details) ? error.details : undefined,
  })
}

/** The exit code of a refusal. */
export function exitOf(code: string): number {
  return NOT_AUTHORISED.has(code) ? EXIT.notAuthorised : EXIT.error
}

export interface Whoami {
  agent: string
  namespace: string
  label: string
  expiresAt: string | null
}

/** Who a token is. Names are checked: they go into files and lines. */
export async function getWhoami(server: Server): Promise<Whoami> {
  const json = await callApi<Record<string, unknown>>(server, 'GET', '/api/whoami')
  const name = /^[a-z0-9][a-z0-9._-]{0,39}$/
  const { agent_id: agent, namespace_id: namespace, token_label: label, token_expires_at: expiresAt } = json
  if (typeof agent !== 'string' || typeof namespace !== 'string' || !name.test(agent) || !name.test(namespace)) {
    throw new CommandError('not_patchcord', `${server.base} did not say who this token is.`, {
      hint: 'Check the address.',
    })
  }
  return { agent, namespace, label: cleanLabel(label, 80), expiresAt: typeof expiresAt === 'string' ? expiresAt : null }
}

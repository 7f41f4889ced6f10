import { isRecord } from '../../scripts/lib/basics.cjs'
import { request, type Server, toUnreachable } from './api.ts'
import { CommandError, EXIT } from './errors.ts'
import { cleanLabel } from './frame.ts'

const PATH = '/mcp/bearer'
const PROTOCOL_VERSION = '2025-11-25'
/** The server sends a comment every 10 s: this much silence is a dead connection. */
const SILENCE_MS_MAX = 60_000
const EVENT_CHARACTERS_MAX = 8 * 1024 * 1024

/** What the server answered to a call instead of a result: JSON-RPC's error, to be passed on as it is. */
export class RpcError extends Error {
  override readonly name = 'RpcError'
  readonly code: number
  readonly data: unknown

  constructor(code: number, message: string, data: unknown) {
    super(message)
    this.code = code
    this.data = data
  }
}

export interface RpcOptions {
  signal?: AbortSignal | undefined
  onNotification?: ((notification: { method: string; params?: Record<string, unknown> }) => void) | undefined
}

/**
 * One MCP request over HTTP, stateless: its result. The signal ends the HTTP request itself, which is how a stateless server
 * learns that nobody waits any more. Throws RpcError, or a CommandError where there is no answer.
 */
export async function callMcp(
  server: Server,
  method: string,
  params: Record<string, unknown> | undefined,
  { signal, onNotification }: RpcOptions = {},
): Promise<Record<string, unknown>> {
  const silence = new AbortController()
  const watch = watchSilence(silence)
  try {
    const response = await request(server, PATH, {
      method: 'POST',
      headers: {
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        'mcp-protocol-version': PROTOCOL_VERSION,
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, ...(params === undefined ? {} : { params }) }),
      signal: signal === undefined ? silence.signal : AbortSignal.any([signal, silence.signal]),
    })
    for await (const message of readMessages(response, watch.touch)) {
      if (isRecord(message.result)) return message.result
      if (isRecord(message.error)) throw toError(server, response.status, message.error)
      if (typeof message.method === 'string') onNotification?.(message as { method: string })
    }
    throw new CommandError(
      'unreachable',
      `${server.base} ended the connection without an answer (HTTP ${response.status}).`,
      {
        hint: 'Try again; what came of the call is not known.',
      },
    )
  } catch (error) {
    throw error instanceof RpcError ? error : toUnreachable(server, error)
  } finally {
    watch.stop()
  }
}

function watchSilence(controller: AbortController): { touch(): void; stop(): void } {
  const end = () => controller.abort(new DOMException('the server fell silent', 'TimeoutError'))
  const timer = setTimeout(end, SILENCE_MS_MAX)
  return { touch: () => void timer.refresh(), stop: () => clearTimeout(timer) }
}

/** The JSON-RPC messages of an answer, be it one JSON body or a stream of events. What is no message is left out. */
async function* readMessages(response: Response, onBytes: () => void): AsyncGenerator<Record<string, unknown>> {
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') === true
  const decoder = new TextDecoder()
  let text = ''
  for await (const chunk of response.body ?? []) {
    onBytes()
    text += decoder.decode(chunk as Uint8Array, { stream: true })
    if (text.length > EVENT_CHARACTERS_MAX) throw new Error('the answer is too long')
    if (!isStream) continue
    const events = text.split(/\r?\n\r?\n/)
    text = events.pop() ?? ''
    for (const event of events) yield* parseMessage(readData(event))
  }
  text += decoder.decode()
  yield* parseMessage(isStream ? readData(text) : text)
}

function readData(event: string): string {
  const lines = event.split(/\r?\n/).filter((line) => line.startsWith('data:'))
  return lines.map((line) => line.slice(5).replace(/^ /, '')).join('\n')
}

function parseMessage(text: string): Record<string, unknown>[] {
  try {
    const json: unknown = text === '' ? null : JSON.parse(text)
    return isRecord(json) ? [json] : []
  } catch {
    return []
  }
}

/** JSON-RPC's errors carry a number; who may not enter is told in the words of the REST API. */
function toError(server: Server, status: number, error: Record<string, unknown>): Error {
  const message = cleanLabel(error.message, 500)
  if (typeof error.code === 'number') return new RpcError(error.code, message, error.data)
  return new CommandError(
    cleanLabel(error.code || 'not_patchcord', 40),
    message || `${server.base} answered HTTP ${status}.`,
    {
      hint: typeof error.hint === 'string' ? cleanLabel(error.hint, 500) : 'Check the token and the address.',
      exit: [401, 403, 404].includes(status) ? EXIT.notAuthorised : EXIT.error,
    },
  )
}

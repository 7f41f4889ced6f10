import { request as httpRequest, type IncomingMessage } from 'node:http'
import { Client as ModernClient, StreamableHTTPClientTransport as ModernTransport } from '@modelcontextprotocol/client'
import { Client as FirstClient } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as FirstTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'

export const REVISION = '2026-07-28'
/** Every client that people use: v2 of the SDK in its three modes, and v1, which most clients are still built on. */
export const CLIENT_KINDS = ['v2 legacy', 'v2 auto', 'v2 pinned', 'v1'] as const
export type ClientKind = (typeof CLIENT_KINDS)[number]

export interface ToolResult {
  text: string
  // biome-ignore lint/suspicious/noExplicitAny: tests read answers of every shape
  facts: any
  isError: boolean
  /** The code of an error of ours. */
  code: string | undefined
}

export interface McpClient {
  call(name: string, args?: Record<string, unknown>, options?: CallOptions): Promise<ToolResult>
  sdk: ModernClient | FirstClient
  close(): Promise<void>
}

export interface CallOptions {
  signal?: AbortSignal
  /** When the client gives up, in ms. */
  timeout?: number
  onprogress?: (progress: { progress: number }) => void
}

/**
 * A connected client of one kind. It has listed the tools, so it checks every structured answer against their schemas.
 * `fetch` makes its requests.
 */
export async function connectMcp(
  app: { url: string },
  token: string,
  kind: ClientKind = 'v2 auto',
  fetch: typeof globalThis.fetch = globalThis.fetch,
): Promise<McpClient> {
  const url = new URL('/mcp', app.url)
  const options = { fetch, requestInit: { headers: { authorization: `Bearer ${token}` } } }
  const sdk = createClient(kind)
  const transport = kind === 'v1' ? new FirstTransport(url, options) : new ModernTransport(url, options)
  await (sdk as ModernClient).connect(transport as ModernTransport)
  await sdk.listTools()
  return {
    sdk,
    call: async (name, args = {}, more = {}) => toToolResult(await callWith(sdk, name, args, more)),
    close: () => sdk.close(),
  }
}

export function createClient(kind: ClientKind): FirstClient | ModernClient {
  const info = { name: 'test', version: '1.0.0' }
  return kind === 'v1' ? new FirstClient(info) : new ModernClient(info, { versionNegotiation: { mode: modeOf(kind) } })
}

function modeOf(kind: ClientKind): 'legacy' | 'auto' | { pin: string } {
  if (kind === 'v2 legacy') return 'legacy'
  return kind === 'v2 auto' ? 'auto' : { pin: REVISION }
}

async function callWith(sdk: McpClient['sdk'], name: string, args: Record<string, unknown>, options: CallOptions) {
  const params = { name, arguments: args }
  return sdk instanceof FirstClient
    ? await sdk.callTool(params, undefined, options)
    : await sdk.callTool(params, options)
}

/** A result as the wire has it. */
export function toToolResult(result: unknown): ToolResult {
  const { content, structuredContent, isError, _meta } = result as {
    content: { text: string }[]
    structuredContent?: unknown
    isError?: boolean
    _meta?: { 'patchcord/error'?: { code: string } }
  }
  return {
    text: content.map(({ text }) => text).join('\n'),
    facts: structuredContent,
    isError: isError === true,
    code: _meta?.['patchcord/error']?.code,
  }
}

/** The first `message_id` that a text shows in brackets, as in `Sent to bob [id]`. */
export function idIn(text: string): string {
  const id = /\[([0-9a-f-]{36})\]/.exec(text)?.[1]
  if (!id) throw new Error(`there is no id in: ${text}`)
  return id
}

export interface RawAnswer {
  status: number
  headers: IncomingMessage['headers']
  text: string
}

export interface RawRequest {
  method?: string
  token?: string
  /** A string is sent as it is. */
  body?: unknown
  headers?: Record<string, string>
  path?: string
}

/** One HTTP request on a connection of its own; `open` gives the response as soon as its headers are there. */
export function openRaw(
  app: { url: string },
  raw: RawRequest,
): { response: Promise<IncomingMessage>; destroy(): void } {
  const { method = 'POST', token, body, headers = {}, path = '/mcp' } = raw
  const text = body === undefined || typeof body === 'string' ? body : JSON.stringify(body)
  const request = httpRequest(new URL(path, app.url), {
    method,
    agent: false,
    headers: {
      accept: 'application/json, text/event-stream',
      ...(text === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...headers,
    },
  })
  const response = new Promise<IncomingMessage>((resolve, reject) => {
    request.once('response', resolve)
    request.on('error', reject)
  })
  request.end(text)
  return { response, destroy: () => request.destroy() }
}

export async function sendRaw(app: { url: string }, raw: RawRequest): Promise<RawAnswer> {
  const response = await openRaw(app, raw).response
  let text = ''
  for await (const chunk of response.setEncoding('utf8')) text += chunk
  return { status: response.statusCode ?? 0, headers: response.headers, text }
}

/** A `tools/call` of either era, with what the era wants beside it. */
export function toolCall(era: 'legacy' | 'modern', id: number, name: string, args: object, token?: string | number) {
  const progress = token === undefined ? {} : { progressToken: token }
  const message = { jsonrpc: '2.0', id, method: 'tools/call' }
  if (era === 'legacy') {
    const body = { ...message, params: { name, arguments: args, _meta: progress } }
    return { body, headers: { 'mcp-protocol-version': '2025-11-25' } }
  }
  const meta = {
    ...progress,
    'io.modelcontextprotocol/protocolVersion': REVISION,
    'io.modelcontextprotocol/clientCapabilities': {},
  }
  return {
    body: { ...message, params: { name, arguments: args, _meta: meta } },
    headers: { 'mcp-protocol-version': REVISION, 'mcp-method': 'tools/call', 'mcp-name': name },
  }
}

/** The one response message in an answer, be it JSON or a stream of events. */
// biome-ignore lint/suspicious/noExplicitAny: tests read answers of every shape
export function messageIn(text: string): any {
  const data = text.startsWith('{') ? [text] : Array.from(text.matchAll(/^data: (.*)$/gm), (match) => match[1] ?? '')
  const messages = data.map((each) => JSON.parse(each))
  return messages.find((message) => 'id' in message)
}

import type { IncomingMessage, ServerResponse } from 'node:http'
import {
  type AuthInfo,
  classifyInboundRequest,
  isJSONRPCRequest,
  isJsonContentType,
  type JSONRPCMessage,
  type JSONRPCRequest,
  type McpServerFactory,
  type MessageClassification,
  PerRequestHTTPServerTransport,
  PROTOCOL_VERSION_META_KEY,
  ProtocolErrorCode,
  type RequestId,
  Server,
  SUPPORTED_PROTOCOL_VERSIONS,
  type TransportSendOptions,
} from '@modelcontextprotocol/server'

/**
 * The usual request, one message that asks for a list or calls a tool, goes to one server of its era, which serves everybody:
 * a server, a transport and web streams for each cost several times what the call itself does. Whatever else comes takes the
 * SDK's own path, which answers such a request with the same bytes.
 */

const REVISION = '2026-07-28'
/** Of a server for the 2026 era, which the SDK else binds to it for one request only. */
export const MODERN_VERSIONS = [...SUPPORTED_PROTOCOL_VERSIONS, REVISION]

/** Methods after which a server is as it was before; `initialize` and `logging/setLevel` would change it for everybody. */
const METHODS = [
  'tools/list',
  'tools/call',
  'prompts/list',
  'prompts/get',
  'resources/list',
  'resources/templates/list',
  'resources/read',
  'completion/complete',
]
/** What of the parameters stands in the header Mcp-Name, too. */
const NAMED_BY: Record<string, string> = { 'tools/call': 'name', 'prompts/get': 'name', 'resources/read': 'uri' }
/** How the SDK marks a header's value that is encoded. */
const ENCODED = '=?'

const JSON_HEADERS = { 'content-type': 'application/json' }
const STREAM_HEADERS = {
  'cache-control': 'no-cache, no-transform',
  connection: 'keep-alive',
  'content-type': 'text/event-stream',
  'x-accel-buffering': 'no',
}

/** A request whose answer is still to come. */
interface Exchange {
  /** The client's own id, which others may use at the same time. */
  id: RequestId
  response: ServerResponse
  isStream: boolean
  keepAlive: NodeJS.Timeout | undefined
}

export interface SharedServers {
  /** Whether it takes the request, and then answers it; else nothing has happened. */
  serve(request: IncomingMessage & { auth?: AuthInfo }, response: ServerResponse, body: unknown): boolean
  /** How many answers are still to come. */
  pending(): number
}

export interface SharedOptions {
  keepAliveMs: number
  onerror(error: Error): void
}

export async function createSharedServers(factory: McpServerFactory, options: SharedOptions): Promise<SharedServers> {
  const legacy = await SharedServer.create(factory, { era: 'legacy' }, options)
  const modern = await SharedServer.create(factory, { era: 'modern', revision: REVISION }, options)
  return {
    serve(request, response, body) {
      if (request.method !== 'POST' || !isJsonContentType(request.headers['content-type'])) return false
      if (!isJSONRPCRequest(body)) return false
      const server = isLegacyRequest(request, body) ? legacy : isModernRequest(request, body) ? modern : null
      return server?.serve(body, response, request.auth) ?? false
    },
    pending: () => legacy.pending() + modern.pending(),
  }
}

/** A request of the 2025 era that its transport in the SDK would let in. */
function isLegacyRequest({ headers }: IncomingMessage, { params }: JSONRPCRequest): boolean {
  const { accept, 'mcp-protocol-version': version } = headers
  if (version !== undefined && !SUPPORTED_PROTOCOL_VERSIONS.includes(version as string)) return false
  if (!accept?.includes('application/json') || !accept.includes('text/event-stream')) return false
  const meta = params?._meta
  return meta === undefined || !(PROTOCOL_VERSION_META_KEY in meta)
}

/** A request of the 2026 era whose headers say the same as its body. */
function isModernRequest({ headers }: IncomingMessage, body: JSONRPCRequest): boolean {
  const version = headers['mcp-protocol-version'] as string | undefined
  const method = headers['mcp-method'] as string | undefined
  if (version !== REVISION || method !== body.method) return false
  const source = NAMED_BY[method]
  if (source !== undefined) {
    const name = headers['mcp-name']
    if (typeof name !== 'string' || name !== body.params?.[source] || name.startsWith(ENCODED)) return false
  }
  const route = classifyInboundRequest({
    httpMethod: 'POST',
    protocolVersionHeader: version,
    mcpMethodHeader: method,
    body,
  })
  return route.kind === 'modern' && route.messageKind === 'request' && route.classification.revision === REVISION
}

/** One server of one era, and the way of its answers to whoever asked. */
class SharedServer {
  readonly #transport: SharedTransport
  readonly #methods: ReadonlySet<string>

  private constructor(transport: SharedTransport, methods: ReadonlySet<string>) {
    this.#transport = transport
    this.#methods = methods
  }

  static async create(
    factory: McpServerFactory,
    classification: MessageClassification & { era: 'legacy' | 'modern' },
    options: SharedOptions,
  ): Promise<SharedServer> {
    const product = await factory({ era: classification.era })
    const server = product instanceof Server ? product : product.server
    const transport = new SharedTransport(classification, options)
    server.onerror = options.onerror
    await product.connect(transport)
    const isModern = classification.era === 'modern'
    // A McpServer wants more looked at in a request of the 2026 era than its messages tell.
    const isServable = !isModern || (product instanceof Server && server.getNegotiatedProtocolVersion() === REVISION)
    const methods = isServable ? METHODS.filter((each) => handles(server, each)) : []
    return new SharedServer(transport, new Set(methods))
  }

  serve(message: JSONRPCRequest, response: ServerResponse, authInfo: AuthInfo | undefined): boolean {
    if (!this.#methods.has(message.method)) return false
    this.#transport.ask(message, response, authInfo)
    return true
  }

  pending(): number {
    return this.#transport.pending()
  }
}

function handles(server: Server, method: string): boolean {
  try {
    server.assertCanSetRequestHandler(method)
    return false
  } catch {
    // What it throws says that there is a handler already.
    return true
  }
}

/**
 * Carries the requests of all clients to one server, under ids of its own, and each answer to the client that asked. It
 * extends the SDK's transport because a server takes its era from that one only; of its work for one request it uses nothing.
 */
class SharedTransport extends PerRequestHTTPServerTransport {
  readonly #exchanges = new Map<RequestId, Exchange>()
  readonly #classification: MessageClassification
  readonly #keepAliveMs: number
  #lastId = 0

  constructor(classification: MessageClassification, { keepAliveMs }: SharedOptions) {
    super({ classification })
    this.#classification = classification
    this.#keepAliveMs = keepAliveMs
  }

  pending(): number {
    return this.#exchanges.size
  }

  ask(message: JSONRPCRequest, response: ServerResponse, authInfo: AuthInfo | undefined): void {
    // Gone before its body had been read.
    if (response.destroyed) return
    const id = ++this.#lastId
    const isStream = this.#classification.era === 'legacy'
    const exchange: Exchange = { id: message.id, response, isStream, keepAlive: undefined }
    this.#exchanges.set(id, exchange)
    response.once('close', () => this.#abandon(id))
    if (isStream) this.#keepAlive(exchange)
    this.onmessage?.(
      { ...message, id },
      { classification: this.#classification, ...(authInfo !== undefined && { authInfo }) },
    )
  }

  override async send(message: JSONRPCMessage, options?: TransportSendOptions): Promise<void> {
    const isAnswer = !('method' in message)
    const id = isAnswer ? message.id : options?.relatedRequestId
    const exchange = id === undefined ? undefined : this.#exchanges.get(id)
    if (!exchange) {
      if (isAnswer || id === undefined) return
      throw new Error('the client that asked is gone')
    }
    if (isAnswer) this.#answer(id as RequestId, exchange, { ...message, id: exchange.id })
    else this.#tell(exchange, message)
  }

  #answer(id: RequestId, exchange: Exchange, message: JSONRPCMessage): void {
    this.#forget(id)
    const { response, isStream } = exchange
    const text = isStream ? toEvent(message) : JSON.stringify(message)
    if (response.headersSent) {
      response.end(text)
      return
    }
    const headers = isStream ? STREAM_HEADERS : JSON_HEADERS
    response.writeHead(isStream ? 200 : statusOf(message), { ...headers, 'content-length': Buffer.byteLength(text) })
    response.end(text)
  }

  /** Something before the result: what was not a stream becomes one. */
  #tell(exchange: Exchange, message: JSONRPCMessage): void {
    if (!exchange.isStream) {
      exchange.isStream = true
      this.#keepAlive(exchange)
    }
    write(exchange.response, toEvent(message))
  }

  #keepAlive(exchange: Exchange): void {
    const speak = () => write(exchange.response, ': keepalive\n\n')
    exchange.keepAlive = setInterval(speak, this.#keepAliveMs).unref()
  }

  #forget(id: RequestId): Exchange | undefined {
    const exchange = this.#exchanges.get(id)
    clearInterval(exchange?.keepAlive)
    this.#exchanges.delete(id)
    return exchange
  }

  /** The client has gone: its own call ends, whatever ids others use. */
  #abandon(id: RequestId): void {
    if (!this.#forget(id)) return
    const params = { requestId: id, reason: 'the client is gone' }
    this.onmessage?.(
      { jsonrpc: '2.0', method: 'notifications/cancelled', params },
      { classification: this.#classification },
    )
  }
}

function write(response: ServerResponse, text: string): void {
  if (!response.headersSent) response.writeHead(200, STREAM_HEADERS)
  response.write(text)
}

function toEvent(message: JSONRPCMessage): string {
  return `event: message\ndata: ${JSON.stringify(message)}\n\n`
}

/** Of all errors of a handler, the 2026 era gives one a status of its own. */
function statusOf(message: JSONRPCMessage): number {
  if (!('error' in message)) return 200
  return message.error.code === ProtocolErrorCode.MissingRequiredClientCapability ? 400 : 200
}

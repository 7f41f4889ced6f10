import type { ServerResponse } from 'node:http'
import { type NodeIncomingMessageLike, toNodeHandler } from '@modelcontextprotocol/node'
import { createMcpHandler, type McpHttpHandler, type McpServerFactory } from '@modelcontextprotocol/server'
import type { FastifyBaseLogger, FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { PatchcordError } from '../errors.ts'
import { createServerFactory, isLongCall, type McpCaller, type McpServerDeps, toAuthInfo } from './server.ts'
import { createSharedServers, type SharedServers } from './shared.ts'

const PATHS = ['/mcp', '/mcp/bearer']
const KEEP_ALIVE_MS = 10_000
/** Arguments of our tools have depth 3, and an envelope around them. */
const DEPTH_MAX = 64
/** How long answers in flight may take at shutdown; waits end at once. */
const DRAIN_MS = 5_000

export interface McpEndpointOptions extends McpServerDeps {
  /** Throws a PatchcordError for who may not enter. Runs for every HTTP method, before the body is read. */
  authenticate(request: FastifyRequest): Promise<McpCaller>
  log: FastifyBaseLogger
  /**
   * Makes the servers; ours by default. What it makes must not depend on the request but by its era: one server serves many
   * callers, and its handlers find who sent a message in `http.authInfo` of their context (`http.req` may be missing there).
   * In the 2026 era only a plain `Server` with MODERN_VERSIONS serves everybody; any other is made for each request.
   */
  factory?: McpServerFactory
  /** Whether a parsed body is a call whose answer may take minutes, and streams from its first second on. */
  isLongCall?(body: unknown): boolean
}

interface Paths {
  /** Most requests. */
  shared: SharedServers
  /** The SDK's own, a server per request: JSON, or a stream once the call has something to say before its result. */
  short: McpHttpHandler
  /** The same, a stream from the start. */
  long: McpHttpHandler
}

/** MCP at `/mcp` and `/mcp/bearer`: both protocol eras, nothing of a client kept between its requests. */
export async function mcpEndpoint(app: FastifyInstance, options: McpEndpointOptions): Promise<void> {
  const { log } = options
  const isLong = options.isLongCall ?? isLongCall
  const paths = await openPaths(options)
  const open = new Set<ServerResponse>()
  app.addHook('onRequest', async (request) => {
    const caller = await options.authenticate(request)
    Object.assign(request.raw, { auth: toAuthInfo({ caller, userAgent: request.headers['user-agent'] ?? '' }) })
  })
  app.removeContentTypeParser('application/json')
  app.addContentTypeParser('application/json', { parseAs: 'string' }, async (_: FastifyRequest, body: string) =>
    parseBody(body),
  )
  app.setErrorHandler((error: FastifyError | PatchcordError, _, reply) => answerError(error, reply, log))
  for (const url of PATHS) {
    app.all(url, (request, reply) => {
      open.add(reply.raw)
      reply.raw.once('close', () => open.delete(reply.raw))
      reply.hijack()
      reply.raw.setHeader('x-request-id', request.id)
      return serve(paths, isLong(request.body), request, reply.raw)
    })
  }
  app.addHook('preClose', async () => {
    options.waiters.close()
    await drain(open)
    await Promise.all([paths.short.close(), paths.long.close()])
  })
}

async function openPaths(options: McpEndpointOptions): Promise<Paths> {
  const { log, factory = createServerFactory(options) } = options
  const onerror = (error: Error) => log.warn({ reason: error.message }, 'an MCP request was not served')
  const common = { keepAliveMs: KEEP_ALIVE_MS, onerror }
  const long = createMcpHandler(factory, { ...common, responseMode: 'sse' })
  return {
    shared: await createSharedServers(factory, common),
    short: createMcpHandler(factory, common),
    long: { ...long, fetch: openAtOnce(long.fetch) },
  }
}

async function serve(
  { shared, short, long }: Paths,
  isLong: boolean,
  { raw, body }: FastifyRequest,
  response: ServerResponse,
): Promise<void> {
  if (!isLong && shared.serve(raw, response, body)) return
  await toNodeHandler(isLong ? long : short)(raw as NodeIncomingMessageLike, response, body ?? undefined)
}

function parseBody(text: string): unknown {
  // The SDK walks a body by recursion, so depth is what could exhaust the stack.
  if (isDeeperThan(text, DEPTH_MAX)) throw Object.assign(new Error('the body is too deep'), { statusCode: 413 })
  try {
    return JSON.parse(text)
  } catch {
    throw Object.assign(new Error('the body is not JSON'), { statusCode: 400 })
  }
}

/** Counts open brackets outside of strings. */
function isDeeperThan(json: string, max: number): boolean {
  let depth = 0
  for (const [token] of json.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{}]/gs)) {
    if (token === '[' || token === '{') depth++
    else if (token === ']' || token === '}') depth--
    if (depth > max) return true
  }
  return false
}

/**
 * Puts a comment before a stream: Node keeps headers back until the first byte of the body, and a client that waits for a
 * message must not take the silence for a dead server.
 */
function openAtOnce(fetch: McpHttpHandler['fetch']): McpHttpHandler['fetch'] {
  return async (request, options) => {
    const response = await fetch(request, options)
    if (response.body === null || response.headers.get('content-type') !== 'text/event-stream') return response
    const comment = new TextEncoder().encode(': waiting\n\n')
    const body = response.body.pipeThrough(new TransformStream({ start: (stream) => stream.enqueue(comment) }))
    return new Response(body, response)
  }
}

/** Waits for the answers in flight, and ends their connections, which clients would keep open for more. */
async function drain(open: Set<ServerResponse>): Promise<void> {
  const closed = [...open].map(
    (response) =>
      new Promise<void>((resolve) => {
        response.once('finish', () => response.socket?.end())
        response.once('close', resolve)
      }),
  )
  if (closed.length === 0) return
  let timer: NodeJS.Timeout | undefined
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, DRAIN_MS)
  })
  await Promise.race([Promise.all(closed), late])
  clearTimeout(timer)
}

/** Who may not enter hears it in the words of the REST API; what is wrong with a body is JSON-RPC. */
function answerError(error: FastifyError | PatchcordError, reply: FastifyReply, log: FastifyBaseLogger): FastifyReply {
  if (error instanceof PatchcordError) return answerRefusal(error, reply)
  const status = error.statusCode ?? 500
  if (status >= 500) log.error({ err: error }, 'an MCP request failed')
  const [code, message] = RPC_ERRORS[status] ?? (status < 500 ? INVALID_REQUEST : INTERNAL_ERROR)
  return reply.code(status).send({ jsonrpc: '2.0', error: { code, message }, id: null })
}

const INVALID_REQUEST = [-32_600, 'Invalid request'] as const
const INTERNAL_ERROR = [-32_603, 'Internal error'] as const
const RPC_ERRORS: Record<number, readonly [code: number, message: string]> = {
  400: [-32_700, 'Parse error: the body is not valid JSON'],
  413: [-32_000, 'The body is too large or too deep'],
  415: [-32_000, 'The content type must be application/json'],
}

function answerRefusal(error: PatchcordError, reply: FastifyReply): FastifyReply {
  const { code, message, hint, retryAfterSeconds, status } = error
  if (retryAfterSeconds !== undefined) reply.header('retry-after', retryAfterSeconds)
  // RFC 9110 wants a challenge with every 401. It names no metadata: clients would start a sign-in that does not exist.
  if (status === 401) reply.header('www-authenticate', 'Bearer')
  return reply.code(status).send({ error: { code, message, ...(hint !== undefined && { hint }) } })
}

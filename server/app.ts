import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import Fastify, { type FastifyBaseLogger, type FastifyInstance, LogController } from 'fastify'
import { serializerCompiler, validatorCompiler } from 'fastify-type-provider-zod'
import type { Logger } from 'pino'
import type { Config } from './config.ts'
import { dashboard } from './dashboard/endpoint.tsx'
import type { Sql } from './db/connect.ts'
import type { Scope, SendBatch } from './db/scope.ts'
import { createPeopleTurns, createTurns, type Turns } from './db/turns.ts'
import { createLeaseBatch, type LeaseBatch } from './domain/lease.ts'
import { createRealtimeSource } from './domain/realtime.ts'
import { createSendBatch } from './domain/send-batch.ts'
import type { TicketSigner } from './domain/tickets.ts'
import { PatchcordError } from './errors.ts'
import { bodyBytesMax, createAddressLimiter } from './http/address-limit.ts'
import { createAdmission, createAuthenticator, requireToken } from './http/auth.ts'
import { answerClientError, answerErrors, sendError, toPatchcordError } from './http/errors.ts'
import { closeIfUnread, createGate, type Gate, needsToken } from './http/gate.ts'
import { checkGuards, createGuards, type Guards } from './http/guards.ts'
import { type HealthOptions, serveHealth } from './http/health.ts'
import { measureRequests } from './http/measure.ts'
import { serveOpenapi } from './http/openapi.ts'
import { agentRoutes } from './http/routes/agents.ts'
import { deliveryRoutes } from './http/routes/delivery.ts'
import { inboxRoutes } from './http/routes/inbox.ts'
import { leaseRoutes } from './http/routes/lease.ts'
import { messageRoutes } from './http/routes/messages.ts'
import { presenceRoutes } from './http/routes/presence.ts'
import { ticketRoutes } from './http/routes/tickets.ts'
import { tokenRoutes } from './http/routes/tokens.ts'
import { traceOf } from './http/trace.ts'
import { type McpEndpointOptions, mcpEndpoint } from './mcp/endpoint.ts'
import type { Metrics } from './metrics/metrics.ts'
import { observeScopes } from './metrics/observer.ts'
import { attachRealtime, REALTIME_PATH, type RealtimeOptions } from './realtime/endpoint.ts'
import type { Hub } from './realtime/hub.ts'
import type { WakeBus } from './wakes/bus.ts'
import type { Waiters } from './wakes/waiters.ts'

export interface AppDeps {
  config: Config
  /** Connected as patchcord_api. */
  sql: Sql
  bus: WakeBus
  waiters: Waiters
  hub: Hub
  /** null: no key to sign tickets with, so this server wakes nobody through Realtime. */
  signer: TicketSigner | null
  logger: Logger
  version: string
  /** Where there is none, nothing is counted. */
  metrics?: Metrics
  timeouts?: Timeouts
  /** Makes other MCP servers than the product's. Tests see by it what the mount itself does. */
  mcpFactory?: NonNullable<McpEndpointOptions['factory']>
}

/** Slow senders are cut off: a request's headers, then all of it, must have come in time; looked at every `checkMs`. */
export interface Timeouts {
  headersMs: number
  requestMs: number
  checkMs: number
}
const TIMEOUTS: Timeouts = { headersMs: 10_000, requestMs: 30_000, checkMs: 2_000 }
/** Longer than the proxies keep theirs, which would else send into a connection that is closing. */
const KEEP_ALIVE_MS = 72_000
/** Room for 10,000 listeners, each with a WebSocket and now and then a request. */
export const CONNECTIONS_MAX = 25_000
const RESTART_SECONDS = 2

/**
 * The whole server but for its process and its database. `app.close()` answers waiters "restarting, call again", closes
 * WebSockets with 1012, refuses what still comes with 503, and resolves when the requests under way have their answers.
 */
export async function buildApp(deps: AppDeps): Promise<FastifyInstance> {
  const { config, sql, waiters, logger: log, version, metrics } = deps
  const turns = createTurns()
  const peopleTurns = createPeopleTurns()
  const { admit, foresee } = createAdmission(config.limits)
  const gate = createGate((request) => {
    const refusal = needsToken(request.url ?? '') ? foresee(request) : null
    if (refusal) metrics?.refused('gate', refusal.code)
    return refusal
  })
  const app = createApp(deps, gate)
  const guards = createGuards(config.publicUrl, [config.host])
  const authenticate = createAuthenticator({ sql, admit, turns })
  const leases = createLeaseBatch(sql, metrics && { stored: metrics.leasesStored })
  const { limits } = config
  const sends = createSendBatch(sql, limits)
  const observer = observeScopes(metrics ?? null, log)
  const scopeFor = ({ tokenHash, trace }: { tokenHash: string; trace?: string }): Scope => ({
    sql,
    tokenHash,
    limits,
    bus: deps.bus,
    turns,
    sends,
    observer,
    ...(trace !== undefined && { trace }),
  })

  answerErrors(app)
  if (metrics) measure(app, deps, metrics, { leases, sends, turns, peopleTurns })
  closeInOrder(app, deps, { ...guards, onHandshake: gate.heard })
  app.addHook('preClose', () => leases.close())
  app.addHook('onRequest', async (request) => checkGuards(guards, request.raw))
  await serveOpenapi(app, { version, publicUrl: config.publicUrl })
  serveHealth(app, { sql, version, realtime: describeRealtime(deps) })
  const mcpServers = deps.mcpFactory && { factory: deps.mcpFactory }
  await app.register(mcpEndpoint, { authenticate, scopeFor, waiters, version, log, ...mcpServers })
  await app.register(leaseRoutes, { prefix: '/api', admit, leases })
  await app.register(
    async (api) => {
      acceptEmptyBodies(api)
      requireToken(api, { authenticate, scopeFor })
      await api.register(tokenRoutes)
      await api.register(messageRoutes)
      await api.register(inboxRoutes)
      await api.register(deliveryRoutes)
      await api.register(agentRoutes, { version })
      await api.register(presenceRoutes)
      await api.register(ticketRoutes, {
        signer: deps.signer,
        realtime: config.realtime,
        supabase: config.supabase,
        publicUrl: config.publicUrl,
        realtimePath: REALTIME_PATH,
      })
    },
    { prefix: '/api' },
  )
  await app.register(dashboard, {
    sql,
    turns: peopleTurns,
    config,
    bus: deps.bus,
    version,
    log,
    limiter: createAddressLimiter(config.limits.unauthenticatedPerMinute),
    toError: toPatchcordError,
  })
  await app.ready()
  return app
}

function createApp({ config, logger, timeouts = TIMEOUTS }: AppDeps, gate: Gate): FastifyInstance {
  const app = Fastify({
    loggerInstance: logger as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'trace' }),
    genReqId: traceOf,
    bodyLimit: bodyBytesMax(config.limits.bodyCharactersMax),
    serverFactory: (handler) => createGatedServer(gate, handler, timeouts),
    return503OnClosing: false,
    clientErrorHandler: answerClientError,
    frameworkErrors: (error, request, reply) => void sendError(error, request, reply),
  })
  // A string would pass as a body: what is not JSON is answered 415.
  app.removeContentTypeParser('text/plain')
  app.server.maxConnections = CONNECTIONS_MAX
  app.setValidatorCompiler(validatorCompiler)
  app.setSerializerCompiler(serializerCompiler)
  app.addHook('onSend', async ({ id, raw }, reply) => {
    reply.headers({
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      'x-request-id': id,
      ...closeIfUnread(raw),
    })
  })
  app.addHook('preClose', async () => gate.close())
  app.addHook('onResponse', async (request, reply) => {
    const { statusCode: status, elapsedTime } = reply
    request.log.debug({ req: request.raw, status, milliseconds: Math.round(elapsedTime) }, 'request answered')
  })
  return app
}

/** What waits is read when the page is asked for. */
function measure(
  app: FastifyInstance,
  { hub, waiters }: AppDeps,
  metrics: Metrics,
  queues: { leases: LeaseBatch; sends: SendBatch; turns: Turns; peopleTurns: Turns },
): void {
  const { leases, sends, turns, peopleTurns } = queues
  measureRequests(app, metrics)
  metrics.read({
    sockets: () => hub.connectionCount,
    topics: hub.topicCount,
    waiters: () => waiters.count,
    agentCallsRunning: () => turns.load.running,
    agentCallsWaiting: () => turns.load.waiting,
    peopleCallsRunning: () => peopleTurns.load.running,
    peopleCallsWaiting: () => peopleTurns.load.waiting,
    leasesWaiting: () => leases.waiting,
    sendsWaiting: () => sends.waiting,
  })
}

function createGatedServer(
  gate: Gate,
  handler: (request: IncomingMessage, response: ServerResponse) => void,
  { requestMs, headersMs, checkMs }: Timeouts,
): Server {
  const options = { requestTimeout: requestMs, headersTimeout: headersMs, connectionsCheckingInterval: checkMs }
  const server = createServer(options, (request, response) => {
    if (!gate.refuses(request, response)) handler(request, response)
  })
  server.keepAliveTimeout = KEEP_ALIVE_MS
  gate.watch(server)
  return server
}

/** Waiters first: their answers are written while connections still live. Then WebSockets, then the rest drains. */
function closeInOrder(
  app: FastifyInstance,
  deps: AppDeps,
  guards: Guards & Pick<RealtimeOptions, 'onHandshake'>,
): void {
  const { waiters, hub, signer, config, logger: log } = deps
  const source = createRealtimeSource(deps.sql)
  const realtime =
    signer && config.realtime === 'builtin'
      ? attachRealtime({ server: app.server, hub, source, verifier: signer, limits: config.limits, log, ...guards })
      : null
  let isClosing = false
  const requests = countRequests(app.server)
  app.addHook('preClose', async () => {
    isClosing = true
    waiters.close()
    await realtime?.close()
    // A connection on which nothing was ever asked counts as busy, and would hold the server until it is cut off.
    requests.onNone(() => app.server.closeAllConnections())
  })
  // A connection that was kept alive would hold the server open until its client or a time-out ends it.
  app.addHook('onSend', async (_request, reply) => {
    if (isClosing) reply.header('connection', 'close')
  })
  app.addHook('onRequest', async () => {
    if (!isClosing) return
    throw new PatchcordError('unavailable', 'The server is restarting.', {
      hint: 'Call again.',
      retryAfterSeconds: RESTART_SECONDS,
    })
  })
}

/** Requests under way; `onNone` calls back when there is none, now or each time it comes to that. */
function countRequests(server: Server): { onNone(tell: () => void): void } {
  let count = 0
  let tellNone = () => {}
  server.on('request', (_request, response) => {
    count++
    response.once('close', () => {
      count--
      if (count === 0) tellNone()
    })
  })
  return {
    onNone(tell) {
      tellNone = tell
      if (count === 0) tell()
    },
  }
}

function describeRealtime({ config, signer }: AppDeps): HealthOptions['realtime'] {
  return signer ? config.realtime : 'not_configured'
}

/** Many HTTP clients name JSON as the type of a body that they do not send. */
function acceptEmptyBodies(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser('error', 'error')
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body, done) => {
    if (body === '') done(null, undefined)
    else parse(request, body as string, done)
  })
}

import { randomBytes } from 'node:crypto'
import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { type AppDeps, buildApp, type Timeouts } from '../../server/app.ts'
import { type Config, type Limits, loadConfig } from '../../server/config.ts'
import { createTicketSigner } from '../../server/domain/tickets.ts'
import { createLogger } from '../../server/http/log.ts'
import type { Metrics } from '../../server/metrics/metrics.ts'
import { observeWakes } from '../../server/metrics/observer.ts'
import { createHub, type Hub } from '../../server/realtime/hub.ts'
import { createBus } from '../../server/wakes/bus.ts'
import { createWaiters } from '../../server/wakes/waiters.ts'
import type { TestDatabase } from './database.ts'

export interface TestApp {
  /** `http://127.0.0.1:<port>` */
  url: string
  app: FastifyInstance
  deps: AppDeps
  hub: Hub
  /** Every line that was logged, as it would be written. */
  logs: string[]
  close(): Promise<void>
}

export interface TestAppOptions {
  config?: Partial<Omit<Config, 'limits'>>
  limits?: Partial<Limits>
  /** null: a server that cannot sign tickets. */
  signer?: null
  logLevel?: string
  timeouts?: Timeouts
  metrics?: Metrics
  /** The one of a server that was closed, for one that comes back. */
  port?: number
  /** Makes the MCP servers in place of the product's. */
  mcpFactory?: NonNullable<AppDeps['mcpFactory']>
}

/**
 * The whole server on a port of its own, with everything that main gives it but for the loops between instances
 * (peers, read-back, revocations), which a test starts where it needs them. `close` it before its database.
 */
export async function startTestApp(
  database: Pick<TestDatabase, 'api'>,
  options: TestAppOptions = {},
): Promise<TestApp> {
  const defaults = loadConfig({})
  const limits = { ...defaults.limits, ...options.limits }
  const config: Config = { ...defaults, ...options.config, limits }
  const logs: string[] = []
  const logger = createLogger(options.logLevel ?? 'trace', { write: (line) => void logs.push(line) })
  const secret = randomBytes(32).toString('base64url')
  const signer = options.signer === null ? null : await createTicketSigner({ algorithm: 'HS256', secret })
  const waiters = createWaiters(limits)
  const observer = observeWakes(options.metrics ?? null, logger)
  const bus = createBus(waiters, observer)
  const hub = createHub(undefined, observer)
  bus.addSink(hub)
  const deps: AppDeps = { config, sql: database.api, bus, waiters, hub, signer, logger, version: '0.0.0-test' }
  if (options.timeouts) deps.timeouts = options.timeouts
  if (options.metrics) deps.metrics = options.metrics
  if (options.mcpFactory) deps.mcpFactory = options.mcpFactory
  const app = await buildApp(deps)
  await app.listen({ host: '127.0.0.1', port: options.port ?? 0 })
  const { port } = app.server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    app,
    deps,
    hub,
    logs,
    async close() {
      const closing = app.close()
      app.server.closeIdleConnections()
      await closing
    },
  }
}

export interface Answer {
  status: number
  headers: Headers
  /** null: no body, or none that is JSON. */
  // biome-ignore lint/suspicious/noExplicitAny: tests read answers of every shape
  json: any
}

export interface Call {
  token?: string | undefined
  body?: unknown
  headers?: Record<string, string>
}

/** One request of the JSON API, with the body as JSON where there is one. */
export async function call(app: { url: string }, method: string, path: string, more: Call = {}): Promise<Answer> {
  const response = await fetch(`${app.url}${path}`, {
    method,
    headers: {
      ...(more.token === undefined ? {} : { authorization: `Bearer ${more.token}` }),
      ...(more.body === undefined ? {} : { 'content-type': 'application/json' }),
      ...more.headers,
    },
    ...(more.body === undefined ? {} : { body: typeof more.body === 'string' ? more.body : JSON.stringify(more.body) }),
  })
  const text = await response.text()
  const isJson = response.headers.get('content-type')?.startsWith('application/json')
  return { status: response.status, headers: response.headers, json: isJson ? JSON.parse(text) : null }
}

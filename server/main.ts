import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import type { Logger } from 'pino'
import { buildApp, CONNECTIONS_MAX } from './app.ts'
import { type Config, loadConfig, type Signing, toOrigin } from './config.ts'
import { type ConnectionTarget, connect, describeTarget, type Sql } from './db/connect.ts'
import { readOrCreateSigningSecret, removeAddress, startEmbedded, writeAddress } from './db/embedded/index.ts'
import { openChannel } from './db/listen.ts'
import { migrateExternal, supabaseFolder } from './db/migrate.ts'
import { createLoginLink, hasAnyoneSignedIn } from './domain/people.ts'
import { startRetention } from './domain/retention.ts'
import { startIndexing } from './domain/search.ts'
import { createTicketSigner } from './domain/tickets.ts'
import { listRecentRevocations } from './domain/tokens.ts'
import { StartError } from './errors.ts'
import { createGuards } from './http/guards.ts'
import { createLogger } from './http/log.ts'
import { serveMetrics } from './metrics/endpoint.ts'
import type { Job, Metrics } from './metrics/metrics.ts'
import { observeWakes } from './metrics/observer.ts'
import { createPrometheus, type Prometheus } from './metrics/prometheus.ts'
import { createHub } from './realtime/hub.ts'
import { createBus } from './wakes/bus.ts'
import { startPeers } from './wakes/peers.ts'
import { startReadBack } from './wakes/read-back.ts'
import { startRevocations } from './wakes/revocations.ts'
import { createWaiters } from './wakes/waiters.ts'

const POOL_MAX = 10
const NO_KEY =
  'No listener can be woken, since tickets need a key: set PATCHCORD_SIGNING_KEY or SUPABASE_JWT_SECRET, on every instance the same.'
/** Beside the connections of clients: the database's, the log, what Node itself opens. */
const OTHER_FILES = 100
/** Answers under way have this long; together with Postgres' stop it stays under the 10 s that init systems grant. */
const DRAIN_MS = 7_000
/** The terminal sends Ctrl-C to npm and to us, and npm passes it on: one key press is two signals. */
const SAME_KEY_PRESS_MS = 1_000
const QUIT_MS = 3_000
/** A database connection that is half-open answers no query: what waits for one must not hold the end of the process. */
const CLOSE_MS_MAX = 9_500
const LOOPBACK = /^(?:127\.|::1$|localhost$)/

/** What was opened, to be closed in reverse order: by a failed start, by a signal, once. */
class Life {
  readonly #closers: (() => Promise<unknown>)[] = []
  #closing: Promise<void> | null = null
  app: FastifyInstance | null = null
  isQuitting = false
  stopPostgres: () => Promise<void> = async () => {}

  onClose(close: () => Promise<unknown>): void {
    this.#closers.push(close)
  }

  close(): Promise<void> {
    this.#closing ??= this.#closeAll()
    return this.#closing
  }

  /** One that fails keeps none of the others from closing. */
  async #closeAll(): Promise<void> {
    const errors: unknown[] = []
    for (const close of this.#closers.reverse()) await close().catch((error: unknown) => errors.push(error))
    if (errors.length > 0) throw errors[0]
  }
}

interface Database {
  api: ConnectionTarget
  /** null: an operator migrates this database by hand. */
  admin: ConnectionTarget | null
  /** null: nothing to sign tickets with. */
  signing: Signing | null
}

async function start(config: Config, log: Logger, life: Life): Promise<void> {
  warnOfFewFiles(log)
  await requireFreePort(config)
  let ask: () => Promise<unknown> = async () => Promise.reject(new Error('there is no database yet'))
  const metrics = await openMetrics(config, log, life, () => ask())
  const database = config.databaseUrl
    ? await openExternal(config, config.databaseUrl, log)
    : await openEmbedded(config, log, life)
  if (database.admin) await setBroadcast(database.admin, config)
  const signer = database.signing && (await createTicketSigner(database.signing))
  if (!signer) log.warn(NO_KEY)
  const sql = connect(database.api, { max: POOL_MAX, applicationName: 'patchcord-api' })
  life.onClose(() => sql.end({ timeout: 2 }))

  ask = () => sql`select 1`
  const waiters = createWaiters(config.limits)
  const observer = observeWakes(metrics, log)
  const bus = createBus(waiters, observer)
  const hub = createHub((error) => log.error({ err: error }, 'a wake could not be delivered to a channel'), observer)
  bus.addSink(hub)
  const readBack = startReadBack({ sql, bus, log, ...ranOf(metrics, 'read_back') })
  life.onClose(() => readBack.close())
  if (config.databaseUrl) {
    const target = { url: config.databaseListenUrl ?? config.databaseUrl }
    const peers = await startPeers({
      open: (name, handlers) => openChannel(target, name, handlers),
      bus,
      log,
      onListening: () => readBack.now(),
      ...ranOf(metrics, 'peers'),
    })
    metrics?.read({ peersWaiting: () => peers.waiting })
    life.onClose(() => peers.close())
  }
  // On a connection of its own: behind slow statements in a full pool it would come later than within its second.
  const watching = connect(database.api, { max: 1, applicationName: 'patchcord-revocations' })
  life.onClose(() => watching.end({ timeout: 2 }))
  const listRecent = (seconds: number, ids: string[]) => listRecentRevocations(watching, seconds, ids)
  const revocations = startRevocations({ holders: [hub, waiters], listRecent, log, ...ranOf(metrics, 'revocations') })
  life.onClose(() => revocations.close())

  const retention = startRetention({ sql, days: config.retentionDays, log, ...ranOf(metrics, 'retention') })
  life.onClose(() => retention.close())

  const indexing = startIndexing({ sql, log, ...ranOf(metrics, 'indexing') })
  life.onClose(() => indexing.close())

  life.app = await buildApp({
    config,
    sql,
    bus,
    waiters,
    hub,
    signer,
    logger: log,
    version: readVersion(),
    ...(metrics && { metrics }),
  })
  life.onClose(() => drain(life.app as FastifyInstance))
  await listen(life.app, config)
  if (!config.databaseUrl) await noteAddress(life, config)
  await announce(life.app, config, database.admin)
}

/** null: the operator has not asked for any. First and last, so that a start and an end can be watched, too. */
async function openMetrics(
  { metrics: address }: Config,
  log: Logger,
  life: Life,
  probe: () => Promise<unknown>,
): Promise<Prometheus | null> {
  if (!address) return null
  const metrics = await createPrometheus({ version: readVersion(), probe, withProcess: true })
  // On another address a monitor may know this machine by any name; whoever reaches it there could ask without a browser.
  const isHostAllowed = LOOPBACK.test(address.host) ? createGuards(null).isHostAllowed : () => true
  const endpoint = await serveMetrics({ ...address, page: metrics, isHostAllowed, log }).catch((error) => {
    throw toListenError(error, address, { host: 'PATCHCORD_METRICS', port: 'PATCHCORD_METRICS' })
  })
  life.onClose(() => endpoint.close())
  log.info({ host: endpoint.host, port: endpoint.port }, 'metrics are served')
  return metrics
}

function ranOf(metrics: Metrics | null, job: Job): { ran?: (isOk: boolean) => void } {
  return metrics ? { ran: (isOk) => metrics.jobRan(job, isOk) } : {}
}

/** So that `patchcord login-link` knows where its links lead. */
async function noteAddress(life: Life, config: Config): Promise<void> {
  await writeAddress(config.dataDir, originOf(life.app as FastifyInstance, config))
  life.onClose(() => removeAddress(config.dataDir))
}

function originOf(app: FastifyInstance, config: Config): string {
  const { address, port } = app.server.address() as AddressInfo
  return toOrigin(config, address, port)
}

async function openEmbedded(config: Config, log: Logger, life: Life): Promise<Database> {
  const embedded = await startEmbedded({ dataDir: config.dataDir, log: (line) => log.info(line) })
  let stopping: Promise<void> | null = null
  life.stopPostgres = () => {
    stopping ??= embedded.stop()
    return stopping
  }
  life.onClose(life.stopPostgres)
  const signing = config.signing ?? { algorithm: 'HS256', secret: await readOrCreateSigningSecret(config.dataDir) }
  return { api: embedded.api, admin: embedded.admin, signing }
}

async function openExternal(config: Config, databaseUrl: string, log: Logger): Promise<Database> {
  const admin = config.databaseAdminUrl === null ? null : { url: config.databaseAdminUrl }
  const api = { url: databaseUrl }
  if (admin) {
    await withDatabase('DATABASE_ADMIN_URL', admin, (sql) => migrateExternal(sql, (line) => log.info(line)))
  }
  await withDatabase('DATABASE_URL', api, async (sql) => {
    await requireBoundRole(sql)
    await requireCurrentSchema(sql)
  })
  return { api, admin, signing: config.signing }
}

/** Whoever bypasses row-level security would make every policy of the schema void. */
async function requireBoundRole(sql: Sql): Promise<void> {
  const [role] = await sql`
    select rolname as name, rolsuper or rolbypassrls as "isUnbound" from pg_catalog.pg_roles where rolname = current_user`
  if (!role?.isUnbound) return
  throw new StartError(
    `DATABASE_URL logs in as ${role.name}, which row-level security does not bind: use the login of patchcord_api, ` +
      'which "npm run admin -- api-role" prints.',
  )
}

async function requireCurrentSchema(sql: Sql): Promise<void> {
  const wanted = readdirSync(join(supabaseFolder(), 'migrations')).sort().at(-1)?.split('_')[0] ?? ''
  const [entry] = await sql`select to_regprocedure('patchcord.schema_version()') is not null as "isThere"`
  const [row] = entry?.isThere ? await sql`select patchcord.schema_version() as version` : []
  const version = (row?.version as string | null | undefined) ?? ''
  if (version === wanted) return
  if (version > wanted) throw new StartError('The database is ahead of this Patchcord: update Patchcord.')
  throw new StartError(
    'The database is not migrated to this version of Patchcord: set DATABASE_ADMIN_URL, or run "npm run admin -- migrate".',
  )
}

/** The insert's trigger calls Supabase Realtime only where somebody listens there. */
async function setBroadcast(admin: ConnectionTarget, config: Config): Promise<void> {
  const sends = config.realtime !== 'builtin'
  await withDatabase('DATABASE_ADMIN_URL', admin, async (sql) => {
    await sql`update patchcord.settings set sends_broadcast = ${sends} where sends_broadcast <> ${sends}`
  })
}

async function withDatabase<T>(variable: string, target: ConnectionTarget, work: (sql: Sql) => Promise<T>): Promise<T> {
  const sql = connect(target, { max: 1, applicationName: 'patchcord-start' })
  try {
    return await work(sql)
  } catch (error) {
    if (error instanceof StartError) throw error
    const { code, message } = error as { code?: string; message?: string }
    throw new StartError(
      `The database of ${variable} cannot be used (${describeTarget(target)}): ${message || code || 'no answer'}.`,
      { cause: error },
    )
  } finally {
    await sql.end({ timeout: 1 })
  }
}

/** A connection is an open file. Node has already raised the soft limit to the hard one; only Linux shows it. */
function warnOfFewFiles(log: Logger): void {
  const needed = CONNECTIONS_MAX + OTHER_FILES
  const allowed = Number(
    /^Max open files +(\d+)/m.exec(readIfThere('/proc/self/limits'))?.[1] ?? Number.POSITIVE_INFINITY,
  )
  if (allowed >= needed) return
  log.warn(
    { allowed, needed },
    `This process may open ${allowed} files, which is enough for about ${Math.max(0, allowed - OTHER_FILES)} of ` +
      `${CONNECTIONS_MAX} connections: run "ulimit -n ${needed}" before the start if more will come.`,
  )
}

function readIfThere(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return '' // No Linux, or a /proc that is closed to us.
  }
}

/** Before any data is touched; the real listening comes last, when everything behind it works. */
async function requireFreePort(config: Config): Promise<void> {
  if (config.port === 0) return
  const probe = createServer()
  try {
    probe.listen(config.port, config.host)
    await once(probe, 'listening')
  } catch (error) {
    throw toListenError(error, config)
  }
  probe.close()
  await once(probe, 'close')
}

async function listen(app: FastifyInstance, config: Config): Promise<void> {
  try {
    await app.listen({ host: config.host, port: config.port })
  } catch (error) {
    throw toListenError(error, config)
  }
}

function toListenError(
  error: unknown,
  { host, port }: Pick<Config, 'host' | 'port'>,
  names = { host: 'HOST', port: 'PORT' },
): unknown {
  const { code } = error as NodeJS.ErrnoException
  const sentences: Record<string, string> = {
    EADDRINUSE: `Port ${port} of ${host} is in use: stop the other program, or set ${names.port} to another one.`,
    EACCES: `Port ${port} needs more rights than this user has: set ${names.port} to one above 1023.`,
    EADDRNOTAVAIL: `${names.host} ${host} is not an address of this machine.`,
    ENOTFOUND: `${names.host} ${host} is not an address of this machine.`,
  }
  const sentence = sentences[code ?? '']
  return sentence === undefined ? error : new StartError(sentence, { cause: error })
}

/** Programs wait for the first of these lines. */
async function announce(app: FastifyInstance, config: Config, admin: ConnectionTarget | null): Promise<void> {
  const { address, family, port } = app.server.address() as AddressInfo
  print(`Patchcord listens on http://${family === 'IPv6' ? `[${address}]` : address}:${port}`)
  if (!config.databaseUrl) print(`Its data is in ${config.dataDir}`)
  if (!admin) return
  const { link, isWithoutAgents } = await withDatabase('DATABASE_ADMIN_URL', admin, findFirstSteps)
  if (link !== null) {
    print(`Sign in: ${originOf(app, config)}/login/${link}`)
    print('  (once, within 15 minutes; patchcord login-link makes another)')
  }
  if (!isWithoutAgents) return
  print('There are no agents yet. Make the first ones there, or in another terminal:')
  print('  patchcord namespace create acme')
  print('  patchcord agent create alice@acme')
  print('  patchcord token create alice@acme')
}

async function findFirstSteps(sql: Sql): Promise<{ link: string | null; isWithoutAgents: boolean }> {
  const link = (await hasAnyoneSignedIn(sql)) ? null : (await createLoginLink(sql)).code
  const [agent] = await sql`select from patchcord.agents limit 1`
  return { link, isWithoutAgents: !agent }
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}

/** Waiters and WebSockets are told first; what is still under way after DRAIN_MS is cut off. */
async function drain(app: FastifyInstance): Promise<void> {
  const timer = setTimeout(() => app.server.closeAllConnections(), DRAIN_MS)
  await app.close()
  clearTimeout(timer)
}

function readVersion(): string {
  return (JSON.parse(readFileSync(join(supabaseFolder(), '..', 'package.json'), 'utf8')) as { version: string }).version
}

/** The first signal drains, a second one (another key press) only stops Postgres. */
function obeySignals(life: Life, started: Promise<unknown>): void {
  let firstAt: number | null = null
  const onSignal = () => {
    if (firstAt === null) {
      firstAt = performance.now()
      void started
        .then(() => Promise.race([life.close(), sleep(CLOSE_MS_MAX)]))
        .then(
          () => process.exit(0),
          (error) => quit(life, error),
        )
    } else if (performance.now() - firstAt > SAME_KEY_PRESS_MS) void quit(life, null)
  }
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, onSignal)
}

async function quit(life: Life, error: unknown): Promise<never> {
  life.isQuitting = true
  if (error) process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`)
  const stopped = life.stopPostgres().catch(() => undefined) // The next start stops or adopts what is left.
  await Promise.race([stopped, sleep(QUIT_MS)])
  process.exit(1)
}

async function main(): Promise<void> {
  const life = new Life()
  try {
    const config = loadConfig()
    const log = createLogger(config.logLevel)
    const die = (error: unknown) => {
      log.fatal({ err: error }, 'uncaught error')
      void quit(life, null)
    }
    process.on('uncaughtException', die)
    process.on('unhandledRejection', die)
    const started = start(config, log, life)
    obeySignals(
      life,
      started.catch(() => undefined),
    )
    await started
  } catch (error) {
    if (life.isQuitting) return // What fails from now on fails because of that.
    process.stderr.write(`${error instanceof StartError ? error.message : (error as Error).stack}\n`)
    await life.close().catch(() => undefined) // Why the start failed has been said; this could only follow from it.
    process.exit(1)
  }
}

await main()

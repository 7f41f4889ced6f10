import { type ChildProcess, fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { loadConfig } from '../../server/config.ts'
import { connect, type Sql } from '../../server/db/connect.ts'
import { findEmbedded } from '../../server/db/embedded/index.ts'
import { sendMessage } from '../../server/domain/messages.ts'
import { createTokenText, hashToken } from '../../server/domain/tokens.ts'
import { createBus } from '../../server/wakes/bus.ts'
import { createWaiters } from '../../server/wakes/waiters.ts'
import { createTemporaryFolder, stopChild } from '../../test/helpers/processes.ts'
import type { Answer, Order } from './bench-sockets.ts'

/**
 * `npm run bench:listeners`: what idle listeners cost one server process, and what waking them does to it. The built server on
 * an embedded Postgres; the listeners are bare sockets of a second process, each of an agent and a token of its own, with real
 * tickets. `--listeners 1000,5000,10000` are the steps. A table, and the same as JSON in the last line.
 */

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const START_TIMEOUT_MS = 60_000
const WARM_UP_LISTENERS = 200
const WAKES_OF_ONE = 400
const WAKE_EVERY_MS = 15
const WAKE_TIMEOUT_MS = 30_000
const SETTLE_MS = 3_000
const IDLE_MS = 10_000
const SENDERS = 8
const STATEMENTS = 100
const LIMITS = { sendBurst: 1_000_000, newPerRecipientMax: 1_000_000 }
const TARGETS = { kilobytesEach: 10, wakeOneP99Ms: 5, stallMs: 60 }

interface Usage {
  rss: number
  heap: number
  /** The longest delay of the event loop since it was watched. */
  stallMs: number
  /** How much of such a delay was work of its own. */
  busyMs: number
  cpuMs: number
  /** When wakes were published since the last call: after the commit of each message; `ms` until they were written out. */
  published: { at: number; ms: number }[]
}

interface Server {
  url: string
  /** What was used since the last call. `collects`: rids it of garbage first. `watches` the event loop from now on, at some cost. */
  measure(options?: { collects?: boolean; watches?: boolean }): Promise<Usage>
  stop(): Promise<unknown>
}

interface Clients {
  order(order: Order): Promise<Answer>
  stop(): Promise<unknown>
}

interface Agents {
  namespaceId: string
  names: string[]
  tokens: string[]
}

interface Row {
  listeners: number
  connectSeconds: number
  kilobytesEach: number
  kilobytesEachCollected: number
  heapKilobytesEach: number
  idleCpuPercent: number
  wakeOneP50Ms: number
  wakeOneP99Ms: number
  toPublishP50Ms: number
  statementP50Ms: number
  commitP50Ms: number
  writingP99Ms: number
  afterPublishP50Ms: number
  afterPublishP99Ms: number
  afterAnswerP99Ms: number
  wakeOneStallMs: number
  wakeOneBusyMs: number
  wakeAllMs: number
  wakeAllStallMs: number
  wakeAllBusyMs: number
}

async function main(): Promise<void> {
  const steps = readSteps()
  const folder = await createTemporaryFolder()
  const closers: (() => Promise<unknown>)[] = [folder.remove]
  try {
    const server = await startMeasuredServer(folder.path)
    closers.push(server.stop)
    const clients = startClients()
    closers.push(clients.stop)
    const admin = await openAdmin(folder.path)
    closers.push(() => admin.end())
    const agents = await createAgents(admin, 'crowd', Math.max(...steps) + SENDERS)
    const senders = agents.tokens.splice(-SENDERS)
    await warmUp(admin, server)
    const rows: Row[] = []
    const idle = await measureIdle(server)
    for (const step of steps) rows.push(await measureStep({ server, clients, admin, senders, agents, idle }, step))
    print(rows, idle)
  } finally {
    for (const close of closers.reverse()) await close()
  }
}

function readSteps(): number[] {
  const { values } = parseArgs({ options: { listeners: { type: 'string', default: '1000,5000,10000' } } })
  const steps = values.listeners.split(',').map(Number)
  if (steps.every((step, index) => Number.isInteger(step) && step > (steps[index - 1] ?? 0))) return steps
  throw new Error('--listeners takes rising whole numbers, for example --listeners 1000,10000')
}

async function startMeasuredServer(dataDir: string): Promise<Server> {
  const probe = new URL('bench-probe.mjs', import.meta.url).href
  const child = spawn(process.execPath, ['--expose-gc', '--import', probe, 'dist/server/main.js'], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    env: {
      PATH: process.env.PATH ?? '',
      PATCHCORD_DATA_DIR: dataDir,
      PORT: '0',
      LOG_LEVEL: 'error',
      PATCHCORD_LIMITS: JSON.stringify(LIMITS),
    },
  })
  const url = await new Promise<string>((resolve, reject) => {
    createInterface({ input: child.stdout as NodeJS.ReadableStream }).on('line', (line) => {
      const found = /listens on (http:\/\/\S+)/.exec(line)?.[1]
      if (found) resolve(found)
    })
    child.once('exit', (code) => reject(new Error(`the server ended with ${code} before it listened`)))
    AbortSignal.timeout(START_TIMEOUT_MS).addEventListener('abort', () =>
      reject(new Error('the server did not listen')),
    )
  })
  return {
    url,
    async measure(options = {}) {
      child.send(options)
      const [usage] = await once(child, 'message')
      return usage as Usage
    },
    stop: () => stopChild(child),
  }
}

function startClients(): Clients {
  const child: ChildProcess = fork(fileURLToPath(new URL('bench-sockets.ts', import.meta.url)))
  return {
    async order(order) {
      child.send(order)
      const [answer] = (await once(child, 'message')) as [Answer & { error?: string }]
      if (answer.error) throw new Error(answer.error)
      if (answer.lost > 0) throw new Error(`the server closed ${answer.lost} sockets`)
      return answer
    },
    stop: () => stopChild(child),
  }
}

async function openAdmin(dataDir: string): Promise<Sql> {
  const embedded = await findEmbedded(dataDir)
  if (!embedded) throw new Error('the server has no embedded Postgres')
  const admin = connect(embedded.admin, { max: 2, applicationName: 'bench' })
  // Entry functions go on as this role, which the API's login may do and an operator may not.
  await admin`grant patchcord_agent to current_user`
  return admin
}

/** Agents `<namespace>-1` and so on, each with a token. */
async function createAgents(admin: Sql, namespace: string, count: number): Promise<Agents> {
  const names = Array.from({ length: count }, (_, index) => `${namespace}-${index + 1}`)
  const tokens = names.map(() => createTokenText())
  const [row] = await admin`insert into patchcord.namespaces (name) values (${namespace}) returning id`
  const namespaceId = row?.id as string
  await admin`
    with made as (
      insert into patchcord.agents (namespace_uuid, name)
      select ${namespaceId}, name from unnest(${names}::text[]) name returning id, name
    )
    insert into patchcord.tokens (namespace_uuid, agent_uuid, hash, label)
    select ${namespaceId}, made.id, decode(given.hash, 'hex'), 'bench'
    from made join unnest(${names}::text[], ${tokens.map(hashToken)}::text[]) given (name, hash) using (name)`
  await admin`analyze`
  return { namespaceId, names, tokens }
}

/** Code is compiled and pools are filled before anything is measured. */
async function warmUp(admin: Sql, server: Server): Promise<void> {
  const { tokens } = await createAgents(admin, 'warm-up', WARM_UP_LISTENERS)
  const clients = startClients()
  await clients.order({ kind: 'connect', url: server.url, tokens })
  await clients.stop()
  await sleep(SETTLE_MS)
}

/** The CPU is that of IDLE_MS without any work. */
async function measureIdle(server: Server): Promise<Usage> {
  const { rss, heap } = await server.measure({ collects: true })
  await sleep(IDLE_MS)
  return { ...(await server.measure()), rss, heap }
}

interface Bench {
  server: Server
  clients: Clients
  admin: Sql
  /** Tokens. */
  senders: string[]
  agents: Agents
  idle: Usage
}

async function measureStep(bench: Bench, listeners: number): Promise<Row> {
  const { server, clients, agents, idle } = bench
  const { sockets } = await clients.order({ kind: 'beat', isOn: true })
  const startedAt = now()
  await clients.order({ kind: 'connect', url: server.url, tokens: agents.tokens.slice(sockets, listeners) })
  const connectSeconds = (now() - startedAt) / 1000
  await sleep(SETTLE_MS)
  const full = await server.measure()
  const collected = await server.measure({ collects: true })
  await clients.order({ kind: 'beat', isOn: false })
  const resting = await measureIdle(server)
  await clients.order({ kind: 'beat', isOn: true })
  const one = await wakeOneByOne(bench, listeners)
  const statements = await timeStatements(bench)
  const all = await wakeAll(bench, listeners)
  return {
    listeners,
    connectSeconds,
    kilobytesEach: (full.rss - idle.rss) / 1024 / listeners,
    kilobytesEachCollected: (collected.rss - idle.rss) / 1024 / listeners,
    heapKilobytesEach: (collected.heap - idle.heap) / 1024 / listeners,
    idleCpuPercent: (resting.cpuMs / IDLE_MS) * 100,
    wakeOneP50Ms: percentile(one.latencies, 0.5),
    wakeOneP99Ms: percentile(one.latencies, 0.99),
    toPublishP50Ms: percentile(one.untilPublish, 0.5),
    statementP50Ms: percentile(statements.functions, 0.5),
    commitP50Ms: percentile(statements.commits, 0.5),
    writingP99Ms: percentile(one.writing, 0.99),
    afterPublishP50Ms: percentile(one.afterPublish, 0.5),
    afterPublishP99Ms: percentile(one.afterPublish, 0.99),
    afterAnswerP99Ms: percentile(one.afterAnswer, 0.99),
    wakeOneStallMs: one.usage.stallMs,
    wakeOneBusyMs: one.usage.busyMs,
    wakeAllMs: all.spreadMs,
    wakeAllStallMs: all.usage.stallMs,
    wakeAllBusyMs: all.usage.busyMs,
  }
}

/**
 * Messages through the API to one listener after the other. From the request's start to the frame in the other process
 * (`latencies`) it is: HTTP, the token, the message's statement with its commit; then the server publishes the wake; then the
 * frame, and at the same time the answer to the sender.
 */
async function wakeOneByOne({ server, clients, senders, agents }: Bench, listeners: number) {
  const sends: { startedAt: number; answeredAt: number; wokenAt: number }[] = []
  await server.measure({ watches: true })
  for (let index = 0; index < WAKES_OF_ONE; index++) {
    const to = agents.names[Math.floor((index * listeners) / WAKES_OF_ONE)] as string
    const startedAt = now()
    const woken = clients.order({ kind: 'collect', wakes: 1, timeoutMs: WAKE_TIMEOUT_MS })
    const answeredAt = await send(server.url, senders[index % SENDERS] as string, to)
    const [wokenAt] = (await woken).wakesAt
    if (wokenAt === undefined) throw new Error(`${to} was not woken`)
    sends.push({ startedAt, answeredAt, wokenAt })
    await sleep(WAKE_EVERY_MS)
  }
  const usage = await server.measure()
  const publishedAt = usage.published.map(({ at }) => at)
  if (publishedAt.length !== sends.length) throw new Error(`${publishedAt.length} wakes published, not ${sends.length}`)
  return {
    latencies: sends.map(({ startedAt, wokenAt }) => wokenAt - startedAt),
    untilPublish: sends.map(({ startedAt }, index) => (publishedAt[index] as number) - startedAt),
    afterPublish: sends.map(({ wokenAt }, index) => wokenAt - (publishedAt[index] as number)),
    writing: usage.published.map(({ ms }) => ms),
    afterAnswer: sends.map(({ answeredAt, wokenAt }) => wokenAt - answeredAt),
    usage,
  }
}

/** The one statement of a send, and its commit by itself, on a connection of its own: to senders, since nobody is to be woken. */
async function timeStatements({ admin, senders, agents }: Bench) {
  const [functions, commits]: [number[], number[]] = [[], []]
  const limits = { ...loadConfig({}).limits, ...LIMITS }
  const sql = (await admin.reserve()) as unknown as Sql & { release(): void }
  const scope = { sql, tokenHash: hashToken(senders[0] as string), limits, bus: createBus(createWaiters(limits)) }
  const recipients = agents.names.slice(1 - SENDERS)
  try {
    for (let index = 0; index < STATEMENTS; index++) {
      await sql`begin`
      const startedAt = now()
      await sendMessage(scope, { to: recipients[index % recipients.length] as string, content: 'wake up' })
      const sentAt = now()
      await sql`commit`
      commits.push(now() - sentAt)
      functions.push(sentAt - startedAt)
    }
  } finally {
    sql.release()
  }
  return { functions, commits }
}

/** Resolves with when the answer came. */
async function send(url: string, token: string, to: string): Promise<number> {
  const response = await fetch(new URL('/api/messages', url), {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ to, content: 'wake up' }),
  })
  const at = now()
  if (!response.ok) throw new Error(`not sent: HTTP ${response.status} ${await response.text()}`)
  await response.arrayBuffer()
  return at
}

/** Rows of one transaction that no server has announced: the read-back finds all of them at once, as after an outage. */
async function wakeAll({ server, clients, admin, agents }: Bench, listeners: number) {
  await server.measure({ watches: true })
  const woken = clients.order({ kind: 'collect', wakes: listeners, timeoutMs: WAKE_TIMEOUT_MS })
  await admin`
    with sender as (
      select id, namespace_uuid, name from patchcord.agents where namespace_uuid = ${agents.namespaceId} limit 1
    ), body as (
      insert into patchcord.message_bodies (from_namespace_uuid, from_agent_uuid, content)
      select namespace_uuid, id, 'all' from sender returning id
    ), message as (
      insert into patchcord.agent_messages (id, from_namespace_uuid, to_namespace_uuid, from_agent_uuid, to_agent_uuid,
        namespace_id, from_agent, to_agent, kind, urgency, wake_at)
      select body.id, sender.namespace_uuid, a.namespace_uuid, sender.id, a.id, 'crowd', sender.name, a.name, 'report', 'normal',
        clock_timestamp()
      from body, sender, patchcord.agents a
      where a.namespace_uuid = ${agents.namespaceId} and a.name = any (${agents.names.slice(0, listeners)})
      returning id, to_agent_uuid, from_agent_uuid, wake_at
    )
    insert into patchcord.deliveries (message_id, to_agent_uuid, from_agent_uuid, wake_at) select * from message`
  const { wakesAt } = await woken
  if (wakesAt.length < listeners) throw new Error(`only ${wakesAt.length} of ${listeners} were woken`)
  return { spreadMs: Math.max(...wakesAt) - Math.min(...wakesAt), usage: await server.measure() }
}

function now(): number {
  return Number(process.hrtime.bigint()) / 1e6
}

function percentile(values: number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}

const LINES: [keyof Row, string][] = [
  ['listeners', 'listeners'],
  ['connectSeconds', 'connected in, s'],
  ['kilobytesEach', 'RSS of each, kB'],
  ['kilobytesEachCollected', '  after a garbage collection'],
  ['heapKilobytesEach', '  heap'],
  ['idleCpuPercent', 'CPU while idle, %'],
  ['wakeOneP50Ms', 'wake one: send called → frame, p50 ms'],
  ['wakeOneP99Ms', '  p99'],
  ['toPublishP50Ms', '  send called → published (HTTP, token, commit), p50'],
  ['statementP50Ms', '    of it the SQL function'],
  ['commitP50Ms', '    of it the commit'],
  ['writingP99Ms', '  published → written to the socket, p99'],
  ['afterPublishP50Ms', '  published → frame, p50'],
  ['afterPublishP99Ms', '  published → frame, p99'],
  ['afterAnswerP99Ms', '  send answered → frame, p99'],
  ['wakeOneStallMs', '  longest stall of the event loop'],
  ['wakeOneBusyMs', '    of it work of its own'],
  ['wakeAllMs', 'wake all: first frame → last, ms'],
  ['wakeAllStallMs', '  longest stall of the event loop'],
  ['wakeAllBusyMs', '    of it work of its own'],
]

function print(rows: Row[], idle: Usage): void {
  const round = (value: number) => String(Math.round(value * 100) / 100)
  const rss = Math.round(idle.rss / 1024 / 1024)
  console.log(`Server without listeners: ${rss} MB RSS after GC, ${round((idle.cpuMs / IDLE_MS) * 100)} % CPU`)
  for (const [key, title] of LINES) {
    console.log(title.padEnd(54) + rows.map((row) => round(row[key]).padStart(9)).join(''))
  }
  const { kilobytesEach, wakeOneP99Ms, stallMs } = TARGETS
  console.log(
    `Targets: ${kilobytesEach} kB each; p99 of published → frame and of send answered → frame ${wakeOneP99Ms} ms; no stall above ${stallMs} ms`,
  )
  console.log(JSON.stringify({ node: process.version, idleRss: idle.rss, targets: TARGETS, rows }))
}

await main()

import { fork } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { connect, type Sql } from '../../../server/db/connect.ts'
import { createTokenText, hashToken } from '../../../server/domain/tokens.ts'
import { stopChild } from '../../../test/helpers/processes.ts'
import { answerOf, type MeasuredServer, now, startMeasuredServer, type Usage } from './measured-server.ts'
import { type BenchOptions, formatMs, median, meets, orderOf, percentile, type Row, ratioOf } from './row.ts'
import type { Answer, Order } from './sockets.ts'

/**
 * Part d: what idle listeners cost one server process, and what waking them does to it. The built server on an embedded Postgres; the
 * listeners are bare sockets of a second process, each of an agent and a token of its own, with real tickets. Beside it runs
 * another server with as many agents and one listener alone: wakes of the two are measured in turns.
 */

const WARM_UP_LISTENERS = 200
const WAKE_EVERY_MS = 15
const WAKE_TIMEOUT_MS = 30_000
const SETTLE_MS = 3_000
/** Postgres counts what an idle connection has done up to 10 s later. */
const STATISTICS_MS = 11_000
/** With the 25 s between heartbeats before it well below the 60 s after which a socket that says nothing is closed. */
const SILENT_MS = 15_000
const SENDERS = 8
const TARGETS = { kilobytesEach: '≤ 10', stallMs: '≤ 60' }

interface Clients {
  order(order: Order): Promise<Answer>
}

/** A server and who listens to it. */
interface Place {
  server: MeasuredServer
  clients: Clients
  admin: Sql
  namespaceId: string
  names: string[]
  tokens: string[]
  senders: string[]
}

/** A time without any work but what time itself brings. */
interface Rest {
  cpuMsPerSecond: number
  transactionsPerMinute: number
  timers: number
}

interface Bench {
  options: BenchOptions
  crowd: Place
  alone: Place
  /** Of the crowd's server before anybody listened. */
  empty: { rss: number; heap: number }
  idleMs: number
  wakes: number
}

export async function measure(options: BenchOptions): Promise<Row[]> {
  const { isQuick, isHuge, log } = options
  const steps = isQuick ? [200] : isHuge ? [1_000, 5_000, 10_000, 20_000] : [1_000, 5_000, 10_000]
  const idleMs = isQuick ? 3_000 : 30_000
  const agents = Math.max(...steps) + SENDERS
  const [crowd, alone] = [await openPlace(options, agents), await openPlace(options, agents)]
  await warmUp(options, crowd)
  await alone.clients.order({ kind: 'connect', url: alone.server.url, tokens: alone.tokens.slice(0, 1) })
  await alone.clients.order({ kind: 'beat', isOn: true })
  log('two servers run, one of them with one listener')
  await sleep(STATISTICS_MS)
  const { rss, heap } = await crowd.server.measure({ collects: true })
  const empty = { rss, heap }
  const bench: Bench = { options, crowd, alone, empty, idleMs, wakes: isQuick ? 40 : 400 }
  const rows: Row[] = []
  for (const listeners of steps) rows.push(...(await measureStep(bench, listeners)))
  return rows
}

async function openPlace(options: BenchOptions, count: number): Promise<Place> {
  const server = await startMeasuredServer(options)
  const admin = connect(server.target, { max: 2, applicationName: 'bench' })
  options.onEnd(() => admin.end({ timeout: 1 }))
  const agents = await createAgents(admin, 'crowd', count)
  const senders = agents.tokens.splice(-SENDERS)
  return { server, clients: startClients(options), admin, ...agents, senders }
}

function startClients({ onEnd }: Pick<BenchOptions, 'onEnd'>): Clients & { stop(): Promise<unknown> } {
  const child = fork(fileURLToPath(new URL('sockets.ts', import.meta.url)))
  const stop = () => stopChild(child)
  onEnd(stop)
  return {
    async order(order) {
      child.send(order)
      const [answer] = (await answerOf(child)) as [Answer & { error?: string }]
      if (answer.error) throw new Error(answer.error)
      if (answer.lost > 0) throw new Error(`the server closed ${answer.lost} sockets`)
      return answer
    },
    stop,
  }
}

/** Agents `<namespace>-1` and so on, each with a token. */
async function createAgents(admin: Sql, namespace: string, count: number) {
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
async function warmUp(options: BenchOptions, { admin, server }: Place): Promise<void> {
  const { tokens } = await createAgents(admin, 'warm-up', WARM_UP_LISTENERS)
  const clients = startClients(options)
  await clients.order({ kind: 'connect', url: server.url, tokens })
  await clients.stop()
  await sleep(SETTLE_MS)
}

/** What the server uses, and asks of its database, while nothing is asked of it. */
async function rest({ server, admin }: Place, ms: number): Promise<Rest> {
  const before = await countTransactions(admin)
  await server.measure()
  await sleep(ms)
  const { cpuMs, timers } = await server.measure()
  const after = await countTransactions(admin)
  return { cpuMsPerSecond: (cpuMs / ms) * 1_000, transactionsPerMinute: ((after - before) / ms) * 60_000, timers }
}

/** The count itself is one, in each of its turns. */
async function countTransactions(admin: Sql): Promise<number> {
  const [row] = await admin`
    select (xact_commit + xact_rollback)::int as count from pg_stat_database where datname = current_database()`
  return row?.count as number
}

async function measureStep(bench: Bench, listeners: number): Promise<Row[]> {
  const { options, crowd, alone, empty, idleMs } = bench
  const { server, clients } = crowd
  const { sockets } = await clients.order({ kind: 'beat', isOn: true })
  const startedAt = now()
  await clients.order({ kind: 'connect', url: server.url, tokens: crowd.tokens.slice(sockets, listeners) })
  options.log(`${listeners} listeners connected, the last ${listeners - sockets} in ${formatMs(now() - startedAt)}`)
  await sleep(STATISTICS_MS)
  const full = await server.measure()
  const collected = await server.measure({ collects: true })
  const places = [crowd, alone]
  const beating = await Promise.all(places.map((place) => rest(place, idleMs)))
  await Promise.all(places.map((place) => place.clients.order({ kind: 'beat', isOn: false })))
  const silent = await Promise.all(places.map((place) => rest(place, Math.min(idleMs, SILENT_MS))))
  await Promise.all(places.map((place) => place.clients.order({ kind: 'beat', isOn: true })))
  options.log(`${listeners} listeners: waking one at a time`)
  const wakes = await wakeOneByOne(bench, listeners)
  const all = await wakeAll(crowd, listeners)
  const each = (bytes: number) => bytes / 1024 / listeners
  const memory = {
    rss: each(full.rss - empty.rss),
    collected: each(collected.rss - empty.rss),
    heap: each(collected.heap - empty.heap),
  }
  return [
    memoryRow(listeners, memory),
    restRow(listeners, silent, beating),
    wakeRow(listeners, wakes),
    stallRow(listeners, all),
  ]
}

interface Times {
  /** Of each: send called → frame, and published → frame, in ms. */
  call: number[]
  publish: number[]
}

/** One of the many and the one alone, in turns. */
async function wakeOneByOne(
  { crowd, alone, wakes }: Bench,
  listeners: number,
): Promise<{ crowd: Times; alone: Times }> {
  const places = { crowd, alone }
  const times = { crowd: { call: [], publish: [] } as Times, alone: { call: [], publish: [] } as Times }
  for (let index = 0; index < wakes; index++) {
    for (const side of orderOf(['crowd', 'alone'] as const, index)) {
      const to = side === 'alone' ? 0 : Math.floor((index * listeners) / wakes)
      const { call, publish } = await wakeOne(places[side], to, index % SENDERS)
      times[side].call.push(call)
      times[side].publish.push(publish)
      await sleep(WAKE_EVERY_MS)
    }
  }
  return times
}

/**
 * From the request's start to the frame in the other process (`call`) it is: HTTP, the token, the message's statement with its
 * commit; then the server publishes the wake; then the frame, and at the same time the answer to the sender.
 */
async function wakeOne({ server, clients, names, senders }: Place, to: number, from: number) {
  await server.measure()
  const name = names[to] as string
  const startedAt = now()
  const woken = clients.order({ kind: 'collect', wakes: 1, timeoutMs: WAKE_TIMEOUT_MS })
  const [{ wakesAt }] = await Promise.all([woken, send(server.url, senders[from] as string, name)])
  const { published } = await server.measure()
  if (published.length !== 1) throw new Error(`${published.length} wakes published, not one`)
  if (wakesAt.length !== 1) throw new Error(`${name} was woken ${wakesAt.length} times, not once`)
  const [wokenAt = Number.NaN] = wakesAt
  return { call: wokenAt - startedAt, publish: wokenAt - (published[0]?.at ?? Number.NaN) }
}

async function send(url: string, token: string, to: string): Promise<void> {
  const response = await fetch(new URL('/api/messages', url), {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ to, content: 'wake up' }),
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`not sent: HTTP ${response.status} ${text}`)
}

/** Rows of one transaction that no server has announced: the read-back finds all of them at once, as after an outage. */
async function wakeAll({ server, clients, admin, namespaceId, names }: Place, listeners: number) {
  await server.measure({ watches: true })
  const woken = clients.order({ kind: 'collect', wakes: listeners, timeoutMs: WAKE_TIMEOUT_MS })
  await admin`
    with sender as (
      select id, namespace_uuid, name from patchcord.agents where namespace_uuid = ${namespaceId} limit 1
    ), body as (
      insert into patchcord.message_bodies (from_namespace_uuid, from_agent_uuid, content)
      select namespace_uuid, id, 'all' from sender returning id
    ), message as (
      insert into patchcord.agent_messages (id, from_namespace_uuid, to_namespace_uuid, from_agent_uuid, to_agent_uuid,
        namespace_id, from_agent, to_agent, kind, urgency, wake_at)
      select body.id, sender.namespace_uuid, a.namespace_uuid, sender.id, a.id, 'crowd', sender.name, a.name, 'report', 'normal',
        clock_timestamp()
      from body, sender, patchcord.agents a
      where a.namespace_uuid = ${namespaceId} and a.name = any (${names.slice(0, listeners)})
      returning id, to_agent_uuid, from_agent_uuid, wake_at
    )
    insert into patchcord.deliveries (message_id, to_agent_uuid, from_agent_uuid, wake_at) select * from message`
  const { wakesAt } = await woken
  if (wakesAt.length !== listeners) throw new Error(`${wakesAt.length} wakes came to ${listeners} listeners`)
  return { spreadMs: Math.max(...wakesAt) - Math.min(...wakesAt), usage: await server.measure() }
}

const ALONE = { ratio: null, target: null, isMet: null }

/** In kB for each listener. */
function memoryRow(listeners: number, memory: { rss: number; collected: number; heap: number }): Row {
  const target = TARGETS.kilobytesEach
  return {
    part: 'd',
    what: `${listeners} idle listeners: RSS of the server for each, kB`,
    measured: memory.rss.toFixed(1),
    against: `after a garbage collection: ${memory.collected.toFixed(1)}`,
    ratio: null,
    target,
    isMet: meets(memory.rss, target),
    data: memory,
  }
}

/** Without heartbeats nobody speaks: what the servers do then must not depend on how many listen. */
function restRow(listeners: number, [silent, silentAlone]: Rest[], [beating, beatingAlone]: Rest[]): Row {
  const describe = (rest?: Rest, beat?: Rest) =>
    `${rest?.cpuMsPerSecond.toFixed(1)} ms CPU a second (${beat?.cpuMsPerSecond.toFixed(1)} with heartbeats), ` +
    `${beat?.transactionsPerMinute.toFixed(0)} transactions a minute, ${beat?.timers} timers`
  return {
    part: 'd',
    what: `${listeners} idle listeners: the server at rest`,
    measured: describe(silent, beating),
    against: `one listener: ${describe(silentAlone, beatingAlone)}`,
    ...ALONE,
    data: { silent, silentAlone, beating, beatingAlone },
  }
}

function wakeRow(listeners: number, { crowd, alone }: { crowd: Times; alone: Times }): Row {
  const [measured, against] = [median(crowd.call), median(alone.call)]
  const p99 = (times: number[]) => percentile(times, 0.99)
  const data = {
    publishP50: [median(crowd.publish), median(alone.publish)],
    publishP99: [p99(crowd.publish), p99(alone.publish)],
    callP99: [p99(crowd.call), p99(alone.call)],
  }
  return {
    part: 'd',
    what: `${listeners} idle listeners: send called → frame at one of them, p50`,
    measured: formatMs(measured),
    against: `a listener alone: ${formatMs(against)}`,
    ...ALONE,
    ratio: ratioOf(measured, against),
    data,
  }
}

function stallRow(listeners: number, { spreadMs, usage }: { spreadMs: number; usage: Usage }): Row {
  const target = TARGETS.stallMs
  return {
    part: 'd',
    what: `${listeners} listeners woken at once: longest work without a pause, ms`,
    measured: usage.busyMs.toFixed(0),
    against: `first to last frame: ${formatMs(spreadMs)}`,
    ...ALONE,
    target,
    isMet: meets(usage.busyMs, target),
    data: { spreadMs, stallMs: usage.stallMs, busyMs: usage.busyMs },
  }
}

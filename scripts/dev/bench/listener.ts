import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { createAgents, withOperator } from '../../../test/helpers/loss.ts'
import { type ListenerOptions, spawnListener, startServer, stopChild } from '../../../test/helpers/processes.ts'
import { createApi } from '../../lib/api.mjs'
import { TIMES } from '../../lib/config.cjs'
import { runSession } from '../../lib/session.mjs'
import { readCpuMs, readMemory, requireLinux } from './proc.ts'
import { type BenchOptions, formatMs, median, meets, orderOf, type Row, ratioOf } from './row.ts'

/**
 * Part e: what a listener costs its machine, beside bare Node (`node -e 0`, kept alive and telling when it is ready) and beside the
 * least that a Node process with TLS could, `node -e "require('node:tls')"`. Linux only (/proc).
 *
 * A listener has started when it has read its configuration and names its server, which is its first line. From there to
 * `connected` it loads what speaks to the server while the server answers, three round trips one after the other; what these
 * take a client that is warm is measured, too, as no listener can be faster.
 */

/** Written by the least that writes at once. */
const READY = "require('node:fs').writeSync(1,'ready\\n');setInterval(()=>{},1<<30)"
const BARE = { node: `0;${READY}`, tls: `require('node:tls');${READY}` }
/** After this much rest what the start needed has been given back or stays. */
const REST_MS = 2_000
/** V8 tidies up some seconds after the last work, once. */
const IDLE_AFTER_MS = 20_000
const TARGETS = { rss: '≤ 1.2', start: '≤ 1.5', idleMsPerMinute: '≤ 60' }
const WARM_ROUNDS = 20
const START_TIMEOUT_MS = 30_000

type Kind = 'ours' | 'node' | 'tls'
const KINDS: readonly Kind[] = ['ours', 'node', 'tls']

interface Sample {
  /** To the first line of its own. */
  firstLineMs: number
  /** To what it is for: connected, or ready. */
  startMs: number
  /** Of the start: time on a CPU, which other processes disturb less than the clock. */
  startCpuMs: number
  rssKb: number
  anonymousKb: number
}

interface Running {
  pid: number
  firstLineMs: number
  startMs: number
  stop(): Promise<unknown>
}

export async function measure(options: BenchOptions): Promise<Row[]> {
  requireLinux()
  const { folder, isQuick, log, onEnd } = options
  const dataDir = await mkdtemp(join(folder, 'patchcord-bench-listener-'))
  onEnd(() => rm(dataDir, { recursive: true, force: true, maxRetries: 3 }))
  const server = await startServer({ dataDir })
  onEnd(() => server.stop())
  const token = (await createAgents(dataDir, 'cost', ['listener'])).get('listener') as string
  const home = join(dataDir, 'home')
  await mkdir(home, { mode: 0o700 })
  const start = (kind: Kind) =>
    kind === 'ours' ? startOurs({ url: server.url, token, home }, onEnd) : startBare(kind, onEnd)
  const warmMs = await measureWarmClient(server.url, token)
  const samples = await compare(isQuick ? 2 : 15, start, log)
  return [...describe(samples, warmMs), ...(await watchIdle(isQuick ? 5 : 60, dataDir, start, log))]
}

async function startOurs(options: ListenerOptions, onEnd: BenchOptions['onEnd']): Promise<Running> {
  const startedAt = performance.now()
  const { pid, onLog, ended, stop } = spawnListener(options)
  onEnd(stop)
  let firstLineMs: number | null = null
  let last = ''
  await new Promise<void>((resolve, reject) => {
    onLog((line) => {
      firstLineMs ??= performance.now() - startedAt
      last = line
      if (line === 'subscribe: connected') resolve()
    })
    ended.then((code) => reject(new Error(`the listener ended with ${code}: ${last}`)))
    AbortSignal.timeout(START_TIMEOUT_MS).addEventListener('abort', () =>
      reject(new Error(`the listener did not connect: ${last}`)),
    )
  })
  return { pid, firstLineMs: firstLineMs ?? Number.NaN, startMs: performance.now() - startedAt, stop }
}

async function startBare(kind: keyof typeof BARE, onEnd: BenchOptions['onEnd']): Promise<Running> {
  const startedAt = performance.now()
  const child = spawn(process.execPath, ['-e', BARE[kind]], { stdio: ['ignore', 'pipe', 'inherit'], env: {} })
  const stop = () => stopChild(child)
  onEnd(stop)
  await once(child.stdout, 'data', { signal: AbortSignal.timeout(START_TIMEOUT_MS) })
  const startMs = performance.now() - startedAt
  return { pid: child.pid as number, firstLineMs: startMs, startMs, stop }
}

/** All in turn, so that what else the machine does meets all alike. */
async function compare(rounds: number, start: (kind: Kind) => Promise<Running>, log: BenchOptions['log']) {
  const samples: Record<Kind, Sample[]> = { ours: [], node: [], tls: [] }
  // What the first of each kind reads is in no cache yet.
  for (const kind of KINDS) await (await start(kind)).stop()
  for (let round = 0; round < rounds; round++) {
    for (const kind of orderOf(KINDS, round)) samples[kind].push(await measureOne(() => start(kind)))
    if ((round + 1) % 5 === 0) log(`${round + 1} of ${rounds} rounds`)
  }
  return samples
}

async function measureOne(start: () => Promise<Running>): Promise<Sample> {
  const { pid, firstLineMs, startMs, stop } = await start()
  const startCpuMs = await readCpuMs(pid)
  await sleep(REST_MS)
  const memory = await readMemory(pid)
  await stop()
  return { firstLineMs, startMs, startCpuMs, ...memory }
}

/** Ticket, handshake and join by a client that has done it before, in ms. */
async function measureWarmClient(url: string, token: string): Promise<number> {
  const api = createApi({ base: url, token, timeoutMs: TIMES.httpMs })
  const samples: number[] = []
  for (let round = 0; round < WARM_ROUNDS; round++) {
    const startedAt = performance.now()
    const stopping = new AbortController()
    const events = {
      log: () => {},
      onJoined: () => stopping.abort(),
      onSystem: () => {},
      onMessage: () => {},
      getTicket: api.getTicket,
    }
    await runSession(await api.getTicket(), events, TIMES, stopping.signal)
    if (!stopping.signal.aborted) throw new Error('the server refuses a warm client')
    samples.push(performance.now() - startedAt)
  }
  api.close()
  return median(samples.slice(WARM_ROUNDS / 2))
}

function describe(samples: Record<Kind, Sample[]>, warmMs: number): Row[] {
  const row = (what: string, kind: 'node' | 'tls', key: keyof Sample, target: string | null): Row => {
    const ratio = median(
      samples.ours.map((ours, round) => ratioOf(ours[key], samples[kind][round]?.[key] ?? Number.NaN)),
    )
    const [measured, against] = [samples.ours, samples[kind]].map((all) => median(all.map((sample) => sample[key])))
    const format = (value = Number.NaN) => (key.endsWith('Kb') ? `${(value / 1024).toFixed(1)} MB` : formatMs(value))
    const name = kind === 'node' ? 'node -e 0' : 'node -e "require(\'node:tls\')"'
    const isMet = target === null ? null : meets(ratio, target)
    return {
      part: 'e',
      what,
      measured: format(measured),
      against: `${name}: ${format(against)}`,
      ratio,
      target,
      isMet,
      data: {},
    }
  }
  const connected = row(
    `a listener: start → connected (a warm client takes ${formatMs(warmMs)})`,
    'node',
    'startMs',
    null,
  )
  return [
    { ...row('a listener: RSS at rest', 'node', 'rssKb', null), data: { samples } },
    row('a listener: RSS at rest', 'tls', 'rssKb', TARGETS.rss),
    row('a listener: of it not shared', 'node', 'anonymousKb', null),
    row('a listener: start → first line', 'node', 'firstLineMs', null),
    row('a listener: start → first line', 'tls', 'firstLineMs', TARGETS.start),
    { ...connected, data: { warmMs } },
    row('a listener: CPU until connected', 'node', 'startCpuMs', null),
  ]
}

/** CPU of a listener and of bare Node, alive side by side, after they have come to rest; and what the listener asks of the database. */
async function watchIdle(
  seconds: number,
  dataDir: string,
  start: (kind: Kind) => Promise<Running>,
  log: BenchOptions['log'],
): Promise<Row[]> {
  log(`resting for ${(IDLE_AFTER_MS / 1_000 + seconds) * 2} s`)
  const before = await countTransactions(dataDir, seconds)
  const running = [await start('ours'), await start('node')]
  await sleep(IDLE_AFTER_MS)
  const cpuBefore = await Promise.all(running.map(({ pid }) => readCpuMs(pid)))
  const during = await countTransactions(dataDir, seconds)
  const cpuAfter = await Promise.all(running.map(({ pid }) => readCpuMs(pid)))
  for (const { stop } of running) await stop()
  const [ours = Number.NaN, bare = Number.NaN] = cpuAfter.map(
    (ms, index) => ((ms - (cpuBefore[index] ?? 0)) / seconds) * 60,
  )
  const target = TARGETS.idleMsPerMinute
  const alone = { part: 'e', ratio: null }
  return [
    {
      ...alone,
      what: 'a listener at rest: CPU in a minute, ms',
      measured: ours.toFixed(1),
      against: `node -e 0, kept alive: ${bare.toFixed(1)}`,
      target,
      isMet: meets(ours, target),
      data: { seconds },
    },
    {
      ...alone,
      what: 'a listener at rest: transactions of its server in a minute',
      measured: during.toFixed(0),
      against: `without a listener: ${before.toFixed(0)}`,
      target: null,
      isMet: null,
      data: { seconds },
    },
  ]
}

/** In a minute, after Postgres has had the time to count what came before. */
async function countTransactions(dataDir: string, seconds: number): Promise<number> {
  return await withOperator(dataDir, async (admin) => {
    const count = async () => {
      const [row] = await admin`
        select (xact_commit + xact_rollback)::int as count from pg_stat_database where datname = current_database()`
      return row?.count as number
    }
    const before = await count()
    await sleep(seconds * 1_000)
    return (((await count()) - before) / seconds) * 60
  })
}

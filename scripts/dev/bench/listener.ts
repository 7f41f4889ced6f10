import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { createAgents } from '../../test/helpers/loss.ts'
import {
  createTemporaryFolder,
  type ListenerOptions,
  spawnListener,
  startServer,
  stopChild,
} from '../../test/helpers/processes.ts'
import { createApi } from '../lib/api.mjs'
import { TIMES } from '../lib/config.cjs'
import { runSession } from '../lib/session.mjs'

/**
 * `npm run bench:listener -- [--rounds 15] [--idle-seconds 60]`: what a listener costs the machine beside the least that a Node
 * process with TLS could, `node -e "require('node:tls')"`, kept alive and telling when it is ready. Linux only (/proc).
 *
 * A listener has started when it has read its configuration and names its server, which is its first line. From there to
 * `connected` it loads what speaks to the server while the server answers, three round trips one after the other; what these
 * take a client that is warm is measured, too, as no listener can be faster.
 */

const BARE = "require('node:tls');require('node:fs').writeSync(1,'ready\\n');setInterval(()=>{},1<<30)"
const ONLY_BARE = "require('node:tls')"
/** After this much rest what the start needed has been given back or stays. */
const REST_MS = 2_000
/** V8 tidies up some seconds after the last work, once. */
const IDLE_AFTER_MS = 20_000
const RSS_TARGET = 1.2
const START_TARGET = 1.5
const WARM_ROUNDS = 20
/** Linux counts CPU in these; sysconf(_SC_CLK_TCK) is 100 wherever Node runs. */
const TICK_MS = 10
const TICKS_TARGET_PER_SECOND = 0.1

interface Sample {
  /** To the first line of its own. */
  firstLineMs: number
  /** To what it is for: connected, or ready. */
  startMs: number
  /** Of the start: time on a CPU, which other processes disturb less than the clock. */
  startCpuMs: number
  rssKb: number
  /** Of it what is not a file's, that is, not shared with other processes of Node. */
  anonymousKb: number
}

interface Running {
  pid: number
  firstLineMs: number
  startMs: number
  stop(): Promise<unknown>
}

async function main(): Promise<void> {
  if (process.platform !== 'linux') throw new Error('this measurement reads /proc, which only Linux has')
  const { values } = parseArgs({ options: { rounds: { type: 'string' }, 'idle-seconds': { type: 'string' } } })
  const rounds = Number(values.rounds ?? 15)
  const idleSeconds = Number(values['idle-seconds'] ?? 60)
  const folder = await createTemporaryFolder()
  const cleanup: (() => Promise<unknown>)[] = [folder.remove]
  try {
    const dataDir = join(folder.path, 'data')
    const server = await startServer({ dataDir })
    cleanup.push(() => server.stop())
    const token = (await createAgents(dataDir, 'cost', ['listener'])).get('listener') as string
    const home = join(folder.path, 'home')
    await mkdir(home, { mode: 0o700 })
    const startOurs = () => startConnected({ url: server.url, token, home })
    const serverMs = await measureServer(server.url, token)
    await compare(rounds, startOurs, serverMs)
    await watchIdle(idleSeconds, startOurs)
  } finally {
    for (const step of cleanup.reverse()) await step()
  }
}

async function startConnected(options: ListenerOptions): Promise<Running> {
  const startedAt = performance.now()
  const { pid, onLog, ended, stop } = spawnListener(options)
  let firstLineMs: number | null = null
  await new Promise<void>((resolve, reject) => {
    onLog((line) => {
      firstLineMs ??= performance.now() - startedAt
      if (line === 'subscribe: connected') resolve()
    })
    ended.then((code) => reject(new Error(`the listener ended with ${code}`)))
  })
  return { pid, firstLineMs: firstLineMs ?? 0, startMs: performance.now() - startedAt, stop }
}

/** Both in turn, the first of a round changing, so that what else the machine does meets both alike. */
async function compare(rounds: number, startOurs: () => Promise<Running>, serverMs: number): Promise<void> {
  const ours: Sample[] = []
  const bare: Sample[] = []
  const exits: number[] = []
  // What the first of each kind reads is in no cache yet.
  for (const start of [startOurs, startBare]) await measure(start)
  for (let round = 0; round < rounds; round++) {
    const turns = [
      async () => void ours.push(await measure(startOurs)),
      async () => void bare.push(await measure(startBare)),
      async () => void exits.push(await runBare()),
    ]
    for (const turn of round % 2 === 0 ? turns : turns.reverse()) await turn()
  }
  console.log(`${rounds} rounds, Node ${process.version}; medians, in brackets least to most`)
  const rss = report('RSS at rest', 'kB', ours, bare, 'rssKb', RSS_TARGET)
  report('  of it anonymous', 'kB', ours, bare, 'anonymousKb', null)
  const start = report('start to the first line', 'ms', ours, bare, 'firstLineMs', START_TARGET)
  report('start to connected', 'ms', ours, bare, 'startMs', null)
  const own = findMedian(ours.map(({ startMs }) => startMs)) - serverMs
  const toReady = own / findMedian(bare.map(({ startMs }) => startMs))
  console.log(
    `  without the ${serverMs.toFixed(0)} ms that a warm client needs for the same: ratio ${toReady.toFixed(2)}`,
  )
  report('  CPU of the start', 'ms', ours, bare, 'startCpuMs', null)
  const toExit = findMedian(ours.map(({ firstLineMs }) => firstLineMs)) / findMedian(exits)
  console.log(
    `node -e "${ONLY_BARE}" to its exit: ${describe(exits)} ms; start to the first line is ${toExit.toFixed(2)} of it`,
  )
  if (!rss || !start) process.exitCode = 1
}

/** Ticket, handshake and join by a client that has done it before, in ms. */
async function measureServer(url: string, token: string): Promise<number> {
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
  return findMedian(samples.slice(WARM_ROUNDS / 2))
}

async function measure(start: () => Promise<Running>): Promise<Sample> {
  const running = await start()
  const { ms: startCpuMs } = await readCpu(running.pid)
  await sleep(REST_MS)
  const { rssKb, anonymousKb } = await readMemory(running.pid)
  await running.stop()
  const { firstLineMs, startMs } = running
  return { firstLineMs, startMs, startCpuMs, rssKb, anonymousKb }
}

async function startBare(): Promise<Running> {
  const startedAt = performance.now()
  const child = spawnNode(BARE)
  await once(child.stdout as NodeJS.ReadableStream, 'data')
  const startMs = performance.now() - startedAt
  return { pid: child.pid as number, firstLineMs: startMs, startMs, stop: () => stopChild(child) }
}

/** To the letter: until it has ended, in ms. */
async function runBare(): Promise<number> {
  const startedAt = performance.now()
  await once(spawnNode(ONLY_BARE), 'exit')
  return performance.now() - startedAt
}

function spawnNode(code: string): ChildProcess {
  return spawn(process.execPath, ['-e', code], { stdio: ['ignore', 'pipe', 'pipe'], env: {} })
}

async function readMemory(pid: number): Promise<{ rssKb: number; anonymousKb: number }> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  const read = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1])
  return { rssKb: read('VmRSS'), anonymousKb: read('RssAnon') }
}

/** CPU of both, alive side by side, after they have come to rest. */
async function watchIdle(seconds: number, startOurs: () => Promise<Running>): Promise<void> {
  const running = [await startOurs(), await startBare()]
  await sleep(IDLE_AFTER_MS)
  const before = await Promise.all(running.map(({ pid }) => readCpu(pid)))
  await sleep(seconds * 1_000)
  const after = await Promise.all(running.map(({ pid }) => readCpu(pid)))
  for (const { stop } of running) await stop()
  const [ours, bare] = after.map((cpu, index) => ({
    ticks: cpu.ticks - (before[index]?.ticks ?? 0),
    ms: cpu.ms - (before[index]?.ms ?? 0),
  }))
  if (!ours || !bare) return
  const isMet = ours.ticks <= seconds * TICKS_TARGET_PER_SECOND
  console.log(
    `CPU in ${seconds} s of rest: listener ${ours.ticks} ticks of ${TICK_MS} ms (${ours.ms.toFixed(1)} ms by the scheduler), ` +
      `bare ${bare.ticks} (${bare.ms.toFixed(1)} ms); target at most one tick in 10 s: ${isMet ? 'met' : 'MISSED'}`,
  )
  if (!isMet) process.exitCode = 1
}

/** proc(5): utime and stime, fields 14 and 15 of stat, in ticks; and the time on a CPU of every thread, in ns, of schedstat. */
async function readCpu(pid: number): Promise<{ ticks: number; ms: number }> {
  const stat = await readFile(`/proc/${pid}/stat`, 'latin1')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const threads = await readdir(`/proc/${pid}/task`)
  const times = await Promise.all(
    threads.map(async (thread) =>
      Number((await readFile(`/proc/${pid}/task/${thread}/schedstat`, 'utf8')).split(' ')[0]),
    ),
  )
  return { ticks: Number(fields[11]) + Number(fields[12]), ms: times.reduce((sum, ns) => sum + ns, 0) / 1e6 }
}

/** @returns whether the target is met */
function report(
  what: string,
  unit: string,
  ours: Sample[],
  bare: Sample[],
  key: keyof Sample,
  target: number | null,
): boolean {
  const [listener, other] = [ours, bare].map((samples) => samples.map((sample) => sample[key]))
  if (!listener || !other) return false
  const ratio = findMedian(listener) / findMedian(other)
  const isMet = target === null || ratio <= target
  const verdict = target === null ? '' : `, target ${target}: ${isMet ? 'met' : 'MISSED'}`
  console.log(`${what}: listener ${describe(listener)} ${unit}, bare ${describe(other)} ${unit}`)
  console.log(`  ratio ${ratio.toFixed(2)}${verdict}`)
  return isMet
}

function describe(values: number[]): string {
  return `${findMedian(values).toFixed(0)} [${Math.min(...values).toFixed(0)} to ${Math.max(...values).toFixed(0)}]`
}

function findMedian(values: number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  return ((sorted[Math.floor((sorted.length - 1) / 2)] ?? 0) + (sorted[Math.ceil((sorted.length - 1) / 2)] ?? 0)) / 2
}

await main().catch((error: unknown) => {
  console.error(error instanceof Error ? (error.stack ?? error.message) : error)
  process.exitCode = 1
})

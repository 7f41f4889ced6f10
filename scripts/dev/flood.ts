import { fork } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { cpus, loadavg } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { createAgents } from '../../test/helpers/loss.ts'
import { createTemporaryFolder, startServer, stopChild } from '../../test/helpers/processes.ts'
import { KINDS, type Kind, type Order, type Tally } from './flood/attacker.ts'
import { Honest, type Sends } from './flood/honest.ts'

/**
 * `npm run flood [-- --seconds 14 --only rate,slow --json]`: what floods do to the others. The built server with its default limits on
 * an embedded Postgres; idle phases (half as long) and floods by turns, at last all floods at once, while honest agents send. Exit 1 when their
 * p99 during a flood is above RATIO_MAX times the median of the idle ones, a send of theirs fails, or memory grows past
 * GROWTH_MAX_MB. Linux only, for the server's memory.
 */

const RATIO_MAX = 3
const GROWTH_MAX_MB = 256
const PAIRS = 60
/** One in 1.5 s each: three quarters of it out of the burst, which lasts for this run. */
const SENDS_PER_SECOND = 40
const WARM_UP_MS = 8_000
const WARM_UP_WAITS = 300
const REST_MS = 1_500
/** Of the honest senders' own process, which does little: no flood does that to it. */
const STALL_MS = 500
const RUNS_MAX = 3
const RUNS = Array.from({ length: RUNS_MAX }, (_, index) => index + 1)
const MEMORY_EVERY_MS = 100
const NAMESPACE = 'flood'
const ATTACKER = fileURLToPath(new URL('flood/attacker.ts', import.meta.url))

interface Options {
  ms: number
  kinds: Kind[]
  isJson: boolean
}

interface Phase {
  name: string
  kinds: Kind[]
}

interface Result extends Phase {
  sends: number
  refused: Sends['refused']
  p50: number
  p99: number
  most: number
  /** How late the honest senders' own process was, p99. */
  lateP99: number
  lateMost: number
  rssMaxMb: number
  serverCpuPercent: number
  tallies: Record<string, Tally>
}

interface Stage {
  server: { url: string; pid: number }
  honest: Honest
  tokens: Map<string, string>
  options: Options
  log(line: string): void
}

function readOptions(): Options {
  const { values } = parseArgs({
    options: {
      seconds: { type: 'string', default: '14' },
      only: { type: 'string', default: KINDS.join(',') },
      json: { type: 'boolean', default: false },
    },
  })
  const kinds = values.only.split(',').filter((name): name is Kind => (KINDS as readonly string[]).includes(name))
  if (kinds.length !== values.only.split(',').length) throw new Error(`--only takes some of ${KINDS.join(', ')}`)
  const ms = Number(values.seconds) * 1_000
  if (!(ms > 0)) throw new Error('--seconds takes a number above 0')
  return { ms, kinds, isJson: values.json }
}

/** Idle first and before each flood; a flood of everything comes last. */
function planPhases(kinds: Kind[]): Phase[] {
  const floods: Phase[] = kinds.map((kind) => ({ name: kind, kinds: [kind] }))
  if (kinds.length > 1) floods.push({ name: 'all at once', kinds })
  return floods.flatMap((flood) => [{ name: 'idle', kinds: [] }, flood])
}

/** A token may be banned by a flood, so each flood has one of its own. */
const nameAttacker = (phase: number, kind: Kind, run: number) => `attacker-${phase}-${kind}-${run}`

async function main(): Promise<void> {
  const options = readOptions()
  const log = (line: string) => process.stderr.write(`${line}\n`)
  const phases = planPhases(options.kinds)
  const folder = await createTemporaryFolder()
  const closers: (() => Promise<unknown>)[] = [folder.remove]
  try {
    const server = await startServer({ dataDir: folder.path })
    closers.push(() => server.stop())
    const pairs = Array.from({ length: PAIRS }, (_, index) => ({ from: `honest-${index}`, to: `reader-${index}` }))
    const attackers = phases.flatMap(({ kinds }, index) =>
      kinds.flatMap((kind) => RUNS.map((run) => nameAttacker(index, kind, run))),
    )
    const names = [...pairs.flatMap(({ from, to }) => [from, to]), ...attackers, 'victim']
    const tokens = await createAgents(folder.path, NAMESPACE, names)
    const honest = new Honest(
      server.url,
      pairs.map(({ from, to }) => ({ token: tokens.get(from) as string, to })),
    )
    closers.push(async () => honest.close())
    log(`${cpus().length} processors, load ${loadavg()[0]?.toFixed(2)}, Node ${process.version}; warming up`)
    await honest.wait(WARM_UP_WAITS)
    await honest.send(WARM_UP_MS, SENDS_PER_SECOND)
    const results: Result[] = []
    for (const [index, phase] of phases.entries()) {
      results.push(await runUndisturbed({ server, honest, tokens, options, log }, phase, index))
    }
    process.exitCode = report(results, options, log)
  } finally {
    for (const close of closers.reverse()) await close()
  }
}

/** A virtual machine may stand still for seconds, with everything in it: such a phase says nothing, and is run again. */
async function runUndisturbed(stage: Stage, phase: Phase, index: number): Promise<Result> {
  for (let run = 1; ; run++) {
    const result = await runPhase(stage, phase, index, run)
    if (result.lateMost < STALL_MS || run === RUNS_MAX) return result
    stage.log(`${phase.name}: again, the machine stood still for ${Math.round(result.lateMost)} ms`)
  }
}

async function runPhase(stage: Stage, phase: Phase, index: number, run: number): Promise<Result> {
  const { server, honest, options } = stage
  await sleep(REST_MS)
  const memory = watchMemory(server.pid)
  const cpuBefore = readCpuMs(server.pid)
  const flood = startFlood(stage, phase, index, run)
  const ms = phase.kinds.length > 0 ? options.ms : options.ms / 2
  const sends = await honest.send(ms, SENDS_PER_SECOND)
  const cpuMs = readCpuMs(server.pid) - cpuBefore
  const tallies = await flood
  const result: Result = {
    ...phase,
    sends: sends.ms.length,
    refused: sends.refused,
    p50: percentile(sends.ms, 0.5),
    p99: percentile(sends.ms, 0.99),
    most: percentile(sends.ms, 1),
    lateP99: percentile(sends.lateMs, 0.99),
    lateMost: percentile(sends.lateMs, 1),
    rssMaxMb: memory.stop(),
    serverCpuPercent: (cpuMs / ms) * 100,
    tallies,
  }
  stage.log(`${phase.name}: ${result.sends} sends, p99 ${result.p99.toFixed(1)} ms, server ${result.rssMaxMb} MB`)
  return result
}

async function startFlood({ server, tokens, options }: Stage, { kinds }: Phase, index: number, run: number) {
  if (kinds.length === 0) return {}
  const orders: Order[] = kinds.map((kind) => {
    const token = tokens.get(nameAttacker(index, kind, run)) as string
    return { kind, url: server.url, token, to: 'victim', ms: options.ms }
  })
  const child = fork(ATTACKER)
  try {
    child.send(orders)
    const [tallies] = (await Promise.race([
      once(child, 'message'),
      once(child, 'exit').then(() => Promise.reject(new Error('the flooding process ended'))),
    ])) as [Tally[]]
    return Object.fromEntries(kinds.map((kind, at) => [kind, tallies[at] as Tally]))
  } finally {
    await stopChild(child)
  }
}

function watchMemory(pid: number): { stop(): number } {
  let most = readRssMb(pid)
  const timer = setInterval(() => {
    most = Math.max(most, readRssMb(pid))
  }, MEMORY_EVERY_MS)
  return {
    stop() {
      clearInterval(timer)
      return most
    },
  }
}

function readRssMb(pid: number): number {
  return Math.round(Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024)
}

/** User and system time; the kernel counts in hundredths of a second. */
function readCpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? []
  return (Number(fields[11]) + Number(fields[12])) * 10
}

/** Nearest rank. */
function percentile(values: number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN
}

/** The median of the idle phases, since each holds few sends and the machine is not always as idle. */
function idleP99(results: Result[]): number {
  return percentile(
    results.filter(({ kinds }) => kinds.length === 0).map(({ p99 }) => p99),
    0.5,
  )
}

function report(results: Result[], { isJson }: Options, log: (line: string) => void): number {
  const idle = idleP99(results)
  const rssAtStart = results[0]?.rssMaxMb ?? Number.NaN
  const rows = results.map((result) => ({
    ...result,
    ratio: result.p99 / idle,
    growthMb: result.rssMaxMb - rssAtStart,
  }))
  const broken = rows.flatMap(({ name, kinds, ratio, growthMb, refused }) => [
    ...(kinds.length > 0 && !(ratio <= RATIO_MAX) ? [`${name}: p99 is ${ratio.toFixed(1)} times the idle one`] : []),
    ...(growthMb > GROWTH_MAX_MB ? [`${name}: the server grew by ${growthMb} MB`] : []),
    ...(Object.keys(refused).length > 0 ? [`${name}: honest sends failed: ${JSON.stringify(refused)}`] : []),
  ])
  if (isJson) console.log(JSON.stringify({ idleP99: idle, load: loadavg(), broken, rows }))
  else {
    console.log('phase          sends     p50     p99    most   ratio   late99  RSS MB  growth  CPU %')
    for (const row of rows) console.log(describeRow(row))
    for (const { name, tallies } of rows) {
      for (const [kind, tally] of Object.entries(tallies)) console.log(describeTally(name, kind, tally))
    }
  }
  for (const line of broken) log(`limit broken: ${line}`)
  return broken.length > 0 ? 1 : 0
}

function describeRow(row: Result & { ratio: number; growthMb: number }): string {
  const decimals = [row.p50, row.p99, row.most, row.ratio, row.lateP99].map((value) => value.toFixed(1).padStart(8))
  const whole = [row.rssMaxMb, row.growthMb, Math.round(row.serverCpuPercent)].map((value) => String(value).padStart(8))
  return `${row.name.padEnd(12)}${String(row.sends).padStart(8)}${[...decimals, ...whole].join('')}`
}

function describeTally(phase: string, kind: string, { sent, bytes, outcomes }: Tally): string {
  const answers = Object.entries(outcomes).map(([outcome, count]) => `${outcome} × ${count}`)
  const size = bytes > 0 ? `, ${Math.round(bytes / 1024 / 1024)} MB written` : ''
  return `${phase}${phase === kind ? '' : `, ${kind}`}: ${sent} sent${size}; ${answers.join(', ') || 'no answers'}`
}

await main()

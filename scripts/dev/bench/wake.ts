import { type ChildProcess, fork, spawn } from 'node:child_process'
import { mkdir } from 'node:fs/promises'
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { createAgents, withOperator } from '../../../test/helpers/loss.ts'
import { startListener, stopChild, untilWakeable } from '../../../test/helpers/processes.ts'
import { answerOf, type MeasuredServer, now, startMeasuredServer } from './measured-server.ts'
import { type BenchOptions, formatMs, median, meets, orderOf, percentile, type Row, ratioOf } from './row.ts'

/**
 * Part b: how long a wake takes until its line stands on a listener's stdout. The built server and real listeners, each a process,
 * against the least that the same road can cost: a bare server that stores one row in the same Postgres just as durably, sends a
 * frame over `ws` to a bare Node process that prints one line, and answers. Both are asked and read by the same code.
 *
 * The time counts from the commit on both sides: from when the server's process knows of it. That is sooner than the answer to
 * the sender, which a line may well overtake, so that no ratio can be made of what comes after the answer.
 */

const FLOOR = fileURLToPath(new URL('wake-floor.mjs', import.meta.url))
const LINE = 'PATCHCORD: 1 new from sender'
const TARGETS = { p50: '≤ 1.5', p99: '≤ 2.5' }
const LINE_TIMEOUT_MS = 10_000
/** A listener that is connected has a first look to take, and V8 some tidying to do. */
const SETTLE_MS = 3_000
const WARM_UP_ROUNDS = 3
/** What a side does after its line is over by then: a listener tells the server after 100 ms that it has announced a message. */
const REST_MS = { ours: 160, floor: 60 }
/** A listener prints ten lines at will and then one in 2 s. Asked for more it would hold lines back, and be measured for it. */
const ROUND_MS = 2_200

type Side = keyof typeof REST_MS
const SIDES: readonly Side[] = ['ours', 'floor']

/** When each was, in ms of the machine's clock. */
interface Wake {
  calledAt: number
  committedAt: number
  answeredAt: number
  lineAt: number
}

/** One of the two servers, and who listens to it. */
interface Road {
  url: string
  token: string
  /** By the name of the agent. */
  listeners: Map<string, Lines>
  http: Agent
}

interface Lines {
  /** `at` is performance.now(). */
  onLine(tell: (text: string, at: number) => void): void
}

interface Scene {
  names: string[]
  server: MeasuredServer
  roads: Record<Side, Road>
}

export async function measure(options: BenchOptions): Promise<Row[]> {
  const { isQuick, log } = options
  const rounds = isQuick ? 5 : 60
  const scene = await openScene(options, isQuick ? 3 : 10)
  const listeners = scene.names.length
  log(`${listeners} listeners of each kind are connected`)
  await sleep(SETTLE_MS)
  for (let round = 0; round < WARM_UP_ROUNDS; round++) await measureRound(scene, round)
  const wakes: Record<Side, Wake[][]> = { ours: [], floor: [] }
  for (let round = 0; round < rounds; round++) {
    const found = await measureRound(scene, round)
    for (const side of SIDES) wakes[side].push(found[side])
    if ((round + 1) % 10 === 0) log(`${(round + 1) * listeners} of ${rounds * listeners} pairs`)
  }
  return report(wakes)
}

async function openScene(options: BenchOptions, listeners: number): Promise<Scene> {
  const { onEnd } = options
  const names = Array.from({ length: listeners }, (_, index) => `listener-${index + 1}`)
  const server = await startMeasuredServer(options)
  const tokens = await createAgents(server.dataDir, 'bench', ['sender', ...names])
  const floorUrl = await startFloor(server, onEnd)
  const [ours, floor] = [new Map<string, Lines>(), new Map<string, Lines>()]
  for (const name of names) {
    const home = join(server.dataDir, `home-${name}`)
    ours.set(name, await startOurs(server.url, tokens.get(name) as string, home, onEnd))
    floor.set(name, await startBare(`${floorUrl.replace('http', 'ws')}/${name}`, onEnd))
  }
  const road = (url: string, on: Map<string, Lines>): Road => {
    const http = new Agent({ keepAlive: true })
    onEnd(() => http.destroy())
    return { url, token: tokens.get('sender') as string, listeners: on, http }
  }
  return { names, server, roads: { ours: road(`${server.url}/api/messages`, ours), floor: road(floorUrl, floor) } }
}

async function startOurs(url: string, token: string, home: string, onEnd: BenchOptions['onEnd']): Promise<Lines> {
  await mkdir(home, { mode: 0o700 })
  const listener = await startListener({ url, token, home })
  onEnd(() => listener.stop())
  await untilWakeable(url, token)
  return listener
}

/** In the database of the Patchcord server, in a table of its own with a key like that of a message. */
async function startFloor({ dataDir, target }: MeasuredServer, onEnd: BenchOptions['onEnd']): Promise<string> {
  await withOperator(dataDir, async (admin) => {
    await admin`create schema bench`
    await admin`
      create table bench.floor (id uuid primary key default gen_random_uuid(), to_agent text not null, content text not null,
        created_at timestamptz not null default now())`
  })
  const child = fork(FLOOR, ['server'], { execArgv: [] })
  onEnd(() => stopChild(child))
  child.send(target)
  const [port] = await answerOf(child)
  return `http://127.0.0.1:${port}`
}

/** Once it is connected, which its first line says. */
async function startBare(url: string, onEnd: BenchOptions['onEnd']): Promise<Lines> {
  const child = spawn(process.execPath, [FLOOR, 'listener', url], { stdio: ['ignore', 'pipe', 'inherit'] })
  onEnd(() => stopChild(child))
  const lines = readLines(child)
  await untilLine(lines, 'connected', 'a bare listener')
  return lines
}

/** As those of a real listener are read. */
function readLines(child: ChildProcess): Lines {
  const tellers: ((text: string, at: number) => void)[] = []
  createInterface({ input: child.stdout as NodeJS.ReadableStream }).on('line', (text) => {
    const at = performance.now()
    for (const tell of tellers) tell(text, at)
  })
  return { onLine: (tell) => tellers.push(tell) }
}

/** One wake of each listener, both kinds in turns, at a pace at which no listener holds back a line. */
async function measureRound({ names, server, roads }: Scene, round: number): Promise<Record<Side, Wake[]>> {
  const startedAt = performance.now()
  const wakes: Record<Side, Wake[]> = { ours: [], floor: [] }
  await server.measure()
  for (const [index, name] of names.entries()) {
    for (const side of orderOf(SIDES, round + index)) {
      wakes[side].push(await wakeOnce(roads[side], name))
      // Not in step with anybody's timers.
      await sleep(REST_MS[side] + Math.random() * 10)
    }
  }
  const { published } = await server.measure()
  if (published.length !== names.length) throw new Error(`${published.length} wakes published, not ${names.length}`)
  const ours = wakes.ours.map((wake, index) => ({ ...wake, committedAt: published[index]?.at as number }))
  await sleep(Math.max(0, ROUND_MS - (performance.now() - startedAt)))
  return { ...wakes, ours }
}

async function wakeOnce(road: Road, name: string): Promise<Wake> {
  const woken = untilLine(road.listeners.get(name) as Lines, LINE, `${name} of ${road.url}`)
  // Where the send fails, that is the error, and the line need not come.
  woken.catch(() => {})
  const calledAt = now()
  const { answeredAt, committedAt } = await send(
    road,
    JSON.stringify({ to: name, content: 'Wake up.', kind: 'report' }),
  )
  return { calledAt, committedAt, answeredAt, lineAt: await woken }
}

/** When the next line comes, which must be this one. */
function untilLine(lines: Lines, expected: string, who: string): Promise<number> {
  return new Promise((resolve, reject) => {
    let isOver = false
    const late = () => reject(new Error(`no line "${expected}" from ${who} in ${LINE_TIMEOUT_MS} ms`))
    const timer = setTimeout(late, LINE_TIMEOUT_MS)
    lines.onLine((text, at) => {
      if (isOver) return
      isOver = true
      clearTimeout(timer)
      if (text === expected) resolve(at + (now() - performance.now()))
      else reject(new Error(`${who} said "${text}", not "${expected}"`))
    })
  })
}

/** When the whole answer had come, and what the floor says of its commit. `fetch` would add to either side. */
function send({ url, token, http }: Road, body: string): Promise<{ answeredAt: number; committedAt: number }> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
    const call = request(url, { method: 'POST', agent: http, headers, timeout: LINE_TIMEOUT_MS }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk
      })
      response.on('end', () => {
        const answeredAt = now()
        if (response.statusCode !== 201) reject(new Error(`a send was refused with ${response.statusCode}: ${text}`))
        else resolve({ answeredAt, committedAt: Number(JSON.parse(text).committedAt) })
      })
    })
    call.on('error', reject).on('timeout', () => call.destroy(new Error('a send was not answered')))
    call.end(body)
  })
}

type Span = [from: keyof Wake, to: keyof Wake]
const SPANS = {
  wake: ['committedAt', 'lineAt'],
  call: ['calledAt', 'lineAt'],
  answer: ['answeredAt', 'lineAt'],
} as const
const LEAST = 'one ws frame and one line of bare Node'

function report(wakes: Record<Side, Wake[][]>): Row[] {
  const flat = { ours: wakes.ours.flat(), floor: wakes.floor.flat() }
  const rank = (side: Side, [from, to]: Readonly<Span>, share: number) =>
    percentile(
      flat[side].map((wake) => wake[to] - wake[from]),
      share,
    )
  const row = (what: string, least: string, span: Readonly<Span>, share: number): Row => {
    const [measured, against] = [rank('ours', span, share), rank('floor', span, share)]
    const alone = { ratio: null, target: null, isMet: null, data: { measured, against } }
    return { part: 'b', what, measured: formatMs(measured), against: `${least}: ${formatMs(against)}`, ...alone }
  }
  const p50 = median(wakes.ours.map((_, round) => ratioOfRound(wakes, round)))
  const p99 = ratioOf(rank('ours', SPANS.wake, 0.99), rank('floor', SPANS.wake, 0.99))
  const callP50 = ratioOf(rank('ours', SPANS.call, 0.5), rank('floor', SPANS.call, 0.5))
  const pairs = flat.ours.length
  return [
    { ...row(`committed → line of a listener, p50 of ${pairs}`, LEAST, SPANS.wake, 0.5), ...judge(p50, TARGETS.p50) },
    { ...row(`committed → line of a listener, p99 of ${pairs}`, LEAST, SPANS.wake, 0.99), ...judge(p99, TARGETS.p99) },
    row('send answered → line (below 0: the line came first), p50', 'the same', SPANS.answer, 0.5),
    row('send answered → line, p99', 'the same', SPANS.answer, 0.99),
    { ...row('send called → line, p50', `one INSERT, ${LEAST}`, SPANS.call, 0.5), ratio: callP50 },
  ]
}

function ratioOfRound(wakes: Record<Side, Wake[][]>, round: number): number {
  const [ours, floor] = SIDES.map((side) =>
    median((wakes[side][round] ?? []).map((wake) => wake.lineAt - wake.committedAt)),
  )
  return ratioOf(ours as number, floor as number)
}

function judge(ratio: number, target: string): Pick<Row, 'ratio' | 'target' | 'isMet'> {
  return { ratio, target, isMet: meets(ratio, target) }
}

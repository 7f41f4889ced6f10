import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type ConnectionTarget, connect } from '../../../server/db/connect.ts'
import { startEmbedded } from '../../../server/db/embedded/index.ts'
import { REVISION, toolCall } from '../../../test/helpers/mcp.ts'
import { stopChild } from '../../../test/helpers/processes.ts'
import { seed } from '../../../test/helpers/seed.ts'
import { BenchConnection, type Request, toBytes } from './http-client.ts'
import type { ServerOrder } from './mcp-server.ts'
import { type BenchOptions, type MeasurePart, median, meets, orderOf, type Row } from './row.ts'

/**
 * Part c: what MCP costs. The tool `inbox` on an empty inbox, in both eras, against a bare Fastify route with the same query as
 * JSON. Each server is a process of its own with a pool of its own on the same Postgres; each caller has a token and a
 * connection of its own, which is kept alive.
 */

const VARIANTS = ['2025-11-25', REVISION, 'once', 'twice'] as const
type Variant = (typeof VARIANTS)[number]
const TARGETS = { '2025-11-25': '≥ 0.4', [REVISION]: '≥ 0.25' } as const
const CALLERS = [1, 8]
const ROUND_MS = 500
const SERVER = fileURLToPath(new URL('mcp-server.ts', import.meta.url))

interface Caller {
  connection: BenchConnection
  bytes: Buffer
}

export const measure: MeasurePart = async (options) => {
  const dataDir = await mkdtemp(join(options.folder, 'patchcord-bench-mcp-'))
  const embedded = await startEmbedded({ dataDir, log: () => {} })
  options.onEnd(() => rm(dataDir, { recursive: true, force: true }))
  options.onEnd(() => embedded.stop())
  const tokens = await seedTokens(embedded)
  const start = (kind: ServerOrder['kind']) => startServer({ kind, target: embedded.api }, options)
  const [patchcord, bare] = await Promise.all([start('patchcord'), start('bare')])
  const rows: Row[] = []
  for (const callers of CALLERS) {
    rows.push(...(await measureAt(callers, { patchcord, bare, tokens: tokens.slice(0, callers) }, options)))
  }
  return rows
}

async function seedTokens(targets: { admin: ConnectionTarget; api: ConnectionTarget }): Promise<string[]> {
  const admin = connect(targets.admin, { max: 1, applicationName: 'bench' })
  try {
    const names = Array.from({ length: Math.max(...CALLERS) }, (_, index) => `agent-${index}`)
    return Object.values(await seed({ admin, api: admin }, 'bench', names)).map(({ token }) => token)
  } finally {
    await admin.end()
  }
}

async function startServer(order: ServerOrder, { onEnd }: BenchOptions): Promise<URL> {
  const child = fork(SERVER, [JSON.stringify(order)], { execArgv: ['--import', 'tsx'] })
  onEnd(() => stopChild(child))
  const [url] = await Promise.race([once(child, 'message'), once(child, 'exit')])
  if (typeof url !== 'string') throw new Error(`the ${order.kind} server ended before it listened`)
  return new URL(url)
}

interface Stage {
  patchcord: URL
  bare: URL
  tokens: string[]
}

async function measureAt(callers: number, stage: Stage, options: BenchOptions): Promise<Row[]> {
  const sides = new Map<Variant, Caller[]>()
  try {
    for (const variant of VARIANTS) sides.set(variant, await openCallers(variant, stage))
    const rounds = options.isQuick ? 2 : 30
    const perSecond = new Map<Variant, number[]>(VARIANTS.map((variant) => [variant, []]))
    // Round -1 warms both servers up.
    for (let round = -1; round < rounds; round++) {
      for (const variant of orderOf(VARIANTS, round + 1)) {
        const rate = await ask(sides.get(variant) ?? [], round < 0 && !options.isQuick ? 4 * ROUND_MS : ROUND_MS)
        if (round >= 0) perSecond.get(variant)?.push(rate)
      }
    }
    options.log(`${callers} callers: ${VARIANTS.map((each) => `${each} ${show(perSecond.get(each))}`).join(', ')}`)
    return (Object.keys(TARGETS) as (keyof typeof TARGETS)[]).map((era) => toRow(era, callers, perSecond))
  } finally {
    for (const each of [...sides.values()].flat()) each.connection.close()
  }
}

async function openCallers(variant: Variant, { patchcord, bare, tokens }: Stage): Promise<Caller[]> {
  const isBare = variant === 'once' || variant === 'twice'
  const url = isBare ? bare : patchcord
  return await Promise.all(
    tokens.map(async (token) => {
      const request = isBare ? { path: `/${variant}`, headers: {}, body: '{}' } : toMcpRequest(variant)
      const headers = { authorization: `Bearer ${token}`, ...request.headers }
      const connection = await BenchConnection.open(url)
      const bytes = toBytes(url, { ...request, headers })
      const answer = await connection.ask(bytes)
      if (!/\b0 new, 0 open, 0 deferred|"counts":\s*\{/.test(answer)) throw new Error(`this is no inbox: ${answer}`)
      return { connection, bytes }
    }),
  )
}

/** As clients send it. The 2025 era without `initialize`: the server keeps no session, and no client asks for one per call. */
function toMcpRequest(variant: keyof typeof TARGETS): Request {
  const { body, headers } = toolCall(variant === REVISION ? 'modern' : 'legacy', 1, 'inbox', {})
  return {
    path: '/mcp',
    headers: { accept: 'application/json, text/event-stream', 'user-agent': 'bench', ...headers },
    body: JSON.stringify(body),
  }
}

/** Answers in a second. */
async function ask(callers: Caller[], ms: number): Promise<number> {
  const start = performance.now()
  const counts = await Promise.all(
    callers.map(async ({ connection, bytes }) => {
      let count = 0
      for (; performance.now() - start < ms; count++) await connection.ask(bytes)
      return count
    }),
  )
  return counts.reduce((sum, count) => sum + count, 0) / ((performance.now() - start) / 1_000)
}

function toRow(era: keyof typeof TARGETS, callers: number, perSecond: Map<Variant, number[]>): Row {
  const of = (variant: Variant) => perSecond.get(variant) ?? []
  const over = (variant: Variant) => median(of(era).map((rate, round) => rate / (of(variant)[round] ?? Number.NaN)))
  const ratio = over('once')
  const target = TARGETS[era]
  return {
    part: 'c',
    what: `MCP inbox, empty, ${era}, ${callers} ${callers === 1 ? 'caller' : 'callers'}`,
    measured: `${show(of(era))} answers/s`,
    against: `a bare Fastify route with the same query, which finds the token itself: ${show(of('once'))}/s (with a look-up of the token before it, as ours: ${show(of('twice'))}/s, ratio ${over('twice').toFixed(2)})`,
    ratio,
    target,
    isMet: meets(ratio, target),
    data: { era, callers, perSecond: Object.fromEntries(perSecond), ratioToTwice: over('twice') },
  }
}

function show(rates: number[] = []): string {
  return median(rates).toFixed(0)
}

import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { createAgents, fetchNew, findFreePort, OPEN_LIMITS, withOperator } from '../../test/helpers/loss.ts'
import { createTemporaryFolder } from '../../test/helpers/processes.ts'
import { Ledger } from './ledger.ts'
import { createRandom, type Figures, type Run, SoakListener, SoakServer, sendSteadily } from './soak-actors.ts'

/**
 * `npm run soak -- --minutes 30 [--seed N] [--listeners 4]`: a server and listeners as real processes, killed at random on
 * either side (SIGKILL and SIGTERM) under a steady flow of messages. About once a minute all of it comes to rest: every
 * accepted message must be in its inbox exactly once and announced as the listener promises (see ledger.ts). Exit 1 on any loss.
 * The seed decides who sends what to whom, who is killed when and how; how these meet is up to the machine.
 */

const ACTIVE_MS = 50_000
/** A reconnect may wait 30 s and a report of announced ids as long again. */
const SETTLE_TIMEOUT_MS = 120_000
/** Longer than the rate of lines can hold back a line that should not come. */
const LINGER_MS = 2_600
const POLL_MS = 100
const PROBLEMS_SHOWN = 20
const NAMESPACE = 'soak'

interface Arguments {
  minutes: number
  seed: number
  listeners: number
}

interface Totals {
  missed: number
  doubled: number
  lost: number
}

interface Stage extends Run {
  dataDir: string
  url: string
  server: SoakServer
  listeners: SoakListener[]
  /** One round's traffic and kills: each resolves after the signal, when all is answered and runs again. */
  disturb(signal: AbortSignal, failed: AbortSignal): Promise<void>[]
}

function readArguments(): Arguments {
  const { values } = parseArgs({
    options: { minutes: { type: 'string' }, seed: { type: 'string' }, listeners: { type: 'string' } },
  })
  const minutes = Number(values.minutes ?? 30)
  const seed = Number(values.seed ?? Math.floor(Math.random() * 1_000_000))
  const listeners = Number(values.listeners ?? 4)
  if (!(minutes > 0)) throw new Error('--minutes takes a number above 0, for example --minutes 30')
  if (!Number.isInteger(seed)) throw new Error('--seed takes a whole number')
  if (!Number.isInteger(listeners) || listeners < 1) throw new Error('--listeners takes a whole number from 1')
  return { minutes, seed, listeners }
}

function createFigures(): Figures {
  return {
    accepted: 0,
    deliveries: 0,
    repeated: 0,
    serverKilled: 0,
    serverTerminated: 0,
    listenerKilled: 0,
    listenerTerminated: 0,
    reconnects: 0,
    refreshes: 0,
    lines: 0,
  }
}

async function main(): Promise<void> {
  const options = readArguments()
  const cleanup: (() => Promise<unknown>)[] = []
  const failing = new AbortController()
  // Ctrl-C reaches our processes, too: nothing can come to rest any more.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => failing.abort(new Error(`stopped by ${signal}`)))
  }
  try {
    const stage = await prepare(options, cleanup)
    const isWhole = await soak(stage, options.minutes, failing)
    if (!isWhole) process.exitCode = 1
  } finally {
    for (const step of cleanup.reverse()) await step()
  }
}

async function prepare({ seed, listeners: count }: Arguments, cleanup: (() => Promise<unknown>)[]): Promise<Stage> {
  const folder = await createTemporaryFolder()
  cleanup.push(folder.remove)
  const dataDir = join(folder.path, 'data')
  const place = { dataDir, port: await findFreePort(), env: { PATCHCORD_LIMITS: OPEN_LIMITS } }
  const receivers = Array.from({ length: count }, (_, index) => `receiver${index}`)
  const senders = Array.from({ length: count }, (_, index) => `sender${index}`)
  const run: Run = { ledger: new Ledger(receivers), figures: createFigures(), problems: [] }
  const server = new SoakServer(place, run, createRandom(seed, 'server'))
  const url = await server.start()
  cleanup.push(() => server.stop('SIGTERM'))
  const tokens = await createAgents(dataDir, NAMESPACE, [...receivers, ...senders])
  const agents = (names: string[]) => names.map((name) => ({ name, token: tokens.get(name) as string }))
  const listeners = agents(receivers).map((agent, index) => {
    return new SoakListener(agent, url, folder.path, index % 2 === 1, run, createRandom(seed, agent.name))
  })
  const traffics = agents(senders).map((sender) => {
    return { sender, recipients: receivers, url, random: createRandom(seed, sender.name) }
  })
  for (const listener of listeners) {
    await listener.start()
    cleanup.push(() => listener.stop('SIGTERM'))
  }
  console.log(`Soak: seed ${seed}, ${count} listeners, ${count} senders, PATCHCORD_LIMITS ${OPEN_LIMITS}`)
  const disturb = (signal: AbortSignal, failed: AbortSignal) => [
    server.disturb(signal),
    // The first listener meets kills of the server only: its life is as long as the run.
    ...listeners.slice(1).map((listener) => listener.disturb(signal)),
    ...traffics.map((traffic) => sendSteadily(traffic, run, signal, failed)),
  ]
  return { ...run, dataDir, url, server, listeners, disturb }
}

/** @returns whether nothing was lost, missed or doubled and nobody ended by himself */
async function soak(stage: Stage, minutes: number, failing: AbortController): Promise<boolean> {
  const startedAt = performance.now()
  const totals: Totals = { missed: 0, doubled: 0, lost: 0 }
  const elapsedMs = () => performance.now() - startedAt
  let before = { ...stage.figures }
  while (elapsedMs() < minutes * 60_000) {
    const activeMs = Math.min(ACTIVE_MS, Math.max(5_000, minutes * 60_000 - elapsedMs()))
    await disturbFor(stage, activeMs, failing)
    const settleMs = await settle(stage)
    const verdict = await checkWindow(stage)
    for (const name of ['missed', 'doubled', 'lost'] as const) totals[name] += verdict[name]
    console.log(`${formatTime(elapsedMs())}  ${describe(before, stage.figures)}  ${describeTotals(verdict)}`, settleMs)
    before = { ...stage.figures }
    for (const problem of stage.problems.slice(-PROBLEMS_SHOWN)) console.log(`PROBLEM: ${problem}`)
    if (totals.missed + totals.doubled + totals.lost + stage.problems.length > 0) break
  }
  totals.lost += await countUnlike(stage)
  const kept = describe(createFigures(), stage.figures)
  console.log(`Soak of ${(elapsedMs() / 60_000).toFixed(1)} min: ${kept}  ${describeTotals(totals)}`)
  return totals.missed + totals.doubled + totals.lost + stage.problems.length === 0
}

/** When one fails the others end, too, so that what they have started can be stopped. */
async function disturbFor(stage: Stage, ms: number, failing: AbortController): Promise<void> {
  failing.signal.throwIfAborted()
  const ending = new AbortController()
  const end = () => ending.abort()
  const timer = setTimeout(end, ms)
  failing.signal.addEventListener('abort', end)
  const actors = stage.disturb(ending.signal, failing.signal)
  await Promise.all(actors.map((actor) => actor.catch((error: unknown) => failing.abort(error))))
  failing.signal.removeEventListener('abort', end)
  clearTimeout(timer)
  failing.signal.throwIfAborted()
}

/** Waits until every listener has announced everything; what then is not announced is missed. */
async function settle({ ledger, listeners, dataDir }: Stage): Promise<string> {
  const startedAt = performance.now()
  const isOver = () => performance.now() - startedAt > SETTLE_TIMEOUT_MS
  while (!listeners.every(({ name }) => ledger.isSettled(name)) && !isOver()) await sleep(POLL_MS)
  const announcedMs = performance.now() - startedAt
  for (const { name, log } of listeners) if (!ledger.isSettled(name)) console.log(`${name} is not settled:\n${log}`)
  await sleep(LINGER_MS)
  // Line counts name nobody. What the listeners report by id must be all of them, too.
  while ((await countUnreported(dataDir)) > 0 && !isOver()) await sleep(POLL_MS)
  return `(at rest after ${(announcedMs / 1000).toFixed(1)} s)`
}

async function countUnreported(dataDir: string): Promise<number> {
  return await withOperator(dataDir, async (admin) => {
    const [row] = await admin`select count(*)::int as count from patchcord.deliveries where notified_at is null`
    return row?.count as number
  })
}

/** Reads the inboxes and ends the window. */
async function checkWindow({ ledger, listeners, url, dataDir, problems }: Stage): Promise<Totals> {
  let lost = 0
  const unreported = await countUnreported(dataDir)
  if (unreported > 0) problems.push(`${unreported} announcements were not reported with a lease`)
  for (const { name, token } of listeners) {
    const found = await fetchNew(url, token)
    const expected = ledger.listNew(name)
    const ids = new Set(found)
    const gone = expected.filter((id) => !ids.has(id))
    lost += gone.length
    const strange = found.length - (expected.length - gone.length)
    if (strange > 0) problems.push(`${name}'s inbox shows ${strange} messages more than were accepted`)
  }
  return { ...ledger.close(), lost }
}

/** At the end the database must hold every delivery of the run, each of them done. */
async function countUnlike({ dataDir, figures }: Stage): Promise<number> {
  return await withOperator(dataDir, async (admin) => {
    const [row] = await admin`
      select count(*) filter (where d.state = 'done' and b.content <> '')::int as count
      from patchcord.deliveries d join patchcord.message_bodies b on b.id = d.message_id`
    return Math.abs((row?.count as number) - figures.deliveries)
  })
}

function describe(before: Figures, after: Figures): string {
  const grown = (name: keyof Figures) => after[name] - before[name]
  return [
    `messages ${grown('accepted')} (deliveries ${grown('deliveries')}, tries without an answer ${grown('repeated')})`,
    `server kills ${grown('serverKilled')} KILL ${grown('serverTerminated')} TERM`,
    `listener kills ${grown('listenerKilled')} KILL ${grown('listenerTerminated')} TERM`,
    `reconnects ${grown('reconnects')}, refreshes ${grown('refreshes')}, lines ${grown('lines')}`,
  ].join(' · ')
}

function describeTotals({ missed, doubled, lost }: Totals): string {
  return `missed ${missed}, doubled ${doubled}, lost ${lost}`
}

function formatTime(ms: number): string {
  const seconds = Math.round(ms / 1000)
  return `${String(Math.floor(seconds / 60)).padStart(2, '0')}:${String(seconds % 60).padStart(2, '0')}`
}

await main().catch((error: unknown) => {
  console.error(error instanceof Error ? (error.stack ?? error.message) : error)
  process.exitCode = 1
})

import { setMaxListeners } from 'node:events'
import { createRandom } from '../soak-actors.ts'
import type { Kind } from './kinds.ts'
import { findLeftovers } from './leftovers.ts'
import { createVerdict, isWrong, type Verdict } from './model.ts'
import { judgeAll, settle } from './rest.ts'
import { Schedule } from './schedule.ts'
import { type Stage, setStage } from './stage.ts'
import { keepFetching, keepLooking, keepSending, type Traffic } from './traffic.ts'

/** One run: rounds of faults under traffic, each followed by rest and judgement, until the time is over or something is wrong. */

const ROUND_MS = 60_000
const ROUND_MS_MIN = 10_000
/** A slow machine gets more time for as many faults. */
const OVERTIME = 4
/** A send that has no answer by then, though nothing is broken any more, never gets one. */
const ANSWERED_MS_MAX = 60_000

export interface RunOptions {
  seed: number
  minutes: number
  /** And until each kind has happened so often, in up to four times the minutes. */
  each: number
  agents: number
  kinds: Kind[]
  log(line: string): void
  /** Ends the run early. */
  stopped: AbortSignal
}

export interface Report {
  minutes: number
  faults: Map<string, number>
  /** In ms, by kind. */
  spentMs: Map<string, number>
  counts: Traffic['counts']
  verdict: Verdict
}

export async function runFaults(options: RunOptions): Promise<Report> {
  const steps: (() => Promise<unknown>)[] = []
  const before = process.getActiveResourcesInfo()
  const verdict = createVerdict()
  const report: Report = { minutes: 0, faults: new Map(), spentMs: new Map(), counts: createCounts(), verdict }
  let stage: Stage | null = null
  try {
    stage = await setStage({ ...options, keep: (step) => steps.push(step) })
    await runRounds(stage, options, report)
  } catch (error) {
    // What was counted until then is told all the same.
    verdict.words.push(String((error as Error).stack))
  } finally {
    for (const step of steps.reverse()) {
      await step().catch((error: unknown) => verdict.words.push(`while stopping: ${(error as Error).stack}`))
    }
  }
  verdict.words.push(...(stage?.problems ?? []), ...(await findLeftovers(stage?.folder ?? null, before)))
  return report
}

function createCounts(): Traffic['counts'] {
  return { messages: 0, deliveries: 0, repeated: 0, fetches: 0, lostFetches: 0 }
}

async function runRounds(stage: Stage, options: RunOptions, report: Report): Promise<void> {
  const { seed, minutes, each, kinds, log, stopped } = options
  const startedAt = performance.now()
  const elapsedMs = () => performance.now() - startedAt
  const schedule = new Schedule(kinds, stage, seed)
  report.faults = schedule.counts
  report.spentMs = schedule.spentMs
  const play = createPlay(stage, report.counts, seed)
  const endMs = minutes * 60_000
  const isEnough = () => [...schedule.counts.values()].every((count) => count >= each) || elapsedMs() > OVERTIME * endMs
  while ((elapsedMs() < endMs || !isEnough()) && !isWrong(report.verdict)) {
    const left = endMs - elapsedMs()
    await breakAndHeal(schedule, play, Math.min(ROUND_MS, Math.max(ROUND_MS_MIN, left)), stopped)
    const settleMs = await settle(stage)
    add(report.verdict, await judgeAll(stage))
    report.minutes = elapsedMs() / 60_000
    const { messages, deliveries, repeated } = report.counts
    log(
      `${report.minutes.toFixed(1)} min: ${schedule.total} faults, ${messages} messages, ${deliveries} deliveries, ` +
        `${repeated} repeated; ${describe(report.verdict)} (at rest after ${(settleMs / 1000).toFixed(1)} s)`,
    )
    stopped.throwIfAborted()
  }
}

type Play = (signal: AbortSignal, failed: AbortSignal) => Promise<void>[]

function createPlay(stage: Stage, counts: Traffic['counts'], seed: number): Play {
  const traffic = { model: stage.model, counts }
  const names = stage.agents.map(({ name }) => name)
  const players = stage.agents.map(({ name, clients, isQuiet }) => ({
    isQuiet,
    others: names.filter((other) => other !== name),
    sender: { name, clients, random: createRandom(seed, `${name} sends`) },
    reader: { name, clients, random: createRandom(seed, `${name} reads`) },
    looker: { name, clients, random: createRandom(seed, `${name} looks`) },
  }))
  return (signal, failed) =>
    players.flatMap(({ isQuiet, others, sender, reader, looker }) => [
      keepLooking(looker, signal),
      keepSending(traffic, sender, others, signal, failed),
      ...(isQuiet ? [] : [keepFetching(traffic, reader, signal, failed)]),
    ])
}

/** Faults for this long, then everything is whole again and every send has its answer. */
async function breakAndHeal(schedule: Schedule, play: Play, ms: number, stopped: AbortSignal): Promise<void> {
  const ending = new AbortController()
  const end = () => ending.abort()
  const roundTimer = setTimeout(end, ms)
  stopped.addEventListener('abort', end)
  const endingTraffic = new AbortController()
  const failing = new AbortController()
  // Every sender and reader waits for it.
  setMaxListeners(0, endingTraffic.signal)
  const traffic = Promise.all(play(endingTraffic.signal, failing.signal))
  traffic.catch(() => undefined)
  try {
    await schedule.run(ending.signal)
  } finally {
    clearTimeout(roundTimer)
    stopped.removeEventListener('abort', end)
    endingTraffic.abort()
  }
  const timer = setTimeout(
    () => failing.abort(new Error('a send has no answer, though nothing is broken')),
    ANSWERED_MS_MAX,
  )
  await traffic
  clearTimeout(timer)
}

function add(sum: Verdict, more: Verdict): void {
  for (const count of ['lost', 'doubled', 'missed', 'forged'] as const) sum[count] += more[count]
  sum.words.push(...more.words)
}

export function describe({ lost, doubled, missed, forged }: Verdict): string {
  return `lost ${lost}, doubled ${doubled}, missed ${missed}, forged ${forged}`
}

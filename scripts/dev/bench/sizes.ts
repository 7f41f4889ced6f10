import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { connect, type Sql } from '../../../server/db/connect.ts'
import { type Embedded, startEmbedded } from '../../../server/db/embedded/index.ts'
import type { Scope } from '../../../server/db/scope.ts'
import { listAgents } from '../../../server/domain/agents.ts'
import { getMessageStatus } from '../../../server/domain/delivery.ts'
import { fetchInbox, fetchNextMessage, peekNew } from '../../../server/domain/inbox.ts'
import { recallMessages, replyToMessage, sendMessage } from '../../../server/domain/messages.ts'
import { DEFAULT_LIMITS, type SeededAgent, seed } from '../../../test/helpers/seed.ts'
import { type BenchOptions, type MeasurePart, median, meets, orderOf, type Row } from './row.ts'
import { AGENTS, agentNames, fill, GENERAL, MAIN, namespaceNames, TOPIC, WORKERS } from './sizes-fill.ts'

/**
 * What a call costs in a database of 1,000 messages, 100,000 and a million: each size has a database of its own in one Postgres,
 * and each round measures all of them in turns. One caller; everything was read before, so the answers come from memory.
 */

const TARGET = '≤ 1.3'
/** Calls of each kind in a round. */
const CALLS = 4
const WARM_UP_ROUNDS = 3
const NEW_MESSAGES = 5
/** Where the smallest size has no more: a page is as long at each of them. */
const FEW = 2
/** Raised openly: this is about what a call costs, not about limits. */
const LIMITS = { sendBurst: 1_000_000, sendPerSecond: 1_000_000, newPerRecipientMax: DEFAULT_LIMITS.newPerRecipientMax }

interface Stage {
  size: number
  admin: Sql
  /** Agents that act, the first half of them with messages open and deferred. */
  workers: SeededAgent[]
  /** Agents that are written to. */
  others: SeededAgent[]
  /** For each worker its latest settled messages, newest first. */
  settled: string[][]
  /** For each worker one that is open; only the first half of them has one. */
  open: string[]
  /** What this benchmark has sent and not settled yet. */
  sent: string[]
}

interface Call {
  what: string
  hasTarget: boolean
  /** Before the calls of a round, not measured. */
  prepare?(stage: Stage): Promise<unknown>
  run(stage: Stage, index: number): Promise<unknown>
  /** After the calls of a round, not measured: puts things back. */
  restore?(stage: Stage): Promise<unknown>
}

const worker = ({ workers }: Stage, index: number) => workers[index % WORKERS] as SeededAgent
const busy = ({ workers }: Stage, index: number) => workers[index % (WORKERS / 2)] as SeededAgent
const idle = ({ workers }: Stage, index: number) => workers[WORKERS / 2 + (index % (WORKERS / 2))] as SeededAgent
const recall = (stage: Stage, index: number, input: Parameters<typeof recallMessages>[1]) =>
  worker(stage, index)((scope) => recallMessages(scope, input))

const CALLS_OF: Call[] = [
  {
    what: 'send',
    hasTarget: true,
    run: async (stage, index) => {
      const to = stage.others[index % stage.others.length] as SeededAgent
      const send = (scope: Scope) => sendMessage(scope, { to: to.agent, content: 'The migration is done on staging.' })
      stage.sent.push((await worker(stage, index)(send)).message_id)
    },
    restore: settleSent,
  },
  {
    what: 'inbox, nothing in it',
    hasTarget: true,
    run: (stage, index) => idle(stage, index)((scope) => fetchInbox(scope, {})),
  },
  {
    what: 'inbox, 3 open and 3 deferred',
    hasTarget: true,
    run: (stage, index) => busy(stage, index)((scope) => fetchInbox(scope, {})),
  },
  {
    what: `inbox, ${NEW_MESSAGES} new`,
    hasTarget: true,
    prepare: async (stage) => await moveSettled(stage, 'new'),
    run: (stage, index) => idle(stage, index)((scope) => fetchInbox(scope, {})),
    restore: async (stage) => await moveSettled(stage, 'done'),
  },
  { what: 'recall, newest', hasTarget: true, run: (stage, index) => recall(stage, index, {}) },
  {
    what: 'recall, from one who writes often',
    hasTarget: true,
    run: (stage, index) => recall(stage, index, { from: (stage.others[0] as SeededAgent).agent, limit: FEW }),
  },
  {
    what: 'recall, from one who wrote little',
    hasTarget: true,
    run: (stage, index) => recall(stage, index, { from: agentNames()[AGENTS - 1] as string }),
  },
  {
    what: 'recall, a thread',
    hasTarget: true,
    run: (stage, index) => recall(stage, index, { thread: TOPIC, limit: FEW }),
  },
  {
    what: 'recall, a thread that grows with the size',
    hasTarget: true,
    run: (stage, index) => recall(stage, index, { thread: GENERAL }),
  },
  {
    what: 'recall, one message',
    hasTarget: true,
    run: (stage, index) => recall(stage, index, { message_id: stage.settled[index % WORKERS]?.[0] as string }),
  },
  { what: 'count of new messages', hasTarget: false, run: (stage, index) => busy(stage, index)(peekNew) },
  {
    what: 'wait, first look',
    hasTarget: false,
    run: (stage, index) => busy(stage, index)((scope) => fetchNextMessage(scope, {})),
  },
  {
    what: 'message_status',
    hasTarget: false,
    run: (stage, index) => {
      const id = stage.settled[index % WORKERS]?.[0] as string
      return worker(stage, index)((scope) => getMessageStatus(scope, { message_id: id }))
    },
  },
  {
    what: 'list_agents',
    hasTarget: false,
    run: (stage, index) => worker(stage, index)((scope) => listAgents(scope, {})),
  },
  {
    what: 'reply',
    hasTarget: false,
    run: async (stage, index) => {
      const place = index % (WORKERS / 2)
      const about = { message_id: stage.open[place] as string, content: 'Thanks, it works.' }
      const { sent } = await busy(stage, place)((scope) => replyToMessage(scope, about))
      if (sent) stage.sent.push(sent.message_id)
    },
    restore: async (stage) => {
      await settleSent(stage)
      await stage.admin`
        update patchcord.deliveries set state = 'open', answered_at = null, settled_at = null
        where message_id = any (${stage.open}::uuid[]) and state = 'answered'
          and to_agent_uuid = any (${stage.workers.map(({ agentId }) => agentId)}::uuid[])`
    },
  },
]

export const measure: MeasurePart = async (options) => {
  const sizes = options.isQuick ? [1_000, 10_000] : [1_000, 100_000, 1_000_000, ...(options.isHuge ? [10_000_000] : [])]
  const dataDir = await mkdtemp(join(options.folder, 'patchcord-sizes-'))
  const embedded = await startEmbedded({ dataDir, log: () => {}, settings: { max_wal_size: '4GB' } })
  options.onEnd(() => rm(dataDir, { recursive: true, force: true }))
  options.onEnd(() => embedded.stop())
  const open = (target: Parameters<typeof connect>[0]) => {
    const pool = connect(target, { max: 1, applicationName: 'bench-sizes' })
    options.onEnd(() => pool.end({ timeout: 1 }))
    return pool
  }
  const stages: Stage[] = []
  for (const size of sizes) stages.push(await stageOf(embedded, size, open, options))
  return await measureAll(stages, options)
}

async function stageOf(
  embedded: Embedded,
  size: number,
  open: (target: Parameters<typeof connect>[0]) => Sql,
  { log }: BenchOptions,
): Promise<Stage> {
  const database = `size_${size}`
  const of = <T extends object>(target: T) => ({ ...target, database }) as unknown as Parameters<typeof connect>[0]
  const anywhere = open({ ...embedded.superuser, database: 'postgres' } as Parameters<typeof connect>[0])
  await anywhere`create database ${anywhere(database)} template patchcord owner postgres`
  const [superuser, admin, api] = [open(of(embedded.superuser)), open(of(embedded.admin)), open(of(embedded.api))]
  const seeded: SeededAgent[][] = []
  for (const namespace of namespaceNames()) {
    seeded.push(Object.values(await seed({ admin, api }, namespace, agentNames(), { limits: LIMITS })))
  }
  await fill(superuser, size, log)
  const agents = seeded[namespaceNames().indexOf(MAIN)] as SeededAgent[]
  const workers = agents.slice(0, WORKERS)
  // Who wrote little is not written to either.
  const stage = { size, admin, workers, others: agents.slice(WORKERS, AGENTS - 1), sent: [] }
  const settled = await Promise.all(workers.map((agent) => latestOf(admin, agent, 'done')))
  const opened = await Promise.all(workers.slice(0, WORKERS / 2).map((agent) => latestOf(admin, agent, 'open')))
  return { ...stage, settled, open: opened.map(([id]) => id as string) }
}

async function latestOf(admin: Sql, agent: SeededAgent, state: string): Promise<string[]> {
  const rows = await admin`
    select m.id from patchcord.agent_messages m
      join patchcord.deliveries d on d.message_id = m.id and d.to_agent_uuid = m.to_agent_uuid
    where m.to_agent_uuid = ${agent.agentId} and d.state = ${state} order by m.sent_at desc limit ${NEW_MESSAGES}`
  return rows.map(({ id }) => id as string)
}

/** Nobody has them in the inbox any more. */
async function settleSent(stage: Stage): Promise<void> {
  await stage.admin`
    update patchcord.deliveries set state = 'done', settled_at = clock_timestamp()
    where message_id = any (${stage.sent.splice(0)}::uuid[]) and state = 'new'`
}

/** The latest settled messages of those workers that have nothing else in the inbox, to be fetched and put back. */
async function moveSettled({ admin, workers, settled }: Stage, state: 'new' | 'done'): Promise<void> {
  for (const [index, { agentId }] of workers.entries()) {
    if (index < WORKERS / 2) continue
    await admin`
      update patchcord.deliveries set state = ${state}, fetched_at = null, settled_at = ${state === 'done' ? new Date() : null}
      where message_id = any (${settled[index] ?? []}::uuid[]) and to_agent_uuid = ${agentId}`
  }
}

async function measureAll(stages: Stage[], { isQuick, log }: BenchOptions): Promise<Row[]> {
  const rounds = isQuick ? 4 : 60
  const times = CALLS_OF.map(() => stages.map((): number[] => []))
  for (let round = -WARM_UP_ROUNDS; round < rounds; round++) {
    if (round >= 0 && round % 20 === 0) log(`round ${round} of ${rounds}`)
    for (const [place, call] of CALLS_OF.entries()) {
      for (const index of orderOf([...stages.keys()], Math.max(0, round))) {
        const ms = await measureCalls(stages[index] as Stage, call, round)
        if (round >= 0) times[place]?.[index]?.push(ms)
      }
    }
  }
  return CALLS_OF.flatMap((call, place) =>
    stages
      .slice(1)
      .map((stage, index) => rowOf(call, stage.size, times[place]?.[0] ?? [], times[place]?.[index + 1] ?? [])),
  )
}

/** In ms for each call. */
async function measureCalls(stage: Stage, call: Call, round: number): Promise<number> {
  await call.prepare?.(stage)
  const startedAt = performance.now()
  for (let index = 0; index < CALLS; index++) await call.run(stage, (round + WARM_UP_ROUNDS) * CALLS + index)
  const ms = (performance.now() - startedAt) / CALLS
  await call.restore?.(stage)
  return ms
}

function rowOf({ what, hasTarget }: Call, size: number, small: number[], large: number[]): Row {
  const ratio = median(large.map((ms, round) => ms / (small[round] ?? Number.NaN)))
  const target = hasTarget && size === 1_000_000 ? TARGET : null
  const [msSmall, msLarge] = [median(small), median(large)]
  return {
    part: 'f',
    what: `${what}: ${size.toLocaleString('en')} messages`,
    measured: `${msLarge.toFixed(2)} ms`,
    against: `1,000 messages: ${msSmall.toFixed(2)} ms`,
    ratio,
    target,
    isMet: target === null ? null : meets(ratio, target),
    data: { size, rounds: small.length, calls: CALLS, msSmall, msLarge },
  }
}

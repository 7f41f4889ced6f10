import { mkdtemp, rm } from 'node:fs/promises'
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import { type ConnectionTarget, connect, type Sql } from '../../../server/db/connect.ts'
import { findEmbedded } from '../../../server/db/embedded/index.ts'
import type { Scope } from '../../../server/db/scope.ts'
import { createTurns } from '../../../server/db/turns.ts'
import { attentionLimits } from '../../../server/domain/attention.ts'
import { sendMessage } from '../../../server/domain/messages.ts'
import { createSendBatch } from '../../../server/domain/send-batch.ts'
import { startServer } from '../../../test/helpers/processes.ts'
import { DEFAULT_LIMITS, type SeededAgent, seed } from '../../../test/helpers/seed.ts'
import { type BenchOptions, median, meets, orderOf, type Row } from './row.ts'

/**
 * Part a: what a send costs through each layer, at 1, 8 and 32 callers, in turns within one run. The floor is one durable insert into
 * a plain table with the same foreign keys; what the layers are compared with is the same SQL function called directly, a
 * connection for each caller. Every send is a commit of its own there; the server gathers what comes at once.
 */

const CALLERS = [1, 8, 32]
/** Of each side: who sends gets nothing, so that the gate is always open. */
const AGENTS = 32
const CONTENT = 'The migration is done on staging; two tests of billing fail since then. '.repeat(5)
/** Raised openly: this is about what a send costs, not about limits. Not the cap of an inbox, which is part of the cost. */
const LIMITS = { ...DEFAULT_LIMITS, sendBurst: 1_000_000, sendPerSecond: 1_000_000 }
const SERVER_POOL = 10
/** A connection for each caller, so that none waits for one. */
const POOL = 40
const TARGETS: Record<string, string | undefined> = {
  'domain 8': '≥ 0.8',
  'domain 32': '≥ 1.5',
  'REST 8': '≥ 0.6',
}

/** One send of the caller of this number; throws when it was refused. */
type Send = (caller: number, to: string) => Promise<void>

interface Stage {
  admin: Sql
  senders: SeededAgent[]
  receivers: SeededAgent[]
  variants: Record<string, Send>
}

export async function measure({ folder, isQuick, log, onEnd }: BenchOptions): Promise<Row[]> {
  const dataDir = await mkdtemp(join(folder, 'patchcord-bench-send-'))
  onEnd(() => rm(dataDir, { recursive: true, force: true, maxRetries: 3 }))
  const env = { PATCHCORD_LIMITS: JSON.stringify(LIMITS), LOG_LEVEL: 'error' }
  const server = await startServer({ dataDir, env })
  onEnd(() => server.stop())
  const found = await findEmbedded(dataDir)
  if (!found) throw new Error('the server has no embedded Postgres')
  const open = (target: ConnectionTarget, max: number) => {
    const sql = connect(target, { max, applicationName: 'bench' })
    onEnd(() => sql.end({ timeout: 1 }))
    return sql
  }
  const pools = { admin: open(found.admin, POOL), direct: open(found.api, POOL), api: open(found.api, SERVER_POOL) }
  const stage = await setStage(server.url, pools)
  const rows: Row[] = []
  for (const callers of CALLERS) rows.push(...(await measureAt(stage, callers, isQuick, log)))
  return rows
}

async function setStage(url: string, { admin, direct, api }: Record<'admin' | 'direct' | 'api', Sql>): Promise<Stage> {
  const names = (side: string) => Array.from({ length: AGENTS }, (_, index) => `${side}-${index}`)
  const all = await seed({ admin, api }, 'bench', [...names('from'), ...names('to')], { limits: LIMITS })
  const [senders, receivers] = [Object.values(all).slice(0, AGENTS), Object.values(all).slice(AGENTS)]
  await admin.unsafe(PLAIN)
  const [turns, sends] = [createTurns(), createSendBatch(api, LIMITS)]
  const http = new Agent({ keepAlive: true, maxSockets: Math.max(...CALLERS) })
  const sender = (caller: number) => senders[caller % AGENTS] as SeededAgent
  const ids = new Map(receivers.map(({ agent, agentId }) => [agent, agentId]))
  const variants: Record<string, Send> = {
    plain: async (caller, to) => {
      const { agentId, namespaceId } = sender(caller)
      await admin`
        insert into patchcord.bench_plain (from_agent_uuid, to_agent_uuid, namespace_uuid, content)
        values (${agentId}, ${ids.get(to) as string}, ${namespaceId}, ${CONTENT})`
    },
    direct: (caller, to) => callFunction(direct, sender(caller), to),
    domain: async (caller, to) => {
      const scope: Scope = { ...sender(caller).scope, sql: api, turns, sends }
      await sendMessage(scope, { to, content: CONTENT })
    },
    REST: (caller, to) =>
      post(http, `${url}/api/messages`, sender(caller).token, { to, content: CONTENT }, {}, '"message_id"'),
    MCP: (caller, to) => callMcp(http, url, sender(caller).token, { to, content: CONTENT }),
  }
  return { admin, senders, receivers, variants }
}

const PLAIN = `
  create table patchcord.bench_plain (
    id uuid primary key default patchcord.uuid_v7(),
    from_agent_uuid uuid not null references patchcord.agents (id),
    to_agent_uuid uuid not null references patchcord.agents (id),
    namespace_uuid uuid not null references patchcord.namespaces (id),
    content text not null,
    sent_at timestamptz not null default clock_timestamp()
  )`

async function callFunction(sql: Sql, from: SeededAgent, to: string): Promise<void> {
  const limits = JSON.stringify(attentionLimits(LIMITS))
  const [row] = await sql`
    select patchcord.send_message(
      ${from.tokenHash}, ${[to]}::text[], ${[null]}::text[], ${CONTENT}, null, 'message', 'normal', null, ${'0'.repeat(64)},
      ${limits}::text::jsonb, null) as answer`
  const answer = row?.answer as { outcome: string } | undefined
  if (answer?.outcome !== 'sent') throw new Error(`the function refused a send: ${answer?.outcome}`)
}

async function callMcp(http: Agent, url: string, token: string, args: object): Promise<void> {
  const body = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'send_message', arguments: args } }
  const headers = { accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2025-11-25' }
  await post(http, `${url}/mcp`, token, body, headers, 'Sent to ')
}

async function post(
  agent: Agent,
  url: string,
  token: string,
  body: object,
  more: Record<string, string>,
  wanted: string,
): Promise<void> {
  const text = JSON.stringify(body)
  const headers = {
    authorization: `Bearer ${token}`,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    ...more,
  }
  const answer = await new Promise<string>((resolve, reject) => {
    const call = request(url, { method: 'POST', agent, headers }, (response) => {
      let received = ''
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => {
        received += chunk
      })
      response.on('end', () => resolve(received))
      response.on('error', reject)
    })
    call.on('error', reject)
    call.end(text)
  })
  if (!answer.includes(wanted)) throw new Error(`${url} did not send: ${answer.slice(0, 300)}`)
}

async function measureAt(stage: Stage, callers: number, isQuick: boolean, log: BenchOptions['log']): Promise<Row[]> {
  const names = Object.keys(stage.variants)
  const sends = callers === 1 ? 60 : 20 * callers
  const rounds = isQuick ? 2 : 30
  for (const name of names) await sendAll(stage, name, callers, sends)
  await stage.admin`analyze`
  const rates = new Map<string, number[]>(names.map((name) => [name, []]))
  for (let round = 0; round < rounds; round++) {
    for (const name of orderOf(names, round)) {
      rates.get(name)?.push(await sendAll(stage, name, callers, sends))
    }
    if (round % 10 === 9) log(`${callers} callers, round ${round + 1} of ${rounds}`)
  }
  const of = (name: string) => rates.get(name) ?? []
  return names.slice(1).map((name) => {
    const base = name === 'direct' ? 'plain' : 'direct'
    const ratio = median(of(name).map((rate, round) => rate / (of(base)[round] as number)))
    const target = TARGETS[`${name} ${callers}`] ?? null
    return {
      part: 'a',
      what: `send, ${callers} caller${callers === 1 ? '' : 's'}, ${name === 'direct' ? 'the SQL function called directly' : `${name}${callers > 1 ? ', sends gathered' : ''}`}`,
      measured: `${Math.round(median(of(name)))}/s`,
      against: `${name === 'direct' ? 'plain durable insert' : 'the function'} ${Math.round(median(of(base)))}/s`,
      ratio,
      target,
      isMet: target === null ? null : meets(ratio, target),
      data: { callers, rounds, sendsPerRound: sends, rates: of(name), baseRates: of(base) },
    }
  })
}

/** So many sends by so many callers, each as soon as its last one was answered; sends per second. */
async function sendAll(
  { admin, receivers, variants }: Stage,
  name: string,
  callers: number,
  sends: number,
): Promise<number> {
  const send = variants[name] as Send
  let next = 0
  const work = async (caller: number) => {
    while (next < sends) {
      const index = next++
      await send(caller, (receivers[(caller + 5 * index) % AGENTS] as SeededAgent).agent)
    }
  }
  const startedAt = performance.now()
  await Promise.all(Array.from({ length: callers }, (_, caller) => work(caller)))
  const seconds = (performance.now() - startedAt) / 1000
  // As if read: an inbox that only grows is not what a send meets.
  await admin`update patchcord.deliveries set state = 'done', settled_at = clock_timestamp() where state = 'new'`
  return sends / seconds
}

import { randomUUID } from 'node:crypto'
import { setTimeout as sleepFor } from 'node:timers/promises'
import type { Random } from '../soak-actors.ts'
import type { Answer, Clients, Json } from './clients.ts'
import type { Model, Shown } from './model.ts'

/** What agents do while things break: send until there is an answer, and some of them fetch, wait, reply and settle. */

const SEND_PAUSE_MS = [300, 1_800] as const
const FETCH_PAUSE_MS = [200, 2_500] as const
const LOOK_PAUSE_MS = [500, 3_000] as const
const REPEAT_MS = 150
/** One message in so many goes to two agents. */
const PAIR_EVERY = 8
const PADDING_MAX = 2_500
const URGENCIES = ['fyi', 'normal', 'urgent']
const WAIT_SECONDS = [1, 2, 3]
const SHOWN_KEPT = 40

export interface TrafficAgent {
  name: string
  clients: Clients
  random: Random
}

export interface Traffic {
  model: Model
  counts: { messages: number; deliveries: number; repeated: number; fetches: number; lostFetches: number }
}

export function draw(random: Random, [from, to]: readonly [number, number]): number {
  return Math.round(from + random() * (to - from))
}

export function drawOne<T>(random: Random, values: readonly T[]): T {
  return values[Math.floor(random() * values.length)] as T
}

/** Ends early, without an error, when the signal aborts. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleepFor(ms, undefined, { signal }).catch(() => undefined)
}

/** Sends until the signal aborts; each send has its answer when this resolves. */
export async function keepSending(
  { model, counts }: Traffic,
  { name, clients, random }: TrafficAgent,
  others: string[],
  signal: AbortSignal,
  failed: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    await pause(draw(random, SEND_PAUSE_MS), signal)
    const first = drawOne(random, others)
    const second = drawOne(random, others)
    const to = random() < 1 / PAIR_EVERY && first !== second ? [first, second] : [first]
    const key = randomUUID()
    const content = `key:${key} ${'.'.repeat(Math.floor(random() * PADDING_MAX))}`
    // A report passes the gate: the gate itself fetches, which is not what this is about.
    const message = {
      to: to.join(', '),
      content,
      kind: 'report',
      urgency: drawOne(random, URGENCIES),
      idempotency_key: key,
    }
    const isTool = random() < 0.4
    model.begin(to)
    const begunAt = Date.now()
    const facts = await repeat(counts, failed, () =>
      isTool ? clients.callTool('send_message', message) : clients.call('POST', '/api/messages', message),
    )
    model.accept({ key, from: name, id: String(facts.message_id), begunAt }, to)
    counts.messages += 1
    counts.deliveries += to.length
  }
}

/** Without an answer, or with a token that was just replaced: once more, under the same key. */
async function repeat(counts: Traffic['counts'], failed: AbortSignal, call: () => Promise<Answer>): Promise<Json> {
  for (;;) {
    const answer = await call()
    if (answer !== null && 'facts' in answer) return answer.facts
    failed.throwIfAborted()
    counts.repeated += 1
    await sleepFor(REPEAT_MS)
  }
}

/** Fetches, waits, replies and settles until the signal aborts. */
export async function keepFetching(
  traffic: Traffic,
  agent: TrafficAgent,
  signal: AbortSignal,
  failed: AbortSignal,
): Promise<void> {
  const { name, clients, random } = agent
  const open: Shown[] = []
  while (!signal.aborted) {
    await pause(draw(random, FETCH_PAUSE_MS), signal)
    const begunAt = Date.now()
    const choice = random()
    if (choice < 0.15 && open.length > 0) {
      await reply(traffic, agent, open.shift() as Shown, failed)
      continue
    }
    const done = choice < 0.5 ? open.splice(0, 5).map(({ id }) => id) : []
    for (const id of done) traffic.model.settle(name, id)
    const seconds = drawOne(random, WAIT_SECONDS)
    const answer = await (choice < 0.4
      ? clients.call('POST', '/api/inbox/fetch', { done })
      : choice < 0.7
        ? clients.callTool('inbox', { done })
        : clients.callTool('wait_for_message', { timeout_seconds: seconds }, seconds * 1000))
    traffic.counts.fetches += 1
    if (answer === null) {
      traffic.counts.lostFetches += 1
      traffic.model.loseFetch(name, begunAt)
    } else if ('facts' in answer) open.push(...note(traffic.model, name, answer.facts))
    open.splice(0, Math.max(0, open.length - SHOWN_KEPT))
  }
}

/** Looks around until the signal aborts, which changes nothing: reads under a scope of their own take another way than the rest. */
export async function keepLooking({ clients, random }: TrafficAgent, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await pause(draw(random, LOOK_PAUSE_MS), signal)
    const choice = random()
    if (choice < 0.3) await clients.call('GET', '/api/whoami')
    else if (choice < 0.6) await clients.callTool('list_agents', {})
    else await clients.call('GET', '/api/messages?limit=5')
  }
}

/** The answer to a message is a message, which its first sender must get. */
async function reply({ model, counts }: Traffic, agent: TrafficAgent, to: Shown, failed: AbortSignal): Promise<void> {
  if (to.from === undefined) return
  const key = randomUUID()
  const body = { content: `key:${key} thank you`, idempotency_key: key }
  const isTool = agent.random() < 0.5
  model.begin([to.from])
  model.settle(agent.name, to.id)
  const begunAt = Date.now()
  const facts = await repeat(counts, failed, () =>
    isTool
      ? agent.clients.callTool('reply', { message_id: to.id, ...body })
      : agent.clients.call('POST', `/api/messages/${to.id}/reply`, body),
  )
  const { message_id: id } = facts.sent as Json
  model.accept({ key, from: agent.name, id: String(id), begunAt }, [to.from])
  counts.messages += 1
  counts.deliveries += 1
}

/** What an answer of the inbox or of a wait shows; the messages that it showed in full. */
export function note(model: Model, agent: string, facts: Json): Shown[] {
  const { fresh, older } = readAnswer(facts)
  for (const shown of fresh) model.show(agent, shown, true)
  for (const shown of older) model.show(agent, shown, false)
  return [...fresh, ...older]
}

interface Row {
  message_id: string
  from?: string
  content?: string
  preview?: string
  shown_seconds_ago?: number | null
}

/** Of `POST /api/inbox/fetch`, of the tool `inbox` and of `wait_for_message`. */
export function readAnswer(facts: Json): { fresh: Shown[]; older: Shown[] } {
  const rows = (name: string) => (facts[name] ?? []) as Row[]
  const one = facts.message ? [facts.message as Row] : []
  const full = [...rows('new'), ...rows('again'), ...rows('messages'), ...one]
  const isNew = ({ shown_seconds_ago: ago }: Row) => ago === null || ago === undefined
  return {
    fresh: full.filter(isNew).map(toShown),
    older: [...full.filter((row) => !isNew(row)), ...rows('open'), ...rows('deferred')].map(toShown),
  }
}

function toShown({ message_id: id, from, content, preview }: Row): Shown {
  const key = /key:([0-9a-f-]{36})/.exec(content ?? preview ?? '')?.[1] ?? 'no key'
  return { id, key, ...(from === undefined ? {} : { from: from.split('@')[0] ?? from }) }
}

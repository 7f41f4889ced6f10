import { setTimeout as sleep } from 'node:timers/promises'
import type { Clients, Json } from './clients.ts'
import { countSockets } from './leftovers.ts'
import type { Found, Sent, Shown, Step, Verdict } from './model.ts'
import type { Stage, StageAgent } from './stage.ts'
import { readAnswer } from './traffic.ts'

/** Everything comes to rest, and is compared with the model. */

const SETTLE_MS_MAX = 60_000
/** Longer than the rate of lines can hold back a line that should not come. */
const LINGER_MS = 2_600
const POLL_MS = 200
const TRIES_MAX = 20
const AT_ONCE = 8
const DONE_MAX = 100
/** Of a server: those to the database, the one that listens. */
const OWN_SOCKETS_MAX = 16

/** Resolves with how long it took; what then is not as it should be, `judgeAll` finds. */
export async function settle(stage: Stage): Promise<number> {
  const startedAt = performance.now()
  for (const { network } of [...stage.agents, stage.postgres]) network.heal()
  while (!(await isSettled(stage)) && performance.now() - startedAt < SETTLE_MS_MAX) await sleep(POLL_MS)
  const ms = performance.now() - startedAt
  await sleep(LINGER_MS)
  return ms
}

async function isSettled(stage: Stage): Promise<boolean> {
  if (!stage.agents.every(({ listener }) => listener.isRunning)) return false
  for (const agent of stage.agents) {
    const { pending_count: count } = await ask(agent.clients, 'GET', '/api/inbox?status=new&count_only=1')
    if (!stage.model.hasAnnounced(agent.name, count as number)) return false
  }
  if (countForgottenSockets(stage) > 0) return false
  return (await countUnreported(stage)) === 0 && (await listUnwakeable(stage)).length === 0
}

/** Sockets that the servers still hold for clients which are gone: more than there are connections and what is their own. */
function countForgottenSockets({ servers, agents }: Stage): number {
  const held = servers.reduce((sum, { pid }) => sum + Math.max(0, (countSockets(pid) ?? 0) - OWN_SOCKETS_MAX), 0)
  return held - agents.reduce((sum, { network }) => sum + network.openConnections, 0)
}

/** Lines name nobody; what the listeners report by id must in the end be all that is new. */
async function countUnreported({ postgres }: Stage): Promise<number> {
  const [row] = await postgres.administer(
    (sql) => sql`
      select count(*)::int as count from patchcord.deliveries
      where state = 'new' and wake_at is not null and notified_at is null`,
  )
  return row?.count as number
}

/** Every listener lives and is heard, so the others must be told so. */
async function listUnwakeable({ agents }: Stage): Promise<string[]> {
  const [first] = agents as [StageAgent, ...StageAgent[]]
  const answer = await ask(first.clients, 'GET', '/api/agents?all=1')
  const rows = answer.agents as { agent: string; reach: string }[]
  return agents.map(({ name }) => name).filter((name) => rows.find(({ agent }) => agent === name)?.reach !== 'wakeable')
}

export async function judgeAll(stage: Stage): Promise<Verdict> {
  const unwakeable = await listUnwakeable(stage)
  const found = await Promise.all(
    stage.agents.map(async (agent) => {
      const steps = await readSteps(agent, stage.model.listSent(agent.name))
      return [agent.name, { steps, ...(await emptyInbox(agent)) }] as const
    }),
  )
  const verdict = stage.model.judge(new Map<string, Found>(found))
  for (const { name, listener } of stage.agents) {
    if (!unwakeable.includes(name)) continue
    verdict.words.push(`${name}'s listener lives and reads, and nobody is told that it can be woken:\n${listener.log}`)
  }
  const forgotten = countForgottenSockets(stage)
  if (forgotten > 0) verdict.words.push(`the servers hold ${forgotten} sockets of connections that are gone`)
  verdict.words.push(...stage.problems.splice(0))
  return verdict
}

/** The ledger of each message as its recipient is told. */
async function readSteps({ name, clients }: StageAgent, sent: Sent[]): Promise<Map<string, Step[]>> {
  const steps = new Map<string, Step[]>()
  const left = [...sent]
  const read = async () => {
    for (let message = left.pop(); message !== undefined; message = left.pop()) {
      const { recipients } = await ask(clients, 'GET', `/api/messages/${message.id}/status`)
      const own = (recipients as { agent: string; steps: Step[] }[]).find(({ agent }) => agent === name)
      steps.set(message.id, own?.steps ?? [])
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, read))
  return steps
}

/** All that the inbox shows, page by page; each page is done with the next call. */
async function emptyInbox({ clients }: StageAgent): Promise<{ fresh: Shown[]; older: Shown[] }> {
  const fresh: Shown[] = []
  const older = new Map<string, Shown>()
  let done: string[] = []
  for (;;) {
    const page = readAnswer(await ask(clients, 'POST', '/api/inbox/fetch', { done }))
    fresh.push(...page.fresh)
    const isFresh = new Set(fresh.map(({ id }) => id))
    for (const shown of page.older) if (!isFresh.has(shown.id)) older.set(shown.id, shown)
    done = [...page.fresh, ...page.older].map(({ id }) => id).slice(0, DONE_MAX)
    if (done.length === 0) return { fresh, older: [...older.values()] }
  }
}

/** A call when nothing is broken any more: it has an answer, at the latest after the connections of before are given up. */
async function ask(clients: Clients, method: string, path: string, body?: unknown): Promise<Json> {
  for (let tries = 1; tries <= TRIES_MAX; tries++) {
    const answer = await clients.call(method, path, body)
    if (answer !== null && 'facts' in answer) return answer.facts
    if (answer !== null) throw new Error(`${method} ${path} is refused at rest: ${answer.refused}`)
    await sleep(POLL_MS)
  }
  throw new Error(`${method} ${path} has no answer at rest`)
}

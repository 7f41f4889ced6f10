import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { renameAgent } from '../../server/domain/agents.ts'
import { settleMessages, unsendMessage } from '../../server/domain/delivery.ts'
import { fetchInbox } from '../../server/domain/inbox.ts'
import {
  type RecalledMessage,
  type RecallMessages,
  recallMessages,
  replyToMessage,
  sendMessage,
} from '../../server/domain/messages.ts'
import { PatchcordError } from '../../server/errors.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

let database: TestDatabase
before(async () => {
  database = await createTestDatabase()
})
after(() => database.drop())

const LIMITS = { sendBurst: 100_000, sendPerSecond: 100_000, turnsMax: 100_000, turnsUnattendedMax: 100_000 }
const STEPS = 150
const THREADS = ['deploy', 'review', undefined, undefined]

test('whatever was sent, answered, taken back or expired, recall shows what a plain query for it finds', async () => {
  const { ann, bob, cy, dee } = await seed(database, 'here', ['ann', 'bob', 'cy', 'dee'], { limits: LIMITS })
  const { ann: far, eve } = await seed(database, 'there', ['ann', 'eve'], { limits: LIMITS })
  const random = randomFrom(20_261_129)
  for (let step = 0; step < STEPS; step++) await doSomething([ann, bob, cy, dee], random)
  await eve((scope) => sendMessage(scope, { to: 'ann', content: 'of another namespace', thread: 'deploy' }))
  await far((scope) => fetchInbox(scope, {}))
  for (const [from, to] of [
    [ann, 'bob, cy'],
    [bob, 'dee'],
    [cy, 'ann'],
  ] as const) {
    const input = { to, content: 'too late', kind: 'report', thread: 'deploy', expires_in: 1 } as const
    await from((scope) => sendMessage(scope, input))
  }
  await expireAll()
  // The notices of the others stay unread, and so unshown.
  for (const agent of [ann, bob]) await agent((scope) => fetchInbox(scope, {}))
  await renameAgent(database.admin, { namespace: 'here', agent: 'cy', newName: 'cyn' })
  await database.admin`update patchcord.agents set deleted_at = clock_timestamp() where id = ${dee.agentId}`

  const kinds = new Set<string>()
  const everything = await database.admin`select id from patchcord.message_bodies order by id desc limit 80`
  for (const me of [ann, bob, cy, far, eve]) {
    const all = await historyOf(me)
    for (const { id } of everything) await compare(me, all, { message_id: id as string })
    for (const message of all) kinds.add(`${message.kind} ${message.to.length > 1 ? 'to some' : 'to one'}`)
    for (const input of inputsFor(all)) await compare(me, all, input)
  }
  // Nothing of this is worth anything if the history had none of it.
  for (const kind of ['message to some', 'message to one', 'resolved to one', 'expired to one']) {
    assert.ok(kinds.has(kind), kind)
  }
})

type Input = Parameters<typeof recallMessages>[1] & Partial<Record<keyof typeof RecallMessages.shape, unknown>>

async function doSomething(agents: SeededAgent[], random: (below: number) => number): Promise<void> {
  const me = agents[random(agents.length)] as SeededAgent
  const others = agents.filter((agent) => agent !== me).map(({ agent }) => agent)
  const to = [others[random(3)], others.slice(0, 2).join(', '), `${me.agent}, ${others[0]}`, me.agent, '*'][random(5)]
  const { new: shown, again } = await me((scope) => fetchInbox(scope, {}))
  const seen = [...shown, ...again]
  const about = seen[random(Math.max(1, seen.length))]?.message_id
  const thread = THREADS[random(THREADS.length)]
  const send = { to: to as string, content: `words ${random(1_000_000)}`, ...(thread && { thread }) }
  await me(async (scope) => {
    const choice = random(10)
    if (choice < 5 || !about) return await sendMessage(scope, send)
    if (choice === 5) {
      const sent = await sendMessage(scope, { ...send, kind: 'report' })
      return await unsendMessage(scope, { message_id: sent.message_id })
    }
    if (choice === 6) return await sendMessage(scope, { ...send, expires_in: 1 })
    if (choice === 7) return await settleMessages(scope, { message_ids: [about], state: 'done' })
    if (choice === 8) return await replyToMessage(scope, { message_id: about, content: 'closed', resolve: true })
    return await replyToMessage(scope, { message_id: about, content: 'yes' })
  }).catch((error) => {
    // The gate, and what nobody can take back any more: the next step is another one.
    if (!(error instanceof PatchcordError) || !['gated', 'conflict'].includes(error.code)) throw error
  })
}

async function expireAll(): Promise<void> {
  await sleep(1_100)
  await database.admin`select patchcord.expire_due()`
}

/** As an agent's history was always asked for: everything that is from or to it, joined and sorted, by the owner of the tables. */
async function historyOf({ agentId }: SeededAgent): Promise<(RecalledMessage & { sender: string })[]> {
  const rows = await database.admin`
    select m.id as message_id, f.name as sender, case when m.kind = 'expired' then 'patchcord' else f.name end as "from",
      array_agg(t.name order by t.name) as to, m.thread, m.kind, m.urgency, m.reply_to, to_json(m.sent_at) as sent_at, b.content,
      char_length(b.content) as content_length
    from patchcord.agent_messages m
      join patchcord.deliveries d on d.message_id = m.id and d.to_agent_uuid = m.to_agent_uuid
      join patchcord.message_bodies b on b.id = m.id
      join patchcord.agents f on f.id = m.from_agent_uuid
      join patchcord.agents t on t.id = m.to_agent_uuid
    where m.from_agent_uuid = ${agentId} and m.kind <> 'expired'
      or m.to_agent_uuid = ${agentId} and d.state not in ('new', 'unsent', 'expired')
    group by m.id, f.name, m.thread, m.kind, m.urgency, m.reply_to, m.sent_at, b.content
    order by m.sent_at desc, m.id desc`
  return rows.map((row) => ({ ...row, to_left_out: 0, content_offset: 0 })) as unknown as (RecalledMessage & {
    sender: string
  })[]
}

function inputsFor(all: { message_id: string }[]): Input[] {
  const names = ['ann', 'bob', 'cy', 'cyn', 'dee', 'eve', 'patchcord'].flatMap((name) => [
    name,
    `${name}@here`,
    `${name}@there`,
  ])
  const filters: Input[] = [
    {},
    ...names.map((from) => ({ from })),
    ...['deploy', 'review', 'nothing'].flatMap((thread) => [
      { thread },
      { thread, from: 'bob' },
      { thread, from: 'ann' },
    ]),
  ]
  const pages = [
    {},
    { limit: 1 },
    { limit: 3, offset: 2 },
    { limit: 20, offset: 7 },
    { offset: all.length },
    { limit: 20, offset: all.length - 5 },
  ]
  const ids = all.slice(0, 5).map(({ message_id }) => ({ message_id }))
  return [
    ...filters.flatMap((filter) => pages.map((page) => ({ ...filter, ...page }))),
    ...ids.flatMap((id) => [id, { ...id, from: 'bob' }, { ...id, thread: 'deploy' }]),
  ].filter(({ offset = 0 }: Input) => Number(offset) >= 0)
}

async function compare(me: SeededAgent, all: Awaited<ReturnType<typeof historyOf>>, input: Input): Promise<void> {
  const [name, namespace = me.namespace] = input.from?.split('@') ?? []
  const wanted = all.filter(
    (message) =>
      (!input.from || (message.sender === name && namespace === me.namespace)) &&
      (!input.thread || message.thread === input.thread) &&
      (!input.message_id || message.message_id === input.message_id),
  )
  const { offset = 0, limit = 10 } = input
  const page = wanted.slice(offset, offset + limit).map(({ sender, ...message }) => message)
  const answer = await me((scope) => recallMessages(scope, input)).catch(({ code }) => code)
  if (input.message_id && page.length === 0) return assert.equal(answer, 'not_found')
  const next = !input.message_id && wanted.length > offset + limit ? offset + limit : null
  assert.deepEqual(answer, { messages: page, next_offset: next }, `${me.agent}: ${JSON.stringify(input)}`)
}

/** The same numbers in each run (mulberry32). */
function randomFrom(start: number): (below: number) => number {
  let state = start
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below
  }
}

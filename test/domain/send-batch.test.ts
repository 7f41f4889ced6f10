import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Limits } from '../../server/config.ts'
import { connect } from '../../server/db/connect.ts'
import type { Scope, SendBatch, SendRow } from '../../server/db/scope.ts'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { createSendBatch } from '../../server/domain/send-batch.ts'
import { revokeToken } from '../../server/domain/tokens.ts'
import type { PatchcordError } from '../../server/errors.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { DEFAULT_LIMITS, type SeededAgent, seed } from '../helpers/seed.ts'

/** Raised openly: these tests are about batches, not about the rate. */
const NO_RATE: Limits = { ...DEFAULT_LIMITS, sendBurst: 1_000_000, sendPerSecond: 1_000_000 }
const FEW: Limits = { ...DEFAULT_LIMITS, newPerRecipientMax: 120, turnsMax: 2, turnsUnattendedMax: 2 }

describe('sends that go together', () => {
  let database: TestDatabase
  before(async () => {
    database = await createTestDatabase()
  })
  after(() => database.drop())

  /** One statement at a time, so that what is asked for at once goes together; it notes how many rows each statement had. */
  const createOneLane = (limits: Limits, sizes: number[] = []): SendBatch => {
    const counting = new Proxy(database.api, {
      apply(target, self, args: unknown[]) {
        const rows = args.find((arg) => typeof arg === 'string' && arg.startsWith('[{')) as string | undefined
        if (rows) sizes.push((JSON.parse(rows) as unknown[]).length)
        return Reflect.apply(target, self, args)
      },
    })
    return createSendBatch(counting, limits, 1)
  }

  const stored = async (namespaceId: string) => {
    return await database.admin`
      select m.id, m.from_agent as "from", m.to_agent as "to", b.content from patchcord.agent_messages m
      join patchcord.message_bodies b on b.id = m.id where m.from_namespace_uuid = ${namespaceId} order by b.content`
  }

  test('each is answered as it would have been alone, whatever comes of it', async () => {
    const sizes: number[] = []
    const alone = await askAll(database, 'alone', undefined)
    const together = await askAll(database, 'batch', createOneLane(FEW, sizes))
    assert.deepEqual(together, alone)
    assert.deepEqual(sizes, [Object.keys(alone).length])
    const codes = new Set(Object.values(alone).map((answer) => (answer as { code?: string }).code))
    for (const code of [
      'gated',
      'not_found',
      'inbox_full',
      'rate_limited',
      'token_revoked',
      'agent_gone',
      'conflict',
    ]) {
      assert.ok(codes.has(code), code)
    }
  })

  test('64 agents of 4 namespaces at once: each message is from its sender, to its recipient, told to its sender', async () => {
    const sends = createSendBatch(database.api, NO_RATE)
    const teams = await Promise.all(
      ['red', 'blue', 'green', 'grey'].map(async (namespace) => {
        const names = Array.from({ length: 16 }, (_, index) => `a${index}`)
        return Object.values(await seed(database, `mix-${namespace}`, names, { limits: NO_RATE }))
      }),
    )
    for (let round = 0; round < 10; round++) {
      await Promise.all(
        teams.flat().map(async (agent, index) => {
          const to = `a${(index + 1 + round) % 16}`
          if (to === agent.agent) return
          const content = JSON.stringify({ namespace: agent.namespace, from: agent.agent, to, round })
          const sent = await sendMessage({ ...agent.scope, sends }, { to, content, kind: 'report' })
          assert.equal(sent.recipients[0]?.agent, to)
          const wake = agent.wakes.find(({ id }) => id === sent.message_id)
          assert.deepEqual([wake?.namespace, wake?.from, wake?.to], [agent.namespace, agent.agent, to])
        }),
      )
    }
    for (const team of teams) {
      for (const row of await stored(team[0]?.namespaceId as string)) {
        const { namespace, from, to } = JSON.parse(row.content as string) as Record<string, string>
        assert.deepEqual([team[0]?.namespace, row.from, row.to], [namespace, from, to])
      }
    }
    assert.equal(sends.waiting, 0)
  })

  test('batches of two instances that cross do not deadlock, and lose nothing', { timeout: 120_000 }, async () => {
    const names = Array.from({ length: 16 }, (_, index) => `a${index}`)
    const agents = Object.values(await seed(database, 'crossing', names, { limits: NO_RATE }))
    const other = connect(database.apiTarget, { max: 10, applicationName: 'test-other' })
    const before = await countDeadlocks(database)
    try {
      const instances = [database.api, other].map((sql) => createSendBatch(sql, NO_RATE, 2))
      const work: Promise<unknown>[] = []
      for (let i = 0; i < 640; i++) {
        const from = agents[(i * 5) % 16] as SeededAgent
        const to = [1, 2, 3].map((step) => `a${(i * 5 + step * (1 + (i % 3))) % 16}`)
        const list = i % 4 === 0 ? to.join(',') : (to[0] as string)
        const scope: Scope = { ...from.scope, sends: instances[i % 2] as SendBatch }
        const thread = i % 5 === 0 ? 'shared' : undefined
        work.push(sendMessage(scope, { to: list, content: String(i), kind: 'report', ...(thread && { thread }) }))
      }
      await Promise.all(work)
    } finally {
      await other.end()
    }
    const contents = new Set((await stored(agents[0]?.namespaceId as string)).map(({ content }) => content as string))
    assert.equal(contents.size, 640)
    assert.equal(await countDeadlocks(database), before)
  })

  test('one that the database refuses in the middle fails alone, with its own error', async () => {
    const { alice, bob, carol } = await seed(database, 'poison', ['alice', 'bob', 'carol', 'dave'], { limits: NO_RATE })
    await database.admin.unsafe(`
      create function public.refuse_poison() returns trigger language plpgsql as $$
      begin
        if new.content like 'poison%' then raise exception 'poison' using errcode = 'ZZ001'; end if;
        return new;
      end $$;
      create trigger refuse_poison before insert on patchcord.message_bodies for each row execute function public.refuse_poison()`)
    const sizes: number[] = []
    const sends = createOneLane(NO_RATE, sizes)
    const send = (agent: SeededAgent, content: string, thread?: string) =>
      sendMessage({ ...agent.scope, sends }, { to: 'dave', content, kind: 'report', ...(thread && { thread }) }).then(
        () => 'sent',
        (error: { code?: string }) => error.code,
      )
    try {
      // In the part that goes by rows, and in the one that goes for many.
      const first = [send(alice, 'one', 't'), send(bob, 'poison', 't'), send(carol, 'two', 't')]
      assert.deepEqual(await Promise.all(first), ['sent', 'ZZ001', 'sent'])
      const second = [send(alice, 'three'), send(bob, 'poison'), send(carol, 'four')]
      assert.deepEqual(await Promise.all(second), ['sent', 'ZZ001', 'sent'])
    } finally {
      await database.admin.unsafe('drop trigger refuse_poison on patchcord.message_bodies')
    }
    assert.deepEqual(sizes.slice(0, 2), [3, 3])
    const contents = (await stored(alice.namespaceId)).map(({ content }) => content as string)
    assert.deepEqual(contents, ['four', 'one', 'three', 'two'])
  })

  test('whoever waits for a lock keeps only itself waiting, alone or in a batch', async () => {
    const names = ['alice', 'bob', 'carol', 'x'] as const
    const { alice, bob, carol } = await seed(database, 'locked', names, { limits: NO_RATE })
    const sends = createOneLane(NO_RATE)
    const send = (agent: SeededAgent) =>
      sendMessage({ ...agent.scope, sends }, { to: 'x', content: 'hi', kind: 'report' }).then(() => agent.agent)
    let stuck: Promise<string> | undefined
    await database.admin.begin(async (sql) => {
      await sql`select from patchcord.tokens where id = ${alice.tokenId} for update`
      stuck = send(alice)
      assert.equal(await send(bob), 'bob')
      const both = Promise.race([send(alice), send(carol)])
      assert.equal(await both, 'carol')
    })
    assert.equal(await stuck, 'alice')
  })

  test('when the connection is lost every one of them is told that it is not known, and none is sent again', async () => {
    const names = ['alice', 'bob', 'carol'] as const
    const { alice, bob, carol } = await seed(database, 'lost', names, { limits: NO_RATE })
    const sends = createOneLane(NO_RATE)
    const outcomes: Promise<string>[] = []
    await database.admin.begin(async (sql) => {
      await sql`select from patchcord.tokens where id = ${alice.tokenId} for update`
      for (const agent of [alice, bob]) {
        const sending = sendMessage({ ...agent.scope, sends }, { to: 'carol', content: agent.agent })
        outcomes.push(
          sending.then(
            () => 'sent',
            ({ code }: PatchcordError) => code,
          ),
        )
      }
      await terminateWaiting(database)
    })
    assert.deepEqual(await Promise.all(outcomes), ['unavailable', 'unavailable'])
    assert.deepEqual(await stored(carol.namespaceId).then((rows) => rows.length), 0)
  })

  test('when an answer does not come, though no error does, nobody is told that it was stored, and the next ones go on', async () => {
    const { alice, bob, carol } = await seed(database, 'silent', ['alice', 'bob', 'carol'], { limits: NO_RATE })
    let isSilent = true
    const silent = new Proxy(database.api, {
      apply: (target, self, args: unknown[]) => (isSilent ? Promise.resolve([]) : Reflect.apply(target, self, args)),
    })
    const sends = createSendBatch(silent, NO_RATE, 1)
    const send = ({ scope }: SeededAgent) =>
      sendMessage({ ...scope, sql: silent, sends }, { to: 'carol', content: 'hi' }).then(
        () => 'sent',
        ({ code }: PatchcordError) => code,
      )
    assert.deepEqual(await Promise.all([send(alice), send(bob)]), ['unavailable', 'unavailable'])
    assert.equal(await send(carol), 'unavailable')
    isSilent = false
    assert.deepEqual(await Promise.all([send(alice), send(bob)]), ['sent', 'sent'])
  })

  test('the cap of an inbox holds, however many batches fill it at once', { timeout: 120_000 }, async () => {
    const limits = { ...NO_RATE, newPerRecipientMax: 150 }
    const names = Array.from({ length: 230 }, (_, index) => `a${index}` as const)
    const agents = await seed(database, 'cap', ['full', ...names] as const, { limits })
    const { full, ...senders } = agents
    const sends = createSendBatch(database.api, limits, 8)
    for (let round = 0; round < 2; round++) {
      const work = Object.values(senders).map(({ scope }) =>
        sendMessage({ ...scope, sends }, { to: 'full', content: 'hi', kind: 'report' }),
      )
      await Promise.allSettled(work)
    }
    const [row] = await database.admin`
      select count(*)::int as count from patchcord.deliveries where to_agent_uuid = ${full.agentId} and state = 'new'`
    assert.equal(row?.count, 150)
  })

  test('rows of a batch that wait for one lock give up together, not one after another', {
    timeout: 60_000,
  }, async () => {
    const limits = { ...NO_RATE, newPerRecipientMax: 101 }
    const names = Array.from({ length: 20 }, (_, index) => `a${index}` as const)
    const { full, free, ...senders } = await seed(database, 'late', ['full', 'free', ...names] as const, { limits })
    const sends = createOneLane(limits)
    const send = ({ scope }: SeededAgent, to: string) =>
      sendMessage({ ...scope, sends }, { to, content: 'hi', kind: 'report' })
    await Promise.all(
      Object.values(senders)
        .slice(0, 2)
        .map((agent) => send(agent, 'full')),
    )
    let stuck: Promise<unknown> | undefined
    await database.admin.begin(async (sql) => {
      // As somebody's send to an inbox that is nearly full holds it.
      await sql`select pg_advisory_xact_lock(hashtextextended('patchcord.full_inboxes ' || ${full.agentId}, 0))`
      stuck = Promise.allSettled(Object.values(senders).map((agent) => send(agent, 'full')))
      const startedAt = performance.now()
      await send(free, 'a0')
      const waitedMs = performance.now() - startedAt
      assert.ok(waitedMs < 5_000, `a send beside 20 that wait took ${Math.round(waitedMs)} ms`)
    })
    await stuck
  })

  test('no more than 32 go together, nor much more text than 200,000 characters', async () => {
    const sizes: number[] = []
    const sends = createOneLane(NO_RATE, sizes)
    const row = (content: string): SendRow => ({ hash: '00', content, key: null, body_hash: '', to: ['x'] })
    const asked: number[] = []
    const ask = (count: number, content: string) =>
      Promise.all(Array.from({ length: count }, () => sends.add(row(content), async () => [{ answer: asked.push(1) }])))
    await ask(70, 'x')
    assert.deepEqual(sizes, [32, 32, 6])
    sizes.length = 0
    await ask(9, 'x'.repeat(50_000))
    assert.deepEqual(sizes, [4, 4])
    assert.equal(asked.length, 1, 'the last one goes alone')
  })
})

/** Each kind of send and answer once, by agents of its own, at once: what came of it, without ids and times. */
async function askAll(database: TestDatabase, namespace: string, sends: SendBatch | undefined) {
  const names = [
    ...['plain', 'report', 'expiring', 'list', 'note', 'thread', 'own', 'foreign', 'unknown', 'gated', 'full', 'spent'],
    ...['revoked', 'gone', 'replay', 'conflict', 'held', 'answers', 'resolves', 'defers', 'stranger', 'twice'],
  ] as const
  const agents = await seed(database, namespace, [...names, 'x', 'y', 'z', 'crowded', 'dead'], { limits: FEW })
  const scoped = (agent: SeededAgent): Scope => {
    const { sends: _, ...scope } = agent.scope
    return scope
  }
  const { admin } = database
  const quiet = scoped(agents.y)
  await sendMessage(scoped(agents.x), { to: 'gated', content: 'unread' })
  const eager = { ...quiet, limits: { ...NO_RATE, newPerRecipientMax: FEW.newPerRecipientMax } }
  for (let i = 0; i < FEW.newPerRecipientMax; i++)
    await sendMessage(eager, { to: 'crowded', content: 'x', kind: 'report' })
  const asked: Record<string, string> = {}
  for (const name of ['answers', 'resolves', 'defers', 'twice'] as const) {
    asked[name] = (await sendMessage(scoped(agents.z), { to: name, content: 'question' })).message_id
    await fetchInbox(scoped(agents[name]), {})
  }
  for (let turn = 0; turn < 4; turn++) {
    await sendMessage(scoped(agents.held), { to: 'x', content: 'ping', kind: 'report' })
    await sendMessage(scoped(agents.x), { to: 'held', content: 'pong', kind: 'report' })
  }
  await fetchInbox(scoped(agents.held), {})
  for (const key of ['replay', 'conflict'] as const) {
    await sendMessage(scoped(agents[key]), { to: 'y', content: 'first', idempotency_key: 'k' })
  }
  await admin`update patchcord.tokens set bucket = 0, bucket_at = now() + interval '1 hour' where id = ${agents.spent.tokenId}`
  await revokeToken(admin, agents.revoked.tokenId)
  await admin`update patchcord.agents set deleted_at = now() where id = any (${[agents.gone.agentId, agents.dead.agentId]}::uuid[])`

  const now = (agent: SeededAgent): Scope => ({ ...scoped(agent), ...(sends && { sends }) })
  const send = (name: (typeof names)[number], input: Partial<Parameters<typeof sendMessage>[1]> = {}) =>
    sendMessage(now(agents[name]), { to: 'y', content: name, ...input })
  const reply = (name: (typeof names)[number], input: object) =>
    replyToMessage(now(agents[name]), { message_id: asked[name] as string, ...input })
  const calls: Record<string, () => Promise<unknown>> = {
    plain: () => send('plain'),
    report: () => send('report', { kind: 'report', urgency: 'urgent' }),
    expiring: () => send('expiring', { expires_in: 60 }),
    list: () => send('list', { to: 'x, y' }),
    note: () => send('note', { to: 'note' }),
    thread: () => send('thread', { thread: 'deploy' }),
    own: () => send('own', { to: `y@${namespace}` }),
    foreign: () => send('foreign', { to: 'y@elsewhere' }),
    unknown: () => send('unknown', { to: 'yy' }),
    dead: () => send('unknown', { to: 'dead' }),
    gated: () => send('gated', { to: 'x' }),
    full: () => send('full', { to: 'crowded' }),
    spent: () => send('spent'),
    revoked: () => send('revoked'),
    gone: () => send('gone'),
    replay: () => send('replay', { content: 'first', idempotency_key: 'k' }),
    conflict: () => send('conflict', { content: 'second', idempotency_key: 'k' }),
    held: () => send('held', { to: 'x' }),
    answers: () => reply('answers', { content: 'yes' }),
    resolves: () => reply('resolves', { content: 'done', resolve: true }),
    defers: () => reply('defers', { defer: true }),
    stranger: () => replyToMessage(now(agents.stranger), { message_id: asked.answers as string, content: 'mine' }),
    twice: () => send('twice'),
    again: () => send('twice', { content: 'once more' }),
  }
  const start = ([name, call]: [string, () => Promise<unknown>]) =>
    call().then(
      (answer) => [name, mask(answer)],
      (error: PatchcordError) => [name, mask({ ...error, message: error.message })],
    )
  const answers: unknown[][] = []
  if (sends) answers.push(...(await Promise.all(Object.entries(calls).map(start))))
  else for (const entry of Object.entries(calls)) answers.push(await start(entry))
  return Object.fromEntries(answers) as Record<string, unknown>
}

/** Ids, times and the name of the namespace differ between two runs. */
function mask(answer: unknown): unknown {
  const text = JSON.stringify(answer, (key, value: unknown) => (key === 'cause' ? undefined : value))
  return JSON.parse(
    text
      .replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}/g, 'id')
      .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+(?:\+00:00|Z)/g, 'time')
      .replaceAll(/@?\b(?:alone|batch)\b/g, 'namespace')
      .replaceAll(/"retryAfterSeconds":\d+/g, '"retryAfterSeconds":0'),
  ) as unknown
}

async function countDeadlocks({ admin }: TestDatabase): Promise<number> {
  const [row] = await admin`select deadlocks::int from pg_catalog.pg_stat_database where datname = current_database()`
  return row?.deadlocks as number
}

/** Ends the session that waits for a lock of another, once there is one. */
async function terminateWaiting({ superuser }: TestDatabase): Promise<void> {
  for (let i = 0; i < 500; i++) {
    const { count } = await superuser`
      select pg_terminate_backend(pid) from pg_catalog.pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`
    if (count > 0) return
    await sleep(20)
  }
  throw new Error('nobody waits')
}

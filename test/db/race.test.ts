import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Limits } from '../../server/config.ts'
import { unsendMessage } from '../../server/domain/delivery.ts'
import { fetchInbox, fetchNextMessage, type Inbox } from '../../server/domain/inbox.ts'
import { replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { renewLease } from '../../server/domain/presence.ts'
import type { PatchcordError } from '../../server/errors.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const CROSSINGS = 200
const FETCHES = 100
/** Raised openly: these tests are about races, not about the rate. */
const NO_RATE: Partial<Limits> = { sendBurst: 1_000_000, sendPerSecond: 1_000_000 }
/** A bucket that does not fill while the test runs, however slow the machine. */
const NO_REFILL: Partial<Limits> = { sendPerSecond: 0.000001 }

/** `sent`, or the code of the refusal; a database error keeps its SQLSTATE. */
async function outcomeOf(work: Promise<unknown>): Promise<string> {
  return await work.then(
    () => 'sent',
    (error: PatchcordError) => codeOf(error),
  )
}

function codeOf(error: PatchcordError): string {
  return (error.cause as { code?: string } | undefined)?.code ?? error.code
}

describe('races', () => {
  let database: TestDatabase
  before(async () => {
    database = await createTestDatabase()
  })
  after(() => database.drop())

  const deadlocks = async () => {
    const [row] =
      await database.admin`select deadlocks::int from pg_catalog.pg_stat_database where datname = current_database()`
    return row?.deadlocks as number
  }

  /** Until a session of this database waits for another's lock. */
  const untilOneWaits = async () => {
    for (let i = 0; i < 500; i++) {
      const { count } = await database.superuser`
        select from pg_catalog.pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
      if (count > 0) return
      await sleep(20)
    }
    throw new Error('nobody waits')
  }

  test('of two messages that cross, exactly one passes the gate, every time', { timeout: 300_000 }, async () => {
    const { alice, bob } = await seed(database, 'cross', ['alice', 'bob'], { limits: NO_RATE })
    const tally: Record<string, number> = {}
    for (let round = 0; round < CROSSINGS; round++) {
      const both = await Promise.all([
        outcomeOf(alice((scope) => sendMessage(scope, { to: 'bob', content: `a${round}` }))),
        outcomeOf(bob((scope) => sendMessage(scope, { to: 'alice', content: `b${round}` }))),
      ])
      const key = both.sort().join(' ')
      tally[key] = (tally[key] ?? 0) + 1
    }
    assert.deepEqual(tally, { 'gated sent': CROSSINGS })
  })

  test('of 50 sends at once against a bucket of 30, exactly 30 pass, replies included', async () => {
    const { alice, bob } = await seed(database, 'bucket', ['alice', 'bob'], { limits: NO_REFILL })
    const first = await bob((scope) => sendMessage(scope, { to: 'alice', content: 'ask', kind: 'report' }))
    await alice((scope) => fetchInbox(scope, {}))
    const outcomes = await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        outcomeOf(
          i % 2 === 0
            ? alice((scope) => sendMessage(scope, { to: 'bob', content: `${i}`, kind: 'report' }))
            : alice((scope) => replyToMessage(scope, { message_id: first.message_id, content: `${i}` })),
        ),
      ),
    )
    assert.equal(outcomes.filter((outcome) => outcome === 'sent').length, 30)
    assert.equal(outcomes.filter((outcome) => outcome === 'rate_limited').length, 20)
    const rows = await database.admin`select 1 from patchcord.agent_messages where from_agent_uuid = ${alice.agentId}`
    assert.equal(rows.length, 30)
  })

  test('two fetches of one inbox at once: new in one, shown again by the other, lost by none, settled by none', async () => {
    const { alice, bob } = await seed(database, 'fetch', ['alice', 'bob'], { limits: NO_RATE })
    for (let round = 0; round < FETCHES; round++) {
      const ids = await Promise.all(
        ['x', 'y'].map((text) => alice((scope) => sendMessage(scope, { to: 'bob', content: text, kind: 'report' }))),
      )
      const expected = ids.map((sent) => sent.message_id).sort()
      const inboxes = await Promise.all([1, 2].map(() => bob((scope) => fetchInbox(scope, {}))))
      const shownNew = inboxes.flatMap((inbox) => inbox.new.map((message) => message.message_id))
      assert.deepEqual(shownNew.sort(), expected, 'new in exactly one answer')
      for (const inbox of inboxes) {
        const shown = [...inbox.new, ...inbox.again].map((message) => message.message_id)
        // The one that came first may have answered before the other message was fetched; nothing is in both lists.
        assert.equal(new Set(shown).size, shown.length)
      }
      const last = await bob((scope) => fetchInbox(scope, {}))
      assert.deepEqual(last.again.map((message) => message.message_id).sort(), expected)
      assert.deepEqual(last.counts, { new: 0, open: 2, deferred: 0 })
      await bob((scope) => fetchInbox(scope, { done: expected }))
    }
  })

  test('the later of two fetches at once shows the text again', async () => {
    const { alice, bob } = await seed(database, 'again', ['alice', 'bob'], { limits: NO_RATE })
    for (let round = 0; round < FETCHES; round++) {
      const sent = await alice((scope) => sendMessage(scope, { to: 'bob', content: `text ${round}`, kind: 'report' }))
      const inboxes = await Promise.all([1, 2].map(() => bob((scope) => fetchInbox(scope, {}))))
      const texts = inboxes.map((inbox) => [...inbox.new, ...inbox.again].map((message) => message.content))
      assert.deepEqual(texts, [[`text ${round}`], [`text ${round}`]])
      await bob((scope) => fetchInbox(scope, { done: [sent.message_id] }))
    }
  })

  test('a message that is taken back while it is fetched is either shown or unsent, never both', async () => {
    const { alice, bob } = await seed(database, 'unsend', ['alice', 'bob'], { limits: NO_RATE })
    const tally: Record<string, number> = {}
    for (let round = 0; round < FETCHES; round++) {
      const { message_id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'oops', kind: 'report' }))
      const [unsent, inbox] = await Promise.all([
        outcomeOf(alice((scope) => unsendMessage(scope, { message_id }))),
        bob((scope) => fetchInbox(scope, { done: [] })),
      ])
      const isShown = inbox.new.some((message) => message.message_id === message_id)
      const key = `${unsent === 'sent' ? 'unsent' : unsent} ${isShown ? 'shown' : 'hidden'}`
      tally[key] = (tally[key] ?? 0) + 1
      if (isShown) await bob((scope) => fetchInbox(scope, { done: [message_id] }))
    }
    const strange = Object.keys(tally).filter((key) => key !== 'unsent hidden' && key !== 'conflict shown')
    assert.deepEqual(strange, [], JSON.stringify(tally))
  })

  test('a listener that announces while its agent fetches and settles does not deadlock', async () => {
    const { alice, bob } = await seed(database, 'announce', ['alice', 'bob'])
    const send = (urgency: 'normal' | 'urgent') =>
      alice((scope) => sendMessage(scope, { to: 'bob', content: 'x', kind: 'report', urgency }))
    const older = (await send('normal')).message_id
    const newer = (await send('urgent')).message_id
    assert.equal((await bob((scope) => fetchNextMessage(scope, {})))?.message_id, newer)
    let announcing: Promise<string> | undefined
    // The steps of one fetch that marks the newer message done and takes the older one, with a pause between.
    const fetching = database.api.begin(async (sql) => {
      await sql`select patchcord.enter_agent(${bob.tokenHash})`
      await sql`select patchcord.settle(${[newer]}::uuid[], 'done')`
      const lease = { session: 's', client: 'c', machine: 'm', announced: [older, newer] }
      announcing = outcomeOf(bob((scope) => renewLease(scope, lease)))
      await Promise.race([announcing, untilOneWaits()])
      await sql`select patchcord.take_new(null, null, false, 20, 30000)`
    })
    const outcomes = [await outcomeOf(fetching), await announcing]
    assert.deepEqual(outcomes, ['sent', 'sent'])
  })

  test('a reply to a message that nobody has seen is refused, stores nothing and leaves it to be taken back', async () => {
    const { alice, bob } = await seed(database, 'reply-unseen', ['alice', 'bob'])
    const { message_id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'oops' }))
    for (const input of [{ content: 'thanks' }, { resolve: true }, { defer: true }]) {
      assert.equal(await outcomeOf(bob((scope) => replyToMessage(scope, { message_id, ...input }))), 'conflict')
    }
    await alice((scope) => unsendMessage(scope, { message_id }))
    const rows = await database.admin`select 1 from patchcord.agent_messages where to_agent_uuid = ${alice.agentId}`
    assert.equal(rows.length, 0)
  })

  test('lists that cross, with replies and fetches between, never deadlock and lose nothing', {
    timeout: 300_000,
  }, async () => {
    const names = ['alice', 'bob', 'carol', 'dave'] as const
    const agents = await seed(database, 'lists', names, { limits: NO_RATE })
    const { alice, bob, carol } = agents
    const log = createLog()
    const deadlocksBefore = await deadlocks()
    for (let round = 0; round < CROSSINGS; round++) {
      const kind = round % 2 === 0 ? ('report' as const) : ('message' as const)
      const thread = round % 3 === 0 ? 'shared' : undefined
      const send = (from: SeededAgent, to: string) =>
        log.send(
          from,
          from((scope) => sendMessage(scope, { to, content: 'x', kind, ...(thread ? { thread } : {}) })),
        )
      await Promise.all([
        send(alice, 'dave, carol, bob'),
        send(bob, 'alice, carol, dave'),
        send(carol, 'bob, alice'),
        log.reply(alice),
        log.reply(bob),
        log.fetch(alice),
        log.fetch(bob),
        log.fetch(carol),
        log.fetch(agents.dave),
      ])
    }
    await Promise.all(names.map((name) => log.drain(agents[name])))
    assert.deepEqual(log.faults, [])
    assert.deepEqual([...log.shown].sort(), [...log.accepted].sort())
    assert.ok(log.accepted.size > CROSSINGS * 3, `only ${log.accepted.size} were accepted`)
    assert.equal((await deadlocks()) - deadlocksBefore, 0)
  })
})

/** What was accepted for whom (`id recipient`), what was shown as new to whom, and what went wrong. */
function createLog() {
  const accepted = new Set<string>()
  const shown = new Set<string>()
  const faults: string[] = []
  const open = new Map<string, string[]>()

  const show = (agent: SeededAgent, messages: { message_id: string }[]) => {
    for (const { message_id } of messages) {
      const key = `${message_id} ${agent.agent}`
      if (shown.has(key)) faults.push(`new twice: ${key}`)
      shown.add(key)
      open.set(agent.agent, [...(open.get(agent.agent) ?? []), message_id])
    }
  }
  /** What the gate shows counts as fetched; any other refusal is a fault. */
  const record = async <T>(agent: SeededAgent, work: Promise<T>): Promise<T | null> => {
    return await work.catch((error: PatchcordError) => {
      const code = codeOf(error)
      if (code === 'gated') show(agent, error.details?.messages as { message_id: string }[])
      else faults.push(`${code}: ${error.message}`)
      return null
    })
  }
  const accept = (sent: { message_id: string; recipients: { agent: string }[] } | null | undefined) => {
    for (const { agent } of sent?.recipients ?? []) accepted.add(`${sent?.message_id} ${agent}`)
  }
  return {
    accepted,
    shown,
    faults,
    async send(agent: SeededAgent, work: ReturnType<typeof sendMessage>) {
      accept(await record(agent, work))
    },
    /** Answers the oldest message that was shown, if there is one. */
    async reply(agent: SeededAgent) {
      const id = open.get(agent.agent)?.shift()
      if (!id) return
      const reply = await record(
        agent,
        agent((scope) => replyToMessage(scope, { message_id: id, content: 'y' })),
      )
      accept(reply?.sent)
    },
    async fetch(agent: SeededAgent): Promise<Inbox | null> {
      const inbox = await record(
        agent,
        agent((scope) => fetchInbox(scope, {})),
      )
      show(agent, inbox?.new ?? [])
      return inbox
    },
    async drain(agent: SeededAgent) {
      for (let inbox = await this.fetch(agent); inbox && inbox.new.length > 0; inbox = await this.fetch(agent));
    },
  }
}

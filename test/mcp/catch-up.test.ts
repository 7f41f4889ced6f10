import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { encode } from 'gpt-tokenizer/encoding/o200k_base'
import { createAgent, listAgents } from '../../server/domain/agents.ts'
import { settleMessage } from '../../server/domain/delivery.ts'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { type Recall, recallMessages, replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { connectMcp, type McpClient, type ToolResult } from '../helpers/mcp.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { TEXTS } from '../helpers/texts.ts'

const TOKENS_MAX = 10_000
const LIMITS = { limits: { sendBurst: 100_000, newPerRecipientMax: 100_000 } }

/** Neither form of an answer is more than a client shows a model. */
function assertSize({ text, facts, isError }: ToolResult): void {
  assert.equal(isError, false, text.slice(0, 500))
  const sizes = [encode(text).length, encode(JSON.stringify(facts)).length]
  assert.ok(Math.max(...sizes) <= TOKENS_MAX, `${sizes.join(' and ')} tokens`)
}

/** One message for each of these texts, a second after the one before; every seventh is urgent. */
async function plant(database: TestDatabase, from: SeededAgent, to: SeededAgent, texts: string[]): Promise<void> {
  await database.admin`
    with message as (
      select patchcord.uuid_v7() as id, t.content, t.place,
        clock_timestamp() - make_interval(days => 7) + make_interval(secs => t.place) as at
      from unnest(${texts}::text[]) with ordinality as t (content, place)
    ), body as (
      insert into patchcord.message_bodies (id, from_namespace_uuid, from_agent_uuid, content, sent_at)
      select m.id, ${from.namespaceId}, ${from.agentId}, m.content, m.at from message m
    ), row_of as (
      insert into patchcord.agent_messages (id, from_namespace_uuid, to_namespace_uuid, from_agent_uuid, to_agent_uuid,
        namespace_id, from_agent, to_agent, kind, urgency, sent_at, wake_at)
      select m.id, ${from.namespaceId}, ${from.namespaceId}, ${from.agentId}, ${to.agentId}, ${from.namespace},
        ${from.agent}, ${to.agent}, 'report', case when m.place % 7 = 0 then 'urgent' else 'normal' end, m.at, m.at
      from message m
    )
    insert into patchcord.deliveries (message_id, to_agent_uuid, from_agent_uuid, wake_at)
    select m.id, ${to.agentId}, ${from.agentId}, m.at from message m`
}

describe('an agent that was away for a week', { timeout: 300_000 }, () => {
  let database: TestDatabase
  let app: TestApp
  const clients: McpClient[] = []
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database)
  })
  after(async () => {
    await Promise.all(clients.map((client) => client.close()))
    await app.close()
    await database.drop()
  })
  const connect = async (agent: SeededAgent) => {
    const client = await connectMcp(app, agent.token)
    clients.push(client)
    return client
  }

  test('finds 1,000 messages of 50,000 characters page by page: urgent first, then oldest, each once, no page above 10k tokens', async () => {
    const { alice, bob } = await seed(database, 'week', ['alice', 'bob'])
    const isUrgent = (index: number) => (index + 1) % 7 === 0
    const kinds = Object.values(TEXTS)
    const texts = Array.from({ length: 1_000 }, (_, index) => {
      const kind = kinds[index % kinds.length] as string
      const long = `#${index} ${kind.repeat(Math.ceil(50_000 / kind.length))}`
      return [...long.slice(0, 50_100)]
        .slice(0, 50_000)
        .join('')
        .replace(/\p{Surrogate}/gu, '')
    })
    await plant(database, alice, bob, texts)
    const client = await connect(bob)
    const shown: number[] = []
    let done: string[] = []
    let left = 1_000
    const readPage = async () => {
      const page = await client.call('inbox', { done })
      assertSize(page)
      const messages = page.facts.messages as { message_id: string; content: string; shown_seconds_ago?: number }[]
      const fresh = messages.filter(({ shown_seconds_ago }) => shown_seconds_ago === undefined)
      assert.ok(fresh.length > 0 && fresh.length <= 20)
      assert.match(page.text, new RegExp(`^bob@week \\| ${left} new, `))
      shown.push(...fresh.map(({ content }) => Number(/\n#(\d+) /.exec(content)?.[1])))
      for (const { content } of fresh) assert.match(content, /\[cut at \d+ of \d+ characters: recall with message_id/)
      left -= fresh.length
      assert.equal(page.facts.new_left ?? 0, left)
      assert.equal(page.text.includes(`\n${left} more are new: the next inbox shows them`), left > 0)
      done = fresh.map(({ message_id }) => message_id)
    }
    while (shown.length < 80) await readPage()
    // All urgent ones but the last five, and most of the rest, are dealt with elsewhere.
    const isSkipped = (index: number) => (isUrgent(index) ? index < 960 : index < 980) && !shown.includes(index)
    const skipped = texts.flatMap((_, index) => (isSkipped(index) ? [index] : []))
    await database.admin`
      update patchcord.deliveries d set state = 'done' from patchcord.message_bodies b
      where b.id = d.message_id and d.to_agent_uuid = ${bob.agentId} and d.state = 'new'
        and substring(b.content from '^#([0-9]+) ') = any (${skipped.map(String)}::text[])`
    left -= skipped.length
    while (left > 0) await readPage()
    const places = texts.map((_, index) => index).filter((index) => !skipped.includes(index))
    assert.deepEqual(shown, [...places.filter(isUrgent), ...places.filter((index) => !isUrgent(index))])
  })

  test('sees twenty short messages in full at once, and none of them cut', async () => {
    const { alice, bob } = await seed(database, 'short', ['alice', 'bob'])
    const text = 'The migration is done on staging; two tests of billing fail since then. '
    await plant(
      database,
      alice,
      bob,
      Array.from({ length: 25 }, () => text.repeat(3)),
    )
    const page = await (await connect(bob)).call('inbox')
    assertSize(page)
    assert.equal(page.facts.messages.length, 20)
    assert.doesNotMatch(page.text, /\[cut at/)
    assert.equal(page.facts.new_left, 5)
  })

  test('keeps to the size with everything else in the inbox, too', async () => {
    const names = longNames(150)
    const { alice, bob } = await seed(database, 'all', ['alice', 'bob'], LIMITS)
    for (const name of names) await createAgent(database.admin, { namespace: 'all', name })
    const kinds = Object.values(TEXTS).filter((text) => text.trim() !== '')
    const send = async (index: number) =>
      (
        await alice((scope) =>
          sendMessage(scope, {
            to: 'bob',
            content: kinds[index % kinds.length] as string,
            kind: 'report',
            thread: 'a-long-thread-name',
          }),
        )
      ).message_id
    const ids: string[] = []
    for (let index = 0; index < 200; index++) ids.push(await send(index))
    const client = await connect(bob)
    for (let shown = 0; shown < 200; ) {
      const page = await client.call('inbox')
      assertSize(page)
      shown = 200 - (page.facts.new_left ?? 0)
    }
    for (const message_id of ids.slice(0, 80))
      await bob((scope) => settleMessage(scope, { message_id, state: 'deferred' }))
    await database.admin`
      update patchcord.deliveries set fetched_at = clock_timestamp() - interval '1 hour'
      where message_id = any (${ids.slice(0, 140)}::uuid[])`
    // Notices of resolves, which settle themselves, and new messages again.
    for (let index = 0; index < 12; index++) {
      const { message_id } = await bob((scope) => sendMessage(scope, { to: 'alice', content: 'x', kind: 'report' }))
      await alice((scope) => fetchInbox(scope, { done: [] }))
      await alice((scope) => replyToMessage(scope, { message_id, resolve: true, content: kinds[index] as string }))
    }
    for (let index = 0; index < 30; index++) await send(index)
    const seen = new Set<string>()
    for (let round = 0; round < 12; round++) {
      const page = await client.call('inbox', { all_agents: true, done: round === 0 ? ids.slice(100, 200) : [] })
      assertSize(page)
      for (const { message_id } of page.facts.notices ?? []) {
        assert.ok(!seen.has(message_id))
        seen.add(message_id)
      }
    }
    assert.equal(seen.size, 12)
    // What does not fit is counted: nothing is left out in silence.
    const { facts } = await client.call('inbox', { all_agents: true })
    const { counts, messages, open = [], open_left = 0, deferred = [], deferred_left = 0, agents = [] } = facts
    const again = messages.filter((each: { shown_seconds_ago?: number }) => each.shown_seconds_ago !== undefined)
    assert.equal(open.length + open_left + again.length, counts.open)
    assert.equal(deferred.length + deferred_left, counts.deferred)
    assert.equal(agents.length + (facts.agents_left_out ?? 0), names.length + 1)
  })

  test('is refused by the gate and answered by a wait within the size', async () => {
    const { alice, bob } = await seed(database, 'gate', ['alice', 'bob'], LIMITS)
    const client = await connect(bob)
    for (const [name, text] of Object.entries(TEXTS).filter(([, each]) => each.trim() !== '')) {
      await alice((scope) =>
        sendMessage(scope, { to: 'bob', content: text.repeat(9).slice(0, 45_000), kind: 'report' }),
      )
      const waited = await client.call('wait_for_message', { timeout_seconds: 1 })
      assertSize(waited)
      assert.ok(waited.facts.message, name)
    }
    await plant(database, alice, bob, Object.values(TEXTS))
    for (let refusals = 0; ; refusals++) {
      const { text, isError } = await client.call('send_message', { to: 'alice', content: 'x' })
      assert.ok(encode(text).length <= TOKENS_MAX)
      if (!isError) {
        assert.ok(refusals > 1)
        break
      }
    }
  })

  test('who lost the answer sees in the next one what it showed, cut as it was', async () => {
    const { alice, bob } = await seed(database, 'again', ['alice', 'bob'], LIMITS)
    const { hieroglyphs = '', english = '', han = '' } = TEXTS
    await plant(database, alice, bob, [hieroglyphs.repeat(9), english.slice(0, 900), han.slice(0, 500)])
    const contentsOf = (messages: { message_id: string; content: string }[]) =>
      messages.map(({ message_id, content }) => `${message_id} ${content}`)
    const lost: string[] = []
    for (let left = 1; left > 0; ) {
      const page = await bob((scope) => fetchInbox(scope, {}))
      lost.push(...contentsOf(page.new))
      left = page.new_left
    }
    assert.equal(lost.length, 3)
    const { again, open_left: left } = await bob((scope) => fetchInbox(scope, {}))
    assert.equal(again.length + left, 3)
    const latest = lost.at(-1) as string
    assert.ok(contentsOf(again).includes(latest))
  })

  test('recalls texts of every kind in pages within the size, and no character is missing', async () => {
    const { bob } = await seed(database, 'recalled', ['alice', 'bob'], LIMITS)
    const client = await connect(bob)
    const kinds = Object.values(TEXTS).filter((text) => text.trim() !== '')
    for (const text of kinds) {
      const content = [...text.repeat(9)].slice(0, 12_000).join('')
      await bob((scope) => sendMessage(scope, { to: 'alice', content, kind: 'report', thread: 'a-long-thread-name' }))
    }
    const ids: string[] = []
    for (let offset: number | undefined = 0; offset !== undefined; ) {
      const page: ToolResult = await client.call('recall', { limit: 50, offset })
      assertSize(page)
      ids.push(...page.facts.messages.map(({ message_id }: { message_id: string }) => message_id))
      offset = page.facts.next_offset
    }
    assert.equal(ids.length, kinds.length)
    assert.equal(new Set(ids).size, kinds.length)
    for (const [index, message_id] of ids.reverse().entries()) {
      const parts: string[] = []
      for (let offset: number | null = 0; offset !== null; ) {
        assertSize(await client.call('recall', { message_id, offset }))
        const page: Recall = await bob((scope) => recallMessages(scope, { message_id, offset: offset as number }))
        parts.push(page.messages[0]?.content as string)
        offset = page.next_offset
      }
      const expected = [...(kinds[index] as string).repeat(9)].slice(0, 12_000).join('')
      assert.ok(parts.join('') === expected, expected.slice(0, 50))
    }
  })

  test('names fifty recipients of a message to hundreds in recall, and counts the rest', async () => {
    const { alice } = await seed(database, 'crowd', ['alice'], LIMITS)
    for (const name of longNames(300)) await createAgent(database.admin, { namespace: 'crowd', name })
    for (let time = 0; time < 8; time++) {
      await alice((scope) => sendMessage(scope, { to: '*', content: TEXTS.hieroglyphs as string, kind: 'report' }))
    }
    const client = await connect(alice)
    const shown = await client.call('recall', { limit: 50 })
    assertSize(shown)
    const { messages } = shown.facts
    assert.ok(messages.length >= 1)
    assert.deepEqual([messages[0].to.length, messages[0].to_left_out], [50, 250])
    assert.match(shown.text, / and 250 more: /)
  })

  test('lists agents within the size, those first that can be reached soonest, and counts the others', async () => {
    const names = longNames(400)
    const { zoe } = await seed(database, 'roster', ['zoe'], LIMITS)
    for (const name of names) await createAgent(database.admin, { namespace: 'roster', name })
    // All have told all there is to tell; the last 30 by name a moment ago.
    await database.admin`
      insert into patchcord.presence (agent_uuid, namespace_uuid, state, client, session, machine, reported_at)
      select id, namespace_uuid, 'busy', ${`Q:${'7@x'.repeat(12)}`}, 's', ${`Z+${'9/w'.repeat(12)}`},
        clock_timestamp() - case when row_number() over (order by name desc) <= 31 then interval '0' else interval '1 hour' end
      from patchcord.agents where namespace_uuid = ${zoe.namespaceId}`
    const client = await connect(zoe)
    const all = await client.call('list_agents', { all: true })
    assertSize(all)
    assert.ok(all.facts.agents.length > 30)
    assert.equal(all.facts.agents.length + all.facts.agents_left_out, names.length + 1)
    assert.ok(all.facts.agents.some(({ is_you }: { is_you: boolean }) => is_you))
    const online = all.facts.agents.filter(({ reach }: { reach: string }) => reach === 'online')
    assert.equal(online.length, 31)
    assert.match(all.text, new RegExp(`^roster \\| \\d+ listed, ${all.facts.agents_left_out} more do not fit here`))
    const { agents } = await zoe((scope) => listAgents(scope, { all: true }))
    assert.equal(agents.length, names.length + 1)
  })
})

/** Names as long as names may be, of letters that make no words. */
function longNames(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `q7x-${'zvkw9'.repeat(6)}-${index}`)
}

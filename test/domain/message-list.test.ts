import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { settleMessages, unsendMessage } from '../../server/domain/delivery.ts'
import { exportMessages, listMessages, type MessageFilters } from '../../server/domain/message-list.ts'
import { getMessageStory } from '../../server/domain/message-story.ts'
import { renewLease } from '../../server/domain/presence.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { joinAs, type SeededPerson, signInOperator } from '../helpers/people.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { answer, read, say } from '../helpers/talk.ts'

describe('the list of messages', () => {
  let database: TestDatabase
  let owner: SeededPerson
  let acme: Record<'alice' | 'bob' | 'carol', SeededAgent>
  let eve: SeededAgent
  let stranger: SeededPerson
  const ids: Record<string, string> = {}
  before(async () => {
    database = await createTestDatabase()
    acme = await seed(database, 'acme', ['alice', 'bob', 'carol'], { limits: { sendBurst: 1_000 } })
    ;({ eve } = await seed(database, 'evil', ['eve', 'mallory']))
    await seed(database, 'quiet', ['nobody'])
    owner = await signInOperator(database)
    stranger = await joinAs(database, owner, 'evil', 'member', 'mallory')
    const { alice, bob, carol } = acme
    ids.question = await say(alice, { to: 'bob', content: 'Is the pipeline green?', kind: 'question', thread: 'build' })
    await read(bob)
    ids.answer = await answer(bob, ids.question, 'It is, since noon.')
    await read(alice)
    ids.wide = await say(carol, { to: '*', content: 'The office is closed on Friday.', kind: 'heads-up' })
    ids.unsent = await say(alice, { to: 'bob', content: 'Forget this secretword.' })
    await alice((scope) => unsendMessage(scope, { message_id: ids.unsent ?? '' }))
    ids.foreign = await say(eve, { to: 'mallory', content: 'Is the pipeline green, too?' })
  })
  after(() => database.drop())

  const list = async (filters: MessageFilters, namespace = 'acme', person = owner) => {
    const { messages } = await listMessages(person.scope, { namespace, filters })
    return messages.map(({ id }) => Object.keys(ids).find((name) => ids[name] === id) ?? id)
  }

  test('is newest first, one row for each message however many it went to', async () => {
    assert.deepEqual(await list({}), ['unsent', 'wide', 'answer', 'question'])
    const { messages } = await listMessages(owner.scope, { namespace: 'acme', filters: {} })
    const wide = messages.find(({ id }) => id === ids.wide)
    assert.deepEqual([wide?.from, wide?.to, wide?.recipients, wide?.states], ['carol', ['alice', 'bob'], 2, { new: 2 }])
  })

  test('is narrowed by agent, direction, state, kind and thread, alone and together', async () => {
    assert.deepEqual(await list({ agent: 'bob' }), ['unsent', 'wide', 'answer', 'question'])
    assert.deepEqual(await list({ agent: 'bob', direction: 'from' }), ['answer'])
    assert.deepEqual(await list({ agent: 'bob', direction: 'to' }), ['unsent', 'wide', 'question'])
    assert.deepEqual(await list({ state: 'answered' }), ['question'])
    assert.deepEqual(await list({ state: 'new' }), ['wide'])
    assert.deepEqual(await list({ state: 'unsent' }), ['unsent'])
    assert.deepEqual(await list({ kind: 'heads-up' }), ['wide'])
    assert.deepEqual(await list({ kind: 'message' }), ['unsent', 'answer'])
    assert.deepEqual(await list({ thread: 'build' }), ['answer', 'question'])
    assert.deepEqual(await list({ thread: 'build', agent: 'alice', direction: 'from' }), ['question'])
    assert.deepEqual(await list({ thread: 'build', kind: 'report' }), [])
    assert.deepEqual(await list({ agent: 'nobody' }), [], 'an agent of another namespace is none')
  })

  test('is searched by words and their beginnings, phrases and what is left out, whatever marks stand around', async () => {
    assert.deepEqual(await list({ text: 'pipeline' }), ['question'])
    assert.deepEqual(await list({ text: 'PIPE' }), ['question'])
    assert.deepEqual(await list({ text: '"is closed"' }), ['wide'])
    assert.deepEqual(await list({ text: '"closed is"' }), [])
    assert.deepEqual(await list({ text: 'is -pipeline' }), ['wide', 'answer'])
    assert.deepEqual(await list({ text: 'noon or friday' }), ['wide', 'answer'])
    assert.deepEqual(await list({ text: 'green', agent: 'bob', direction: 'from' }), [])
    for (const text of [
      '<>',
      '"',
      "'",
      '\\',
      '-',
      ':*',
      '&',
      "a' | 'b",
      '!!',
      '\u0001',
      '%',
      `in:${acme.alice.namespaceId}`,
    ]) {
      assert.deepEqual(await list({ text }), [], text)
    }
  })

  test('of one namespace never shows a message of another, nor finds it by its words or its name in the index', async () => {
    assert.deepEqual(await list({ text: 'pipeline' }, 'evil', stranger), ['foreign'])
    assert.deepEqual(await list({ text: 'friday' }, 'evil', stranger), [])
    const word = `in${acme.alice.namespaceId.replaceAll('-', '')}`
    for (const text of [word, `${word} or pipeline`, `friday or -${word}`]) {
      assert.ok(!(await list({ text }, 'evil', stranger)).some((name) => name !== 'foreign'), text)
    }
    for (const namespace of ['acme', 'quiet', 'no-such']) {
      await assert.rejects(list({}, namespace, stranger), { code: 'not_found', message: 'There is nothing here.' })
    }
    await assert.rejects(getMessageStory(stranger.scope, { namespace: 'evil', id: ids.question ?? '' }), {
      code: 'not_found',
    })
  })

  test('does not open to an agent, whose claims name the same namespace', async () => {
    const call = database.api.begin(async (sql) => {
      await sql`select patchcord.enter_agent(${acme.carol.tokenHash})`
      return await sql`select patchcord.find_messages('{}', null, null, 50)`
    })
    await assert.rejects(call, { code: '42501' })
    const claims = JSON.stringify({ ns: acme.carol.namespaceId, agent: acme.carol.agentId })
    const asPersonWithoutRole = database.superuser.begin(async (sql) => {
      await sql`select set_config('request.jwt.claims', ${claims}, true), set_config('role', 'patchcord_person', true)`
      return await sql`select patchcord.find_messages('{}', null, null, 50)`
    })
    await assert.rejects(asPersonWithoutRole, { code: '42501' })
  })

  test('keeps that a message was taken back unread, and shows its text to nobody, nor finds it by it', async () => {
    const { messages } = await listMessages(owner.scope, { namespace: 'acme', filters: { state: 'unsent' } })
    assert.deepEqual([messages[0]?.content, messages[0]?.states], [null, { unsent: 1 }])
    assert.deepEqual(await list({ text: 'secretword' }), [])
    const story = await getMessageStory(owner.scope, { namespace: 'acme', id: ids.unsent ?? '' })
    assert.equal(story.content, null)
    for await (const page of exportMessages(owner.scope, { namespace: 'acme', filters: {} })) {
      assert.doesNotMatch(JSON.stringify(page), /secretword/)
    }
  })

  test('tells each step of a message with each recipient, and which message answered it', async () => {
    const { alice, bob } = acme
    const id = await say(alice, { to: 'bob', content: 'And the tests?', kind: 'report' })
    const story = () => getMessageStory(owner.scope, { namespace: 'acme', id })
    assert.deepEqual(
      (await story()).stories[0]?.steps.map(({ step }) => step),
      ['accepted'],
    )
    await bob((scope) => renewLease(scope, { session: 's', client: 'test', machine: 'lap', announced: [id] }))
    await read(bob)
    const answerId = await answer(bob, id, 'All of them.')
    const [line] = (await story()).stories
    assert.deepEqual(
      line?.steps.map(({ step }) => step),
      ['accepted', 'notified', 'fetched', 'answered'],
    )
    assert.deepEqual([line?.answer_id, line?.reach, line?.state], [answerId, 'wakeable', 'answered'])
    const about = await getMessageStory(owner.scope, { namespace: 'acme', id: answerId })
    assert.equal(about.about?.id, id)
  })

  test('goes on page after page, and each message comes once', async () => {
    const { carol } = acme
    for (let count = 0; count < 60; count++) {
      await say(carol, { to: 'carol', content: `Note ${count}`, thread: 'notes' })
    }
    for (const filters of [
      { thread: 'notes' },
      { agent: 'carol', direction: 'to' },
      { state: 'deferred' },
      { text: 'note' },
    ] as const) {
      const seen: string[] = []
      let before: string | undefined
      do {
        const page = await listMessages(owner.scope, { namespace: 'acme', filters, before })
        seen.push(...page.messages.flatMap(({ content }) => (content?.startsWith('Note') ? [content] : [])))
        before = page.next ?? undefined
      } while (before !== undefined)
      assert.deepEqual(
        seen,
        Array.from({ length: 60 }, (_, index) => `Note ${59 - index}`),
        JSON.stringify(filters),
      )
    }
    await assert.rejects(listMessages(owner.scope, { namespace: 'acme', filters: {}, before: "1_'; drop" }), {
      code: 'invalid',
    })
  })

  test('finds the words of a long text, and a text of nothing but words does not fail its send', async () => {
    const { bob } = acme
    const words = Array.from({ length: 6_000 }, (_, index) => `w${index}x`).join(' ')
    await say(bob, { to: 'bob', content: words.slice(0, 49_000) })
    await say(bob, { to: 'bob', content: 'x'.repeat(50_000) })
    const { messages } = await listMessages(owner.scope, { namespace: 'acme', filters: { text: 'w2000x' } })
    assert.equal(messages.length, 1)
    await bob((scope) => settleMessages(scope, { message_ids: [messages[0]?.id ?? ''], state: 'done' }))
  })
})

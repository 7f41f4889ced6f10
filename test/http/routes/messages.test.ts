import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { call, startTestApp, type TestApp } from '../../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../../helpers/database.ts'
import { seed } from '../../helpers/seed.ts'

const UNKNOWN_ID = '01890000-0000-7000-8000-00000000abcd'

describe('/api/messages', () => {
  let database: TestDatabase
  let app: TestApp
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database)
  })
  after(async () => {
    await app.close()
    await database.drop()
  })

  const send = (token: string, body: object, headers: Record<string, string> = {}) =>
    call(app, 'POST', '/api/messages', { token, body, headers })

  test('POST stores a message and answers 201 with its id and who was reached', async () => {
    const { alice, bob } = await seed(database, 'send', ['alice', 'bob'])
    const body = { to: 'bob', content: 'hello', thread: 'deploy', kind: 'question', urgency: 'urgent' }
    const answer = await send(alice.token, body)
    assert.equal(answer.status, 201)
    const { message_id, sent_at, ...rest } = answer.json
    assert.deepEqual(rest, {
      thread: 'deploy',
      expires_at: null,
      replayed: false,
      recipients: [{ agent: 'bob', state: 'new', reach: 'offline', last_seen_at: null, held_until: null }],
      left_out: [],
    })
    assert.match(sent_at, /^\d{4}-\d\d-\d\dT/)
    const fetched = await call(app, 'POST', '/api/inbox/fetch', { token: bob.token })
    assert.equal(fetched.json.new[0].message_id, message_id)
    assert.equal(fetched.json.new[0].content, 'hello')
  })

  test('POST to an unknown name is 404 with the nearest names and stores nothing', async () => {
    const { alice, bob } = await seed(database, 'unknown', ['alice', 'bob'])
    await seed(database, 'other', ['eve'])
    for (const to of ['bbo', 'eve', 'bob, eve', 'eve@other']) {
      const answer = await send(alice.token, { to, content: 'x' })
      assert.equal(answer.status, 404, to)
      assert.equal(answer.json.error.code, 'not_found')
    }
    const near = await send(alice.token, { to: 'bbo', content: 'x' })
    assert.equal(near.json.error.hint, 'Did you mean bob?')
    assert.equal((await call(app, 'GET', '/api/inbox', bob)).json.pending_count, 0)
  })

  test('Idempotency-Key and idempotency_key are one key: the second send is the first one again', async () => {
    const { alice, bob } = await seed(database, 'idem', ['alice', 'bob'])
    const body = { to: 'bob', content: 'once' }
    const first = await send(alice.token, body, { 'idempotency-key': 'k1' })
    const second = await send(alice.token, { ...body, idempotency_key: 'k1' })
    const both = await send(alice.token, { ...body, idempotency_key: 'k1' }, { 'Idempotency-Key': 'k1' })
    assert.deepEqual([second.status, both.status], [201, 201])
    assert.deepEqual([second.json.message_id, both.json.message_id], [first.json.message_id, first.json.message_id])
    assert.deepEqual([first.json.replayed, second.json.replayed, both.json.replayed], [false, true, true])
    assert.equal((await call(app, 'GET', '/api/inbox', bob)).json.pending_count, 1)
    const other = await send(alice.token, { to: 'bob', content: 'twice' }, { 'idempotency-key': 'k1' })
    assert.equal(other.status, 409)
    assert.equal(other.json.error.code, 'conflict')
    const differing = await send(alice.token, { ...body, idempotency_key: 'k1' }, { 'idempotency-key': 'k2' })
    assert.equal(differing.status, 400)
    assert.match(differing.json.error.message, /^The header Idempotency-Key and the field idempotency_key differ\.$/)
    const long = await send(alice.token, body, { 'idempotency-key': 'k'.repeat(201) })
    assert.equal(long.status, 400)
    assert.match(long.json.error.message, /^headers: "idempotency-key": /)
  })

  test('a key is the same in every script, in the header as in the field; half a character is none', async () => {
    const { alice, bob } = await seed(database, 'idem-scripts', ['alice', 'bob'])
    const body = { to: 'bob', content: 'once' }
    const inHeader = (bytes: Buffer) => ({ 'idempotency-key': bytes.toString('latin1') })
    // Each has bytes that are control characters in Latin-1, and the last has 200 characters of four bytes.
    for (const key of ['ключ', 'é', '日本語', '🧩'.repeat(200)]) {
      const first = await send(alice.token, { ...body, idempotency_key: key })
      const second = await send(alice.token, body, inHeader(Buffer.from(key)))
      const both = await send(alice.token, { ...body, idempotency_key: key }, inHeader(Buffer.from(key)))
      assert.deepEqual([first.status, second.status, both.status], [201, 201, 201], key)
      assert.equal(new Set([first, second, both].map(({ json }) => json.message_id)).size, 1, key)
    }
    const { message_id } = (await call(app, 'POST', '/api/inbox/fetch', { token: bob.token })).json.new[0]
    for (const key of ['\ud800', '\ud801', 'x\udc00']) {
      const keyed = { ...body, idempotency_key: key }
      const reply = { content: 'y', idempotency_key: key }
      for (const answer of [
        await send(alice.token, keyed),
        await call(app, 'POST', `/api/messages/${message_id}/reply`, { token: bob.token, body: reply }),
      ]) {
        assert.equal(answer.status, 400)
        assert.match(answer.json.error.message, /^body: "idempotency_key": .*half a character/)
      }
    }
    for (const bytes of [Buffer.from('é', 'latin1'), Buffer.from('k'.repeat(201))]) {
      const refused = await send(alice.token, body, inHeader(bytes))
      assert.equal(refused.status, 400)
      assert.match(refused.json.error.message, /^headers: "idempotency-key": /)
    }
  })

  test('POST past the rate is 429 with Retry-After', async () => {
    const { alice } = await seed(database, 'rate', ['alice', 'bob'])
    const startedAt = performance.now()
    const answers = await Promise.all(
      Array.from({ length: 40 }, () => send(alice.token, { to: 'bob', content: 'x', kind: 'report' })),
    )
    const refused = answers.filter(({ status }) => status === 429)
    const refilled = Math.floor((performance.now() - startedAt) / 2_000) + 1
    assert.ok(refused.length <= 10 && refused.length >= 10 - refilled, `${refused.length} of 40 refused`)
    for (const { json, headers } of refused) {
      assert.equal(json.error.code, 'rate_limited')
      assert.ok(Number(headers.get('retry-after')) >= 1)
    }
  })

  test('a send past messages that were not read is refused once, with these messages', async () => {
    const { alice, bob } = await seed(database, 'gate', ['alice', 'bob'])
    await send(bob.token, { to: 'alice', content: 'read me first' })
    const gated = await send(alice.token, { to: 'bob', content: 'x' })
    assert.equal(gated.status, 409)
    assert.equal(gated.json.error.code, 'gated')
    assert.deepEqual(
      gated.json.error.details.messages.map(({ content }: { content: string }) => content),
      ['read me first'],
    )
    assert.equal((await send(alice.token, { to: 'bob', content: 'x' })).status, 201)
  })

  test('POST :id/reply answers in the thread of the message and settles it', async () => {
    const { alice, bob } = await seed(database, 'reply', ['alice', 'bob'])
    const { message_id } = (await send(alice.token, { to: 'bob', content: 'q', thread: 'deploy' })).json
    await call(app, 'POST', '/api/inbox/fetch', { token: bob.token })
    const path = `/api/messages/${message_id}/reply`
    const headers = { 'idempotency-key': 'r1' }
    const answer = await call(app, 'POST', path, { token: bob.token, body: { content: 'a' }, headers })
    assert.equal(answer.status, 200)
    assert.equal(answer.json.state, 'answered')
    assert.equal(answer.json.sent.thread, 'deploy')
    const again = await call(app, 'POST', path, { token: bob.token, body: { content: 'a', idempotency_key: 'r1' } })
    assert.equal(again.json.sent.message_id, answer.json.sent.message_id)
    const empty = await call(app, 'POST', path, { token: bob.token, body: {} })
    assert.equal(empty.status, 400)
    assert.equal(empty.json.error.message, 'A reply needs content.')
    const named = await call(app, 'POST', path, { token: bob.token, body: { message_id, content: 'a' } })
    assert.equal(named.json.error.message, 'body: unknown field "message_id".')
  })

  test('GET lists history, page by page, and never text that is still new to the caller', async () => {
    const { alice, bob } = await seed(database, 'recall', ['alice', 'bob'])
    for (const content of ['one', 'two', 'three']) await send(alice.token, { to: 'bob', content })
    const contents = async (token: string, query: string) => {
      const { json } = await call(app, 'GET', `/api/messages${query}`, { token })
      return [json.messages.map(({ content }: { content: string }) => content), json.next_offset]
    }
    assert.deepEqual(await contents(bob.token, ''), [[], null])
    assert.deepEqual(await contents(alice.token, '?limit=2'), [['three', 'two'], 2])
    assert.deepEqual(await contents(alice.token, '?limit=2&offset=2'), [['one'], null])
    await call(app, 'POST', '/api/inbox/fetch', { token: bob.token })
    assert.deepEqual(await contents(bob.token, '?from=alice'), [['three', 'two', 'one'], null])
    assert.deepEqual(await contents(bob.token, '?from=bob'), [[], null])
    for (const query of ['?limit=0', '?limit=51', '?limit=x', '?offset=-1', '?message_id=1', '?thread=A']) {
      assert.equal((await call(app, 'GET', `/api/messages${query}`, alice)).status, 400, query)
    }
  })

  test('GET :id is the message in full, 8,000 characters at a time', async () => {
    const { alice } = await seed(database, 'one', ['alice', 'bob'])
    const content = `${'x'.repeat(8_000)}the rest`
    const { message_id } = (await send(alice.token, { to: 'bob', content })).json
    const first = (await call(app, 'GET', `/api/messages/${message_id}`, alice)).json
    assert.equal(first.content, 'x'.repeat(8_000))
    assert.deepEqual([first.from, first.to, first.content_length], ['alice', ['bob'], content.length])
    const rest = (await call(app, 'GET', `/api/messages/${message_id}?offset=${first.next_offset}`, alice)).json
    assert.deepEqual([rest.content, rest.next_offset], ['the rest', null])
  })

  test('an id of somebody else answers exactly like one that does not exist, on every call', async () => {
    const { alice } = await seed(database, 'mine', ['alice', 'bob'])
    const { eve } = await seed(database, 'theirs', ['eve'])
    const { message_id } = (await send(alice.token, { to: 'bob', content: 'private' })).json
    for (const [method, suffix, body] of [
      ['GET', '', undefined],
      ['GET', '/status', undefined],
      ['DELETE', '', undefined],
      ['POST', '/done', undefined],
      ['POST', '/defer', undefined],
      ['POST', '/reply', { content: 'x' }],
    ] as const) {
      const [theirs, none] = await Promise.all(
        [message_id, UNKNOWN_ID].map((id) =>
          call(app, method, `/api/messages/${id}${suffix}`, { token: eve.token, body }),
        ),
      )
      assert.equal(theirs?.status, 404, `${method} ${suffix}`)
      assert.deepEqual([theirs?.status, theirs?.json], [none?.status, none?.json], `${method} ${suffix}`)
    }
  })
})

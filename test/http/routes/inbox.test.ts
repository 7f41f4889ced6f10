import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { sendMessage } from '../../../server/domain/messages.ts'
import { call, startTestApp, type TestApp } from '../../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../../helpers/database.ts'
import { seed } from '../../helpers/seed.ts'

describe('/api/inbox', () => {
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

  test('GET shows who waits, oldest first, without text, and changes nothing', async () => {
    const { alice, bob, carol } = await seed(database, 'peek', ['alice', 'bob', 'carol'])
    const first = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'first' }))
    const second = await carol((scope) => sendMessage(scope, { to: 'bob', content: 'second' }))
    const expected = {
      agent_id: 'bob',
      namespace_id: 'peek',
      pending_count: 2,
      pending: [
        { message_id: first.message_id, from: 'alice', sent_at: first.sent_at },
        { message_id: second.message_id, from: 'carol', sent_at: second.sent_at },
      ],
    }
    for (const query of ['', '?status=new', '?status=pending&limit=100', '?count_only=1', '?count_only=true&limit=0']) {
      const answer = await call(app, 'GET', `/api/inbox${query}`, bob)
      assert.equal(answer.status, 200)
      assert.deepEqual(answer.json, expected, query)
      assert.equal(answer.headers.get('cache-control'), 'no-store')
    }
    const none = await call(app, 'GET', '/api/inbox?limit=0', bob)
    assert.deepEqual([none.json.pending_count, none.json.pending], [2, []])
  })

  test('previews belong to what was fetched', async () => {
    const { alice, bob } = await seed(database, 'preview', ['alice', 'bob'])
    await alice((scope) => sendMessage(scope, { to: 'bob', content: 'the text' }))
    await call(app, 'POST', '/api/inbox/fetch', { token: bob.token })
    const open = await call(app, 'GET', '/api/inbox?status=open', bob)
    assert.equal(open.json.pending[0].preview, 'the text')
    const count = await call(app, 'GET', '/api/inbox?status=open&count_only=1', bob)
    assert.equal(count.json.pending[0].preview, undefined)
    assert.equal((await call(app, 'GET', '/api/inbox?status=deferred', bob)).json.pending_count, 0)
  })

  test('a query that is not of the contract is 400', async () => {
    const { bob } = await seed(database, 'query', ['bob'])
    for (const query of ['status=read', 'limit=-1', 'limit=101', 'limit=1.5', 'count_only=2', 'agent=alice']) {
      assert.equal((await call(app, 'GET', `/api/inbox?${query}`, bob)).status, 400, query)
    }
  })

  test('POST fetch gives the new messages in full and marks others done, with or without a body', async () => {
    const { alice, bob } = await seed(database, 'fetch', ['alice', 'bob'])
    const { message_id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'hello' }))
    const first = await call(app, 'POST', '/api/inbox/fetch', { token: bob.token })
    assert.equal(first.status, 200)
    assert.deepEqual(first.json.counts, { new: 1, open: 0, deferred: 0 })
    assert.equal(first.json.new[0].content, 'hello')
    const empty = { token: bob.token, headers: { 'content-type': 'application/json' }, body: '' }
    const again = await call(app, 'POST', '/api/inbox/fetch', empty)
    assert.equal(again.json.again[0].message_id, message_id)
    const body = { done: [message_id], all_agents: true }
    const settled = await call(app, 'POST', '/api/inbox/fetch', { token: bob.token, body })
    assert.deepEqual(settled.json.settled, [{ message_id, state: 'done' }])
    assert.deepEqual(settled.json.counts, { new: 0, open: 0, deferred: 0 })
  })

  test('POST fetch with ids that are none is 400 and names the place', async () => {
    const { bob } = await seed(database, 'ids', ['bob'])
    const answer = await call(app, 'POST', '/api/inbox/fetch', { token: bob.token, body: { done: ['x'] } })
    assert.equal(answer.status, 400)
    assert.equal(answer.json.error.message, 'body: "done.0": Invalid UUID.')
  })
})

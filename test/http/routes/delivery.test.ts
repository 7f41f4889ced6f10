import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { fetchInbox } from '../../../server/domain/inbox.ts'
import { sendMessage } from '../../../server/domain/messages.ts'
import { call, startTestApp, type TestApp } from '../../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../../helpers/database.ts'
import { seed } from '../../helpers/seed.ts'

describe('the delivery of a message', () => {
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

  async function prepare(namespace: string) {
    const { alice, bob } = await seed(database, namespace, ['alice', 'bob'])
    const { message_id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
    return { alice, bob, message_id, path: `/api/messages/${message_id}` }
  }

  test('done and defer move what was fetched; what is new or settled stays as it is', async () => {
    const { bob, message_id, path } = await prepare('settle')
    const early = await call(app, 'POST', `${path}/done`, bob)
    assert.equal(early.status, 409)
    assert.equal(early.json.error.code, 'conflict')
    await bob((scope) => fetchInbox(scope, {}))
    const deferred = await call(app, 'POST', `${path}/defer`, bob)
    assert.deepEqual([deferred.status, deferred.json], [200, { message_id, state: 'deferred' }])
    const done = await call(app, 'POST', `${path}/done`, bob)
    assert.deepEqual([done.status, done.json], [200, { message_id, state: 'done' }])
    assert.deepEqual((await call(app, 'POST', `${path}/done`, bob)).json, { message_id, state: 'done' })
    assert.equal((await call(app, 'POST', `${path}/defer`, bob)).status, 409)
  })

  test('status gives each step with its time to the sender', async () => {
    const { alice, bob, path } = await prepare('status')
    await bob((scope) => fetchInbox(scope, {}))
    const answer = await call(app, 'GET', `${path}/status`, alice)
    assert.equal(answer.status, 200)
    const [recipient] = answer.json.recipients
    assert.deepEqual([answer.json.from, recipient.agent, recipient.state], ['alice', 'bob', 'open'])
    assert.deepEqual(
      recipient.steps.map(({ step }: { step: string }) => step),
      ['accepted', 'fetched'],
    )
  })

  test('DELETE takes a message back while it is new, and is too late afterwards', async () => {
    const { alice, bob, message_id, path } = await prepare('unsend')
    const unsent = await call(app, 'DELETE', path, alice)
    assert.deepEqual(unsent.json, { message_id, recipients: [{ agent: 'bob', state: 'unsent' }] })
    assert.equal((await call(app, 'GET', '/api/inbox', bob)).json.pending_count, 0)
    const second = await prepare('late')
    await second.bob((scope) => fetchInbox(scope, {}))
    const late = await call(app, 'DELETE', second.path, second.alice)
    assert.equal(late.status, 409)
    assert.deepEqual(late.json.error.details, { recipients: [{ agent: 'bob', state: 'open' }] })
  })

  test('only the sender can take a message back', async () => {
    const { bob, path } = await prepare('mine')
    assert.equal((await call(app, 'DELETE', path, bob)).status, 404)
  })
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createLogger } from '../../server/http/log.ts'
import { call, startTestApp } from '../helpers/app.ts'
import { createTestDatabase } from '../helpers/database.ts'
import { seed } from '../helpers/seed.ts'

test('no token, text, header or host name gets into the log, even at its most talkative', async () => {
  const database = await createTestDatabase()
  const { alice, bob } = await seed(database, 'acme', ['alice', 'bob'])
  const app = await startTestApp(database, { logLevel: 'trace' })
  const content = 'the text of a message'
  const { token } = alice
  await call(app, 'POST', '/api/messages', { token, body: { to: 'bob', content } })
  const ticket = await call(app, 'GET', '/api/realtime/ticket', bob)
  await call(app, 'GET', `/api/messages?thread=${token}`, { token })
  await call(app, 'GET', `/api/${token}?apikey=${ticket.json.jwt}`, { token })
  await call(app, 'GET', `/${ticket.json.jwt}`, { token })
  const code = 'c'.repeat(43)
  for (const way of ['login', 'invite']) await call(app, 'GET', `/${way}/${code}?x=1`)
  await call(app, 'POST', '/mcp', { token, body: { jsonrpc: '2.0', id: 1, method: 'tools/list', params: { content } } })
  await database.admin`alter table patchcord.message_bodies add constraint broken check (content <> 'the broken text')`
  const broken = await call(app, 'POST', '/api/messages', { token, body: { to: 'alice', content: 'the broken text' } })
  await app.close()
  await database.drop()
  assert.equal(broken.status, 500)
  const log = app.logs.join('')
  assert.match(log, /"path":"\/api\/messages"/)
  assert.match(log, /request failed/)
  for (const secret of [token, bob.token, alice.tokenHash, ticket.json.jwt, ticket.json.apikey, code]) {
    assert.ok(!log.includes(secret), secret.slice(0, 8))
  }
  for (const text of [content, 'the broken text', 'authorization', 'Bearer', '"hostname"']) {
    assert.ok(!log.toLowerCase().includes(text.toLowerCase()), text)
  }
})

test('what a careless line would say is redacted, causes of errors included', () => {
  const lines: string[] = []
  const log = createLogger('info', { write: (line) => void lines.push(line) })
  const token = `pc_${'a'.repeat(49)}`
  const cause = Object.assign(new Error(`inner ${token}`), { detail: 'Failing row contains (secret text)' })
  log.error({ err: new Error('outer', { cause }), headers: { authorization: 'Basic c2VjcmV0' }, token: 'short' }, token)
  const line = JSON.parse(lines[0] ?? '')
  assert.equal(line.msg, '[redacted]')
  assert.equal(line.err.message, 'outer')
  assert.equal(line.err.cause.message, 'inner [redacted]')
  assert.ok(!lines.join('').includes('secret text'))
  assert.ok(!lines.join('').includes('c2VjcmV0'))
  assert.ok(!lines.join('').includes('short'))
})

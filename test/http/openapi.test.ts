import assert from 'node:assert/strict'
import { test } from 'node:test'
import { call, startTestApp } from '../helpers/app.ts'
import { createTestDatabase } from '../helpers/database.ts'

/** The table of the contract. */
const CALLS = [
  'delete /api/lease',
  'delete /api/messages/{id}',
  'get /api/agents',
  'get /api/inbox',
  'get /api/messages',
  'get /api/messages/{id}',
  'get /api/messages/{id}/status',
  'get /api/realtime/ticket',
  'get /api/whoami',
  'get /health',
  'post /api/inbox/fetch',
  'post /api/messages',
  'post /api/messages/{id}/defer',
  'post /api/messages/{id}/done',
  'post /api/messages/{id}/reply',
  'put /api/lease',
  'put /api/presence',
]

interface Operation {
  summary?: string
  tags?: string[]
  security?: object[]
  parameters?: { name: string; in: string }[]
  requestBody?: { content: Record<string, { schema: { properties?: object } }> }
  responses: Record<string, unknown>
}

test('/openapi.json describes exactly the calls of the contract', async () => {
  const database = await createTestDatabase()
  const app = await startTestApp(database, { config: { publicUrl: new URL('https://patchcord.example.com') } })
  const { status, json } = await call(app, 'GET', '/openapi.json')
  await app.close()
  await database.drop()
  assert.equal(status, 200)
  assert.match(json.openapi, /^3\./)
  assert.deepEqual(json.info.version, '0.0.0-test')
  assert.deepEqual(json.servers, [{ url: 'https://patchcord.example.com/' }])
  const operations = new Map<string, Operation>()
  for (const [path, methods] of Object.entries(json.paths as Record<string, Record<string, Operation>>)) {
    for (const [method, operation] of Object.entries(methods)) operations.set(`${method} ${path}`, operation)
  }
  assert.deepEqual([...operations.keys()].sort(), CALLS)
  for (const [name, operation] of operations) {
    assert.ok(operation.summary && operation.tags?.length, name)
    if (!name.includes('/api/')) continue
    assert.deepEqual(operation.security, [{ token: [] }], name)
    assert.ok(operation.responses.default, `${name} says how it fails`)
  }
  const send = operations.get('post /api/messages')
  const body = send?.requestBody?.content['application/json']?.schema
  assert.deepEqual(Object.keys(body?.properties ?? {}).slice(0, 2), ['to', 'content'])
  assert.ok(send?.parameters?.some((parameter) => parameter.in === 'header' && parameter.name === 'idempotency-key'))
  const peek = operations.get('get /api/inbox')?.parameters?.map(({ name }) => name)
  assert.deepEqual(peek, ['status', 'limit', 'count_only'])
})

import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { traceOf } from '../../server/http/trace.ts'
import { call, startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const PARENT = '00f067aa0ba902b7'
const FRESH = /^[\da-f]{32}$/
const read = (traceparent: string) => traceOf({ headers: { traceparent } })

test('a traceparent as the standard has it gives its trace id, those of later versions too', () => {
  assert.equal(read(`00-${TRACE}-${PARENT}-01`), TRACE)
  assert.equal(read(`00-${TRACE}-${PARENT}-00`), TRACE)
  assert.equal(read(`01-${TRACE}-${PARENT}-01-what-comes-later`), TRACE)
})

test('anything else gives a fresh trace id, each time another one, and nothing of it goes on', () => {
  const wrong = [
    '',
    TRACE,
    `ff-${TRACE}-${PARENT}-01`,
    `00-${'0'.repeat(32)}-${PARENT}-01`,
    `00-${TRACE}-${'0'.repeat(16)}-01`,
    `00-${TRACE.toUpperCase()}-${PARENT}-01`,
    `00-${TRACE}-${PARENT}-01-more`,
    `00-${TRACE}-${PARENT}-01\n`,
    ` 00-${TRACE}-${PARENT}-01`,
    `00-${TRACE}-${PARENT}`,
    `00-${TRACE}x-${PARENT}-01`,
    `00-${TRACE.slice(1)}-${PARENT}-01`,
    `01-${TRACE}-${PARENT}-01-${'x'.repeat(100_000)}`,
    `00-${TRACE}-${PARENT}-01, 00-${TRACE}-${PARENT}-01`,
    '{"level":60,"msg":"forged"}',
  ]
  const given = wrong.map(read)
  for (const [index, trace] of given.entries()) {
    assert.match(trace, FRESH, wrong[index])
    assert.ok(!wrong[index]?.toLowerCase().includes(trace), wrong[index])
  }
  given.push(traceOf({ headers: {} }))
  assert.equal(new Set(given).size, given.length)
})

describe('the trace of a request', () => {
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

  const linesWith = (text: string) => app.logs.filter((line) => line.includes(text)).map((line) => JSON.parse(line))

  test('is told in x-request-id and stands in the log lines of routes, errors and pages', async () => {
    for (const path of ['/health', '/api/whoami', '/login', '/nothing-here', '/mcp']) {
      const { headers } = await call(app, 'GET', path)
      const trace = headers.get('x-request-id') ?? ''
      assert.match(trace, FRESH, path)
      assert.ok(
        linesWith(trace).some((line) => line.trace === trace && line.msg === 'request answered'),
        path,
      )
    }
  })

  test('is the one of a caller who has one, and never a header’s own text', async () => {
    const headers = { traceparent: `00-${TRACE}-${PARENT}-01`, 'x-request-id': 'chosen-by-the-caller' }
    assert.equal((await call(app, 'GET', '/health', { headers })).headers.get('x-request-id'), TRACE)
    const hostile = ['x","level":60,"msg":"forged', 'pc_secret\u00e9', `00-${TRACE}-${PARENT}-01;DROP`]
    for (const traceparent of hostile) {
      const answer = await call(app, 'GET', '/health', { headers: { traceparent } })
      assert.match(answer.headers.get('x-request-id') ?? '', FRESH)
    }
    const log = app.logs.join('')
    for (const text of ['forged', 'DROP', 'pc_secret', 'chosen-by-the-caller']) assert.ok(!log.includes(text), text)
  })

  test('a second traceparent header makes both of them none', async () => {
    const { port } = new URL(app.url)
    const socket = connect({ host: '127.0.0.1', port: Number(port) })
    const header = `traceparent: 00-${TRACE}-${PARENT}-01\r\n`
    socket.write(`GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n${header}${header}\r\n`)
    let text = ''
    for await (const chunk of socket) text += chunk
    const trace = /x-request-id: (\S+)/.exec(text)?.[1] ?? ''
    assert.match(trace, FRESH)
    assert.notEqual(trace, TRACE)
  })
})

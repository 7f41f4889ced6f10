import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect as connectTcp } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { connect } from '../../server/db/connect.ts'
import { createTokenText } from '../../server/domain/tokens.ts'
import { call, startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const NOWHERE = {
  error: { code: 'not_found', message: 'There is nothing at this address.', hint: '/openapi.json lists the calls.' },
}

describe('errors', () => {
  let database: TestDatabase
  let app: TestApp
  let alice: SeededAgent
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database, { timeouts: { headersMs: 300, requestMs: 600, checkMs: 50 } })
    alice = (await seed(database, 'acme', ['alice', 'bob'])).alice
  })
  after(async () => {
    await app.close()
    await database.drop()
  })

  const send = (body: unknown, headers: Record<string, string> = {}) =>
    call(app, 'POST', '/api/messages', { token: alice.token, body, headers })

  /** What the server answers to these bytes until it closes the connection, the last of them after a while. */
  async function speak(first: string, ...later: string[]): Promise<string> {
    const socket = connectTcp({ port: Number(new URL(app.url).port), host: '127.0.0.1' })
    let answer = ''
    socket.setEncoding('utf8').on('data', (text: string) => {
      answer += text
    })
    socket.on('error', () => undefined)
    socket.write(first)
    for (const text of later) {
      await new Promise((resolve) => setTimeout(resolve, 100))
      if (socket.writable) socket.write(text)
    }
    if (!socket.closed) await once(socket, 'close')
    return answer
  }

  test('what does not exist is a JSON 404, well-known addresses and other methods too', async () => {
    const paths = ['/nowhere', '/api', '/api/nowhere', '/mcp/nowhere', '/api/messages/1/2/3']
    const wellKnown = ['/.well-known/oauth-protected-resource', '/.well-known/oauth-protected-resource/mcp']
    for (const path of [
      ...paths,
      ...wellKnown,
      '/.well-known/oauth-authorization-server',
      '/.well-known/x/mcp/bearer',
    ]) {
      for (const method of ['GET', 'POST']) {
        const answer = await call(app, method, path, { token: alice.token })
        assert.equal(answer.status, 404, path)
        assert.deepEqual(answer.json, NOWHERE, path)
      }
    }
    const answer = await call(app, 'PATCH', '/api/whoami', { token: alice.token })
    assert.deepEqual(answer.json, NOWHERE)
  })

  test('a body over 50,000 characters is 413, and so is one that no message can fill', async () => {
    const long = await send({ to: 'bob', content: 'é'.repeat(50_001) })
    assert.equal(long.status, 413)
    assert.deepEqual(long.json, {
      error: {
        code: 'too_large',
        message: 'The text is longer than 50000 characters. Nothing was stored.',
        hint: 'Send the gist, and where the rest can be found.',
      },
    })
    const huge = await send({ to: 'bob', content: 'x'.repeat(1_000_000) })
    assert.equal(huge.status, 413)
    assert.deepEqual(huge.json, {
      error: {
        code: 'too_large',
        message: 'The request body is too large.',
        hint: 'Send the gist, and where the rest can be found.',
      },
    })
    assert.equal((await send({ to: 'bob', content: '😀'.repeat(50_000) })).status, 201)
  })

  test('what is not JSON is 415, what is broken JSON 400', async () => {
    for (const type of [
      'text/plain',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'text/json',
    ]) {
      const answer = await send('{"to":"bob","content":"x"}', { 'content-type': type })
      assert.equal(answer.status, 415, type)
      assert.deepEqual(answer.json, {
        error: {
          code: 'unsupported_media_type',
          message: 'The request body must be JSON.',
          hint: 'Send the header "Content-Type: application/json".',
        },
      })
    }
    for (const body of ['{', 'nope', '{"to":"bob"', '{"__proto__":{"a":1}}', '\u0000']) {
      const answer = await send(body)
      assert.equal(answer.status, 400, body)
      assert.deepEqual(answer.json, { error: { code: 'invalid', message: 'The request body is not valid JSON.' } })
    }
  })

  test('a wrong field is named, and a field that was renamed is told its new name', async () => {
    const cases: [unknown, object][] = [
      [
        { to_agent: 'bob', content: 'x' },
        { message: 'body: "to_agent" is called "to" now.', hint: 'Use "to".' },
      ],
      [
        { to: 'bob', content: 'x', from_agent: 'a' },
        { message: 'body: "from_agent" is called "from" now.', hint: 'Use "from".' },
      ],
      [{ content: 'x' }, { message: 'body: "to" is missing.' }],
      [{ to: 'bob', content: 'x', colour: 1 }, { message: 'body: unknown field "colour".' }],
      [{ to: 'bob', content: 7 }, { message: 'body: "content": Invalid input: expected string, received number.' }],
      [
        { to: 'bob', content: 'x', thread: 'No Slug' },
        { message: 'body: "thread": a thread is 1 to 64 of a-z, 0-9 and hyphen.' },
      ],
      [[], { message: 'body: Invalid input: expected object, received array.' }],
      ['', { message: 'The body is missing.' }],
      [undefined, { message: 'The body is missing.' }],
    ]
    for (const [body, error] of cases) {
      const answer = await send(body)
      assert.equal(answer.status, 400)
      assert.deepEqual(answer.json, { error: { code: 'invalid', ...error } })
    }
  })

  test('a query or path that is not valid is 400 and names the field, never the value', async () => {
    for (const [path, message] of [
      ['/api/inbox?limit=101', 'query: "limit": Too big: expected number to be <=100.'],
      ['/api/inbox?secret=1', 'query: unknown field "secret".'],
      ['/api/messages?from_agent=bob', 'query: "from_agent" is called "from" now.'],
      ['/api/messages/no-uuid', 'path: "id": Invalid UUID.'],
      ['/api/%zz', 'The URL is not valid.'],
    ] as const) {
      const answer = await call(app, 'GET', path, { token: alice.token })
      assert.equal(answer.status, 400, path)
      assert.equal(answer.json.error.code, 'invalid')
      assert.equal(answer.json.error.message, message)
    }
  })

  test('what is no HTTP at all is answered in the same form and cut off', async () => {
    const garbage = await speak('hello\r\n\r\n')
    assert.match(garbage, /^HTTP\/1\.1 400 Bad Request\r\n/)
    assert.ok(garbage.endsWith('\r\n\r\n{"error":{"code":"invalid","message":"The request is not valid HTTP."}}'))
    const heavy = await speak(`GET / HTTP/1.1\r\nhost: localhost\r\nx: ${'x'.repeat(40_000)}\r\n\r\n`)
    assert.match(heavy, /^HTTP\/1\.1 431 /)
    assert.match(heavy, /"message":"The request headers are too large\."/)
  })

  test('a connection that sends nothing, headers drop by drop or half a body is cut off', async () => {
    const drops = Array.from({ length: 15 }, (_, index) => `x-${index}: y\r\n`)
    const head = 'POST /api/messages HTTP/1.1\r\nhost: localhost\r\n'
    const [silent, slow, half] = await Promise.all([
      speak(''),
      speak(head, ...drops),
      speak(
        `${head}authorization: Bearer ${alice.token}\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{`,
      ),
    ])
    for (const answer of [silent, slow, half]) {
      assert.match(answer, /^HTTP\/1\.1 408 Request Timeout\r\n/)
      assert.match(answer, /\{"error":\{"code":"invalid","message":"The request came too slowly\."\}\}/)
    }
  })

  test('an error that nobody foresaw is logged once and tells the caller nothing', async () => {
    await database.admin`alter function patchcord.settle_messages(text, uuid[], text) rename to settle_gone`
    app.logs.length = 0
    const id = '01890000-0000-7000-8000-00000000abcd'
    const answer = await call(app, 'POST', `/api/messages/${id}/done`, { token: alice.token })
    await database.admin`alter function patchcord.settle_gone(text, uuid[], text) rename to settle_messages`
    assert.equal(answer.status, 500)
    assert.deepEqual(answer.json, { error: { code: 'internal', message: 'Something went wrong on the server.' } })
    const errors = app.logs.map((line) => JSON.parse(line)).filter(({ level }) => level >= 50)
    assert.equal(errors.length, 1)
    assert.equal(errors[0].err.code, '42883')
    assert.ok(!app.logs.join('').includes(alice.tokenHash))
  })
})

test('a database that is away is 503 with Retry-After, and nothing about it', async () => {
  const api = connect({ url: 'postgres://patchcord_api:secret@127.0.0.1:1/x' }, { max: 1, applicationName: 'test' })
  const app = await startTestApp({ api })
  const answer = await call(app, 'GET', '/api/whoami', { token: createTokenText() })
  await app.close()
  await api.end({ timeout: 1 })
  assert.equal(answer.status, 503)
  assert.equal(answer.headers.get('retry-after'), '2')
  assert.deepEqual(answer.json, {
    error: {
      code: 'unavailable',
      message: 'The database does not answer right now.',
      hint: 'Nothing is known to be stored: try again with the same idempotency key.',
    },
  })
})

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Sql } from '../../server/db/connect.ts'
import { createTokenText } from '../../server/domain/tokens.ts'
import { call, startTestApp, type TestApp, type TestAppOptions } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { openRaw, sendRaw, toolCall } from '../helpers/mcp.ts'
import { seed } from '../helpers/seed.ts'

const MEGABYTE = 1024 * 1024
const BODY_BYTES = 64 * MEGABYTE
const WAITERS = 200

/** What a flood may not do to the others; `npm run flood` measures how long they wait meanwhile. */
describe('under a flood', { timeout: 120_000 }, () => {
  let database: TestDatabase
  before(async () => {
    database = await createTestDatabase()
  })
  after(() => database.drop())

  type Test = { after(close: () => Promise<void>): void }
  async function start(t: Test, options: TestAppOptions = {}, sql: Sql = database.api): Promise<TestApp> {
    const app = await startTestApp({ api: sql }, options)
    t.after(() => app.close())
    return app
  }

  test('of 200 waits of one agent 20 stay, each of the others hears why, and another agent gets what it waits for', async (t) => {
    const app = await start(t, { limits: { refusalsPerMinuteMax: 1_000 } })
    const { alice, bob } = await seed(database, 'waits', ['alice', 'bob', 'carol'])
    const wait = { token: alice.token, ...toolCall('legacy', 1, 'wait_for_message', { timeout_seconds: 100 }) }
    let refused = 0
    const waits = Array.from({ length: WAITERS }, () => openRaw(app, wait))
    const ends = waits.map(async ({ response }) => {
      let text = ''
      for await (const chunk of (await response).setEncoding('utf8')) text += chunk
      if (text.includes('This agent already waits 20 times')) refused++
      return text
    })
    await until(() => refused === WAITERS - 20)
    const other = sendRaw(app, {
      token: bob.token,
      ...toolCall('legacy', 1, 'wait_for_message', { timeout_seconds: 100 }),
    })
    await until(() => [...app.deps.waiters.agentIds()].length === 2)
    const sent = await call(app, 'POST', '/api/messages', { ...alice, body: { to: 'bob', content: 'still here' } })
    assert.equal(sent.status, 201)
    assert.match((await other).text, /still here/)
    app.deps.waiters.close()
    assert.equal((await Promise.all(ends)).filter((text) => text.includes('restarting')).length, 20)
  })

  test('calls of one agent that all wait for its row leave the database to the others', async (t) => {
    const app = await start(t)
    const { alice, bob } = await seed(database, 'row', ['alice', 'bob'])
    let release = () => {}
    const released = new Promise<void>((resolve) => {
      release = resolve
    })
    const isLocked = new Promise<void>((locked) => {
      void database.admin.begin(async (sql) => {
        await sql`select from patchcord.tokens where id = ${alice.tokenId} for update`
        locked()
        await released
      })
    })
    await isLocked
    const send = (token: string, to: string) =>
      call(app, 'POST', '/api/messages', { token, body: { to, content: 'hello', kind: 'report' } })
    const stuck = Array.from({ length: 50 }, () => send(alice.token, 'bob'))
    await sleep(500)
    const free = send(bob.token, 'alice')
    const first = await Promise.race([free, ...stuck, sleep(10_000)])
    release()
    assert.equal(first?.status, 201)
    assert.equal(first, await free)
    const statuses = (await Promise.all(stuck)).map(({ status }) => status)
    assert.equal(statuses.filter((status) => status === 201).length, 30, 'the bucket counts as ever')
  })

  for (const { name, hasToken, isChunked, status } of [
    { name: 'with its length before it', hasToken: true, isChunked: false, status: 413 },
    { name: 'in chunks', hasToken: true, isChunked: true, status: 413 },
    { name: 'without a token', hasToken: false, isChunked: true, status: 401 },
  ]) {
    test(`64 MB in a body ${name} are answered with ${status} and not read`, async (t) => {
      const app = await start(t)
      const { alice } = await seed(database, `body-${status}-${isChunked ? 'chunked' : 'long'}`, ['alice'])
      const accepted = once(app.app.server, 'connection') as Promise<[Socket]>
      const { socket, text, closed } = open(app)
      const [serverSide] = await accepted
      const headers = [
        ...(hasToken ? [`authorization: Bearer ${alice.token}`] : []),
        isChunked ? 'transfer-encoding: chunked' : `content-length: ${BODY_BYTES}`,
        'content-type: application/json',
      ]
      socket.write(`POST /api/messages HTTP/1.1\r\nhost: 127.0.0.1\r\n${headers.join('\r\n')}\r\n\r\n`)
      await writeBody(socket, closed, isChunked)
      await closed
      assert.match(text(), new RegExp(`^HTTP/1.1 ${status} `))
      assert.match(text(), /\r\nconnection: close\r\n/i)
      assert.ok(serverSide.bytesRead < 8 * MEGABYTE, `${serverSide.bytesRead} bytes were read`)
    })
  }

  test('who sends a byte now and then is cut off, and holds nobody up meanwhile', async (t) => {
    const app = await start(t, { timeouts: { headersMs: 1_000, requestMs: 2_000, checkMs: 100 } })
    const { alice } = await seed(database, 'slow', ['alice'])
    const head = 'POST /api/messages HTTP/1.1\r\nhost: 127.0.0.1\r\n'
    const body = `${head}authorization: Bearer ${alice.token}\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n`
    const slow = Array.from({ length: 200 }, (_, index) => {
      const connection = open(app)
      connection.socket.write(index % 2 ? head : body)
      const timer = setInterval(() => connection.socket.write('x'), 200)
      void connection.closed.then(() => clearInterval(timer))
      return connection
    })
    const startedAt = performance.now()
    for (let index = 0; index < 5; index++) assert.equal((await call(app, 'GET', '/api/whoami', alice)).status, 200)
    assert.ok(slow.every(({ socket }) => !socket.destroyed))
    await Promise.all(slow.map(({ closed }) => closed))
    assert.ok(performance.now() - startedAt < 20_000)
    assert.deepEqual(
      new Set(slow.map(({ text }) => text().split('\r\n', 1)[0])),
      new Set(['HTTP/1.1 408 Request Timeout']),
    )
  })

  test('10,000 requests without a token are all refused without a statement, while a valid token from there goes on', async (t) => {
    const { sql, count } = countStatements(database.api)
    const app = await start(t, {}, sql)
    const { alice } = await seed(database, 'tokenless', ['alice'])
    const ask = 'GET /api/inbox HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n'.repeat(10)
    const connections = Array.from({ length: 100 }, () => open(app))
    for (let round = 1; round <= 10; round++) {
      for (const { socket } of connections) socket.write(ask)
      await until(() => connections.every(({ text }) => text().split('HTTP/1.1 ').length === round * 10 + 1))
    }
    assert.equal(count(), 0)
    const statuses = connections.flatMap(({ text }) => text().match(/HTTP\/1\.1 \d+/g) ?? [])
    assert.equal(statuses.filter((status) => status.endsWith('401')).length, 20)
    assert.equal(statuses.filter((status) => status.endsWith('429')).length, 9_980)
    assert.equal((await call(app, 'GET', '/api/whoami', alice)).status, 200)
    assert.ok(count() > 0, 'statements are counted')
    for (const { socket } of connections) socket.destroy()
  })

  test('a token that is banned or unknown is looked up once a second, however often it comes', async (t) => {
    const { sql, count } = countStatements(database.api)
    const app = await start(t, { limits: { unauthenticatedPerMinute: 1_000 } }, sql)
    const { alice } = await seed(database, 'banned', ['alice'])
    await database.admin`
      update patchcord.tokens set banned_until = clock_timestamp() + interval '5 minutes' where id = ${alice.tokenId}`
    for (const { token, status } of [
      { token: alice.token, status: 429 },
      { token: createTokenText(), status: 401 },
    ]) {
      const [countBefore, startedAt] = [count(), performance.now()]
      assert.equal((await call(app, 'GET', '/api/whoami', { token })).status, status)
      const more = await Promise.all(Array.from({ length: 100 }, () => call(app, 'GET', '/api/whoami', { token })))
      const seconds = (performance.now() - startedAt) / 1_000
      assert.ok(more.every((answer) => answer.status === status))
      assert.ok(count() - countBefore <= Math.ceil(seconds), `${count() - countBefore} statements in ${seconds} s`)
    }
  })
})

function open({ url }: TestApp): { socket: Socket; text(): string; closed: Promise<unknown> } {
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  let text = ''
  socket.setEncoding('latin1').on('data', (chunk) => {
    text += chunk
  })
  socket.on('error', () => {}) // The server resets what it does not read; 'close' follows.
  return { socket, text: () => text, closed: new Promise((resolve) => socket.once('close', resolve)) }
}

/** All of it, unless the server closes before. */
async function writeBody(socket: Socket, closed: Promise<unknown>, isChunked: boolean): Promise<void> {
  const data = Buffer.alloc(64 * 1024, 'a')
  const piece = isChunked ? Buffer.concat([Buffer.from('10000\r\n'), data, Buffer.from('\r\n')]) : data
  for (let sent = 0; sent < BODY_BYTES && !socket.destroyed; sent += data.length) {
    if (socket.write(piece)) continue
    await Promise.race([new Promise((resolve) => socket.once('drain', resolve)), closed])
  }
}

function countStatements(sql: Sql): { sql: Sql; count(): number } {
  let count = 0
  const counting = new Proxy(sql, {
    apply(target, self, args) {
      count++
      return Reflect.apply(target as never, self, args)
    },
    get(target, name) {
      if (name === 'begin') count++
      return Reflect.get(target, name)
    },
  })
  return { sql: counting, count: () => count }
}

async function until(isTrue: () => boolean): Promise<void> {
  const deadline = performance.now() + 60_000
  while (!isTrue()) {
    assert.ok(performance.now() < deadline, 'never came true')
    await sleep(10)
  }
}

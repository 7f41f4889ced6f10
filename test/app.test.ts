import assert from 'node:assert/strict'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { connect } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import { call, startTestApp } from './helpers/app.ts'
import { createTestDatabase, type TestDatabase } from './helpers/database.ts'
import { connectMcp } from './helpers/processes.ts'
import { seed } from './helpers/seed.ts'

describe('a server that stops', () => {
  let database: TestDatabase
  before(async () => {
    database = await createTestDatabase()
  })
  after(() => database.drop())

  test('answers waiters, closes WebSockets with 1012, and takes no new connections', async () => {
    const { alice, bob } = await seed(database, 'stop', ['alice', 'bob'])
    const app = await startTestApp(database)
    const { json: ticket } = await call(app, 'GET', '/api/realtime/ticket', bob)
    const socket = new WebSocket(`${ticket.realtime_url}?apikey=${ticket.apikey}&vsn=1.0.0`)
    const socketClosed = once(socket, 'close')
    await once(socket, 'open')
    const mcp = await connectMcp(app.url, alice.token)
    const waiting = mcp.call('wait_for_message', { timeout_seconds: 60 })
    while ([...app.deps.waiters.agentIds()].length === 0) await sleep(10)
    const startedAt = performance.now()
    const closing = app.close()
    assert.match((await waiting).text, /restarting/i)
    const [code] = await socketClosed
    assert.equal(code, 1012)
    await mcp.close()
    await closing
    assert.ok(performance.now() - startedAt < 8_000)
    await assert.rejects(fetch(`${app.url}/health`))
  })

  test('lets requests under way end, and their connections with them', async () => {
    const { alice } = await seed(database, 'drain', ['alice'])
    const app = await startTestApp(database)
    const held = await holdTokens(database)
    const agent = new Agent({ keepAlive: true })
    const slow = call(app, 'GET', '/api/whoami', alice)
    const last = ask(`${app.url}/api/whoami`, alice.token, agent)
    await held.untilWaiting(2)
    const closing = app.app.close()
    await sleep(50)
    held.release()
    assert.equal((await slow).status, 200)
    assert.equal(await last, 200)
    const releasedAt = performance.now()
    await closing
    agent.destroy()
    assert.ok(performance.now() - releasedAt < 5_000, 'kept-alive connections do not hold it open')
  })

  test('is not held by a connection on which nothing was ever asked', async () => {
    const app = await startTestApp(database)
    const silent = connect(Number(new URL(app.url).port), '127.0.0.1')
    silent.on('error', () => {})
    await once(silent, 'connect')
    await call(app, 'GET', '/health')
    const startedAt = performance.now()
    await app.close()
    assert.ok(performance.now() - startedAt < 3_000)
    silent.destroy()
  })

  test('answers what comes while it drains with 503, Retry-After and the end of the connection', async () => {
    const { bob } = await seed(database, 'late', ['bob'])
    const app = await startTestApp(database)
    const { json: ticket } = await call(app, 'GET', '/api/realtime/ticket', bob)
    const socket = new WebSocket(`${ticket.realtime_url}?apikey=${ticket.apikey}&vsn=1.0.0`)
    await once(socket, 'open')
    // A client that does not answer the close frame holds the shutdown up for a second.
    socket.pause()
    const closing = app.close()
    await sleep(50)
    const late = await call(app, 'GET', '/api/whoami', bob)
    const mcp = await call(app, 'POST', '/mcp', { token: bob.token, body: {} })
    await closing
    socket.terminate()
    for (const answer of [late, mcp]) {
      assert.equal(answer.status, 503)
      assert.equal(answer.headers.get('retry-after'), '2')
      assert.equal(answer.headers.get('connection'), 'close')
      assert.deepEqual(answer.json, {
        error: { code: 'unavailable', message: 'The server is restarting.', hint: 'Call again.' },
      })
    }
  })
})

/** Holds every look-up of a token back until `release`. */
async function holdTokens(database: TestDatabase) {
  let release = () => {}
  const released = new Promise<void>((resolve) => {
    release = resolve
  })
  let locked = () => {}
  const isLocked = new Promise<void>((resolve) => {
    locked = resolve
  })
  const holding = database.admin.begin(async (sql) => {
    await sql`lock table patchcord.tokens in access exclusive mode`
    locked()
    await released
  })
  await isLocked
  return {
    async untilWaiting(count: number) {
      for (;;) {
        const [row] = await database.superuser`
          select count(*)::integer as waiting from pg_stat_activity
          where datname = ${database.name} and usename = 'patchcord_api' and wait_event_type = 'Lock'`
        if (row?.waiting >= count) return
        await sleep(10)
      }
    },
    release() {
      release()
      void holding
    },
  }
}

function ask(url: string, token: string, agent: Agent): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const outgoing = request(url, { agent, headers: { authorization: `Bearer ${token}` } }, (response) => {
      response.resume().on('end', () => resolve(response.statusCode))
    })
    outgoing.on('error', reject)
    outgoing.end()
  })
}

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { call, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { startInstance } from '../helpers/instance.ts'
import { type Joined, joinOwnTopic } from '../helpers/joined.ts'
import { connectMcp } from '../helpers/mcp.ts'
import { seed } from '../helpers/seed.ts'

const PATIENCE_MS = 20_000
const PARENT = '00f067aa0ba902b7'
let count = 0
const isWake = (frame: string) => frame.includes('"wake"')
const nextTrace = () => `${++count}`.padStart(32, 'a')

/** Two whole servers on one database: a request on one, its wake on the other. */
describe('a trace across two instances', () => {
  let database: TestDatabase
  let here: TestApp
  let there: TestApp
  const joined: Joined[] = []

  before(async () => {
    database = await createTestDatabase()
    here = await startInstance(database, { logLevel: 'debug' })
    there = await startInstance(database, { logLevel: 'debug' })
  })
  after(async () => {
    for (const each of joined) await each.close()
    await here.close()
    await there.close()
    await database.drop()
  })

  /** What a search for the trace finds in an instance's log, once it finds a line that says `last`. */
  async function grep({ logs }: TestApp, trace: string, last: string) {
    const deadline = Date.now() + PATIENCE_MS
    for (;;) {
      const lines = logs.filter((line) => line.includes(trace)).map((line) => JSON.parse(line))
      if (lines.some(({ msg }) => msg === last)) return lines
      assert.ok(Date.now() < deadline, `no "${last}" of ${trace} among ${JSON.stringify(lines)}`)
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  }

  test('request, commit and wake are found by one id, on the instance that heard the wake, too; the listener sees none of it', async () => {
    const { alice, bob } = await seed(database, 'traced', ['alice', 'bob'])
    const [ofBob, ofBobHere] = [await joinOwnTopic(there, bob.token), await joinOwnTopic(here, bob.token)]
    joined.push(ofBob, ofBobHere)
    const trace = nextTrace()
    const headers = { traceparent: `00-${trace}-${PARENT}-01` }
    const body = { to: 'bob', content: 'the text of it', thread: 'a-thread' }
    const sent = await call(here, 'POST', '/api/messages', { token: alice.token, body, headers })
    assert.equal(sent.headers.get('x-request-id'), trace)
    const { message_id } = sent.json
    const lines = await grep(here, trace, 'request answered')
    const by = (msg: string) => lines.find((line) => line.msg === msg)
    assert.equal(by('message stored')?.message_id, message_id)
    assert.equal(by('wake delivered to sockets')?.message_id, message_id)
    assert.equal(by('wake delivered to sockets')?.sockets, 1)
    assert.ok(lines.every((line) => line.trace === trace))
    const heard = await grep(there, trace, 'wake delivered to sockets')
    assert.deepEqual(
      heard.map(({ message_id: id, sockets }) => [id, sockets]),
      [[message_id, 1]],
    )
    for (const line of [...lines, ...heard]) assert.ok(!JSON.stringify(line).includes('the text of it'))

    for (const { frames } of [ofBob, ofBobHere]) {
      const deadline = Date.now() + PATIENCE_MS
      while (!frames.some(isWake) && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 10))
      const frame = frames.find(isWake) ?? ''
      const { payload } = JSON.parse(frame).payload
      assert.deepEqual(Object.keys(payload).sort(), ['from', 'id', 'kind', 'thread', 'to', 'urgency'])
      assert.ok(!frames.join('').includes(trace))
    }
  })

  test('a call of a tool has a trace as well, and the wait that it ends elsewhere is found by it', async () => {
    const { carol, dave } = await seed(database, 'traced-tools', ['carol', 'dave'])
    const trace = nextTrace()
    const traced: typeof fetch = (url, options) => {
      const headers = new Headers(options?.headers)
      headers.set('traceparent', `00-${trace}-${PARENT}-00`)
      return fetch(url, { ...options, headers })
    }
    const told: (string | null)[] = []
    const sender = await connectMcp(here, carol.token, 'v2 auto', async (url, options) => {
      const response = await traced(url, options)
      told.push(response.headers.get('x-request-id'))
      return response
    })
    const waiter = await connectMcp(there, dave.token)
    const waiting = waiter.call('wait_for_message', { timeout_seconds: 60 })
    const deadline = Date.now() + PATIENCE_MS
    while ([...there.deps.waiters.agentIds()].length === 0 && Date.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
    await sender.call('send_message', { to: 'dave', content: 'now' })
    assert.equal((await waiting).isError, false)
    await sender.close()
    await waiter.close()
    assert.ok(told.length > 0 && told.every((each) => each === trace), String(told))
    const [stored] = (await grep(here, trace, 'message stored')).filter(({ msg }) => msg === 'message stored')
    const [taken] = await grep(there, trace, 'wake taken by a waiting call')
    assert.equal(taken.message_id, stored.message_id)
  })

  test('at the usual level a send says nothing in the log', async () => {
    const quiet = await startInstance(database, { logLevel: 'info' })
    const { erin } = await seed(database, 'traced-quiet', ['erin', 'frank'])
    const before = quiet.logs.length
    const sent = await call(quiet, 'POST', '/api/messages', { token: erin.token, body: { to: 'frank', content: 'x' } })
    await quiet.close()
    assert.equal(sent.status, 201)
    assert.deepEqual(quiet.logs.slice(before), [])
  })
})

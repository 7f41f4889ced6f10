import assert from 'node:assert/strict'
import { once } from 'node:events'
import { get, type IncomingMessage, ServerResponse } from 'node:http'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { createEventStreams } from '../../server/dashboard/event-streams.ts'
import { PatchcordError } from '../../server/errors.ts'
import { createBus, type Wake } from '../../server/wakes/bus.ts'
import { createWaiters } from '../../server/wakes/waiters.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { joinAs, type SeededPerson, signInOperator } from '../helpers/people.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { say } from '../helpers/talk.ts'

/** A stream of events, and all that came on it so far. */
interface Listening {
  status: number
  headers: IncomingMessage['headers']
  text(): string
  ended: Promise<void>
  close(): void
}

async function listen(app: TestApp, namespace: string, { session }: SeededPerson): Promise<Listening> {
  const headers = { cookie: `__Host-patchcord=${session}`, accept: 'text/event-stream' }
  const sent = get(`${app.url}/n/${namespace}/events`, { headers, agent: false })
  const [response] = (await once(sent, 'response')) as [IncomingMessage]
  let text = ''
  response.setEncoding('utf8').on('data', (part: string) => {
    text += part
  })
  const ended = new Promise<void>((resolve) => void response.on('close', resolve).on('error', () => {}))
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    text: () => text,
    ended,
    close: () => sent.destroy(),
  }
}

async function until(isSo: () => boolean, what: string): Promise<void> {
  for (let waits = 0; !isSo(); waits++) {
    assert.ok(waits < 400, what)
    await sleep(25)
  }
}

describe('events of a namespace', () => {
  let database: TestDatabase
  let app: TestApp
  let owner: SeededPerson
  let acme: Record<'alice' | 'bob', SeededAgent>
  let evil: Record<'eve' | 'mallory', SeededAgent>
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database)
    acme = await seed(database, 'acme', ['alice', 'bob'], { bus: app.deps.bus })
    evil = await seed(database, 'evil', ['eve', 'mallory'], { bus: app.deps.bus })
    owner = await signInOperator(database)
  })
  after(async () => {
    await app?.close()
    await database?.drop()
  })

  test('tell that something came, in this namespace only, and nothing of what it is', async () => {
    const stream = await listen(app, 'acme', owner)
    assert.deepEqual([stream.status, stream.headers['content-type']], [200, 'text/event-stream; charset=utf-8'])
    assert.equal(stream.headers['cache-control'], 'no-store')
    await until(() => stream.text().includes('retry:'), 'the stream begins')
    await say(evil.eve, { to: 'mallory', content: 'elsewhere', kind: 'report' })
    await sleep(300)
    assert.doesNotMatch(stream.text(), /event/)
    await say(acme.alice, { to: 'bob', content: 'a secret text', kind: 'report' })
    await until(() => stream.text().includes('event: message'), 'an event comes')
    assert.equal(stream.text(), 'retry: 2000\n\nevent: message\ndata: new\n\n')
    stream.close()
    await stream.ended
  })

  test('are five streams for each session at most, and a closed one makes room', async () => {
    const streams = await Promise.all(Array.from({ length: 5 }, () => listen(app, 'acme', owner)))
    assert.deepEqual(
      streams.map(({ status }) => status),
      Array(5).fill(200),
    )
    const sixth = await listen(app, 'acme', owner)
    assert.equal(sixth.status, 429)
    for (const stream of [...streams, sixth]) stream.close()
    let last = 429
    for (let tries = 0; last === 429 && tries < 50; tries++) {
      const again = await listen(app, 'acme', owner)
      last = again.status
      again.close()
      await sleep(20)
    }
    assert.equal(last, 200)
  })

  test('are for members who are signed in', async () => {
    const member = await joinAs(database, owner, 'evil', 'member', 'newcomer')
    assert.equal((await listen(app, 'acme', member)).status, 404)
    assert.equal((await listen(app, 'acme', { ...owner, session: 'nobody' })).status, 401)
  })

  test('do not hold the server when it closes', async () => {
    const other = await startTestApp(database)
    const stream = await listen(other, 'acme', owner)
    assert.equal(stream.status, 200)
    const startedAt = performance.now()
    await other.close()
    await stream.ended
    assert.ok(performance.now() - startedAt < 5_000)
  })
})

describe('a stream of events', () => {
  const wake: Wake = {
    id: '1',
    toNamespaceId: 'ns',
    toAgentId: 'bob',
    from: 'alice',
    to: 'bob',
    namespace: 'acme',
    kind: 'message',
    urgency: 'normal',
    thread: null,
  }

  /** A response that takes what it is given, or nothing when it is slow. */
  function createResponse() {
    const response = new ServerResponse({ method: 'GET' } as IncomingMessage)
    const written: string[] = []
    const state = { isSlow: false, isEnded: false }
    Object.defineProperty(response, 'writableNeedDrain', { get: () => state.isSlow })
    response.write = ((text: string) => {
      written.push(text)
      return !state.isSlow
    }) as typeof response.write
    response.end = (() => {
      state.isEnded = true
      response.emit('close')
      return response
    }) as typeof response.end
    return { response, written, state }
  }

  function build(times = { gatherMs: 1, heartbeatMs: 60_000, checkMs: 60_000 }) {
    const bus = createBus(createWaiters({ waitersPerAgentMax: 1 }))
    return { bus, streams: createEventStreams({ bus, times, limits: { perSessionMax: 2, allMax: 3 } }) }
  }
  const quiet = async () => {}

  test('gathers what comes in a moment, and owes a slow reader one event and no more', async () => {
    const { bus, streams } = build()
    const { response, written, state } = createResponse()
    streams.open(response, { sessionId: 's', personId: 'p', namespaceId: 'ns', check: quiet })
    for (let count = 0; count < 5; count++) bus.publish([{ ...wake, id: `${count}` }])
    await sleep(30)
    assert.equal(written.filter((text) => text.startsWith('event')).length, 1)
    state.isSlow = true
    for (let count = 5; count < 9; count++) {
      bus.publish([{ ...wake, id: `${count}` }])
      await sleep(10)
    }
    assert.equal(written.length, 2, 'nothing is written to who does not read')
    state.isSlow = false
    response.emit('drain')
    assert.equal(written.filter((text) => text.startsWith('event')).length, 2)
    streams.close()
  })

  test('beats, ends when its check fails, and not when the database is away for a moment', async () => {
    const { bus, streams } = build({ gatherMs: 1, heartbeatMs: 10, checkMs: 10 })
    const { response, written, state } = createResponse()
    let fault: Error | null = new PatchcordError('unavailable', 'The database is away.')
    const check = async () => {
      if (fault) throw fault
    }
    streams.open(response, { sessionId: 's', personId: 'p', namespaceId: 'ns', check })
    await until(() => written.includes(': here\n\n'), 'a heartbeat comes')
    assert.equal(state.isEnded, false)
    fault = null
    await sleep(30)
    assert.equal(state.isEnded, false)
    fault = new PatchcordError('not_found', 'There is nothing here.')
    await until(() => state.isEnded, 'it ends')
    assert.equal(streams.count(), 0)
    const count = written.length
    bus.publish([wake])
    await sleep(40)
    assert.equal(written.length, count, 'an ended stream is written no more')
  })

  test('is refused beyond what a session or all may have, and once all were closed', () => {
    const { streams } = build()
    const open = (sessionId: string, personId = sessionId) => {
      streams.reserve({ sessionId, personId })
      streams.open(createResponse().response, { sessionId, personId, namespaceId: 'ns', check: quiet })
    }
    open('a')
    open('a')
    assert.throws(() => open('a'), { code: 'rate_limited' })
    open('b')
    assert.throws(() => open('c'), { code: 'rate_limited' })
    streams.close()
    assert.equal(streams.count(), 0)
    assert.throws(() => open('a'), { code: 'rate_limited' })
  })

  test('is refused beyond what a person may have, in however many sessions', () => {
    const bus = createBus(createWaiters({ waitersPerAgentMax: 1 }))
    const streams = createEventStreams({ bus, limits: { perPersonMax: 2 } })
    for (const sessionId of ['a', 'b']) {
      streams.reserve({ sessionId, personId: 'p' })
      streams.open(createResponse().response, { sessionId, personId: 'p', namespaceId: 'ns', check: quiet })
    }
    assert.throws(() => streams.reserve({ sessionId: 'c', personId: 'p' }), { code: 'rate_limited' })
    streams.reserve({ sessionId: 'd', personId: 'q' })
    streams.close()
  })

  test('that nobody reads is cut off at its end, since it would never come to it', () => {
    const { streams } = build()
    const { response, state } = createResponse()
    streams.open(response, { sessionId: 's', personId: 'p', namespaceId: 'ns', check: quiet })
    state.isSlow = true
    streams.close()
    assert.equal(response.destroyed, true)
  })
})

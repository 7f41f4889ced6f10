import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { sendMessage } from '../../server/domain/messages.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { CLIENT_KINDS, connectMcp, messageIn, openRaw, toolCall, toToolResult } from '../helpers/mcp.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const ERAS = ['legacy', 'modern'] as const

async function until(what: string, isTrue: () => boolean): Promise<void> {
  for (let tries = 0; tries < 500; tries++) {
    if (isTrue()) return
    await sleep(10)
  }
  assert.fail(`never came true: ${what}`)
}

describe('wait_for_message', { timeout: 120_000 }, () => {
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

  const isWaiting = (on: TestApp, agent: SeededAgent) => [...on.deps.waiters.agentIds()].includes(agent.agentId)
  /** A send through the server's own bus, as the tool does it. */
  const send = (on: TestApp, from: SeededAgent, to: string, content: string, thread?: string) =>
    sendMessage({ ...from.scope, bus: on.deps.bus }, { to, content, thread })

  for (const kind of CLIENT_KINDS) {
    test(`is woken by a message that comes (${kind})`, async (t) => {
      const { alice, bob } = await seed(database, `woken-${kind.replace(' ', '-')}`, ['alice', 'bob'])
      const client = await connectMcp(app, bob.token, kind)
      t.after(() => client.close())
      const progress: number[] = []
      const waiting = client.call(
        'wait_for_message',
        { timeout_seconds: 60 },
        { onprogress: (each) => progress.push(each.progress) },
      )
      await until('bob waits', () => isWaiting(app, bob))
      await until('progress came', () => progress.length > 0)
      const startMs = Date.now()
      const sent = await send(app, alice, 'bob', 'wake up')
      const { text, facts } = await waiting
      assert.ok(Date.now() - startMs < 2_000)
      assert.match(text, /^alice: \d+ s ago\n<message-[0-9a-f]{16} from="alice@.*\nwake up\n/)
      assert.equal(facts.message.message_id, sent.message_id)
      assert.deepEqual(progress, [0])
    })
  }

  for (const era of ERAS) {
    test(`sends its first byte within a second though the client asked for no progress (${era})`, async () => {
      const { bob } = await seed(database, `byte-${era}`, ['alice', 'bob'])
      const startMs = Date.now()
      const call = toolCall(era, 1, 'wait_for_message', { timeout_seconds: 60 })
      const { response, destroy } = openRaw(app, { token: bob.token, ...call })
      const stream = await response
      const headersMs = Date.now() - startMs
      const [byte] = await new Promise<Buffer>((resolve) => stream.once('data', resolve))
      const byteMs = Date.now() - startMs
      destroy()
      assert.ok(byte !== undefined && headersMs < 1_000 && byteMs < 1_000, `headers ${headersMs} ms, byte ${byteMs} ms`)
      assert.match(stream.headers['content-type'] ?? '', /^text\/event-stream/)
      await until('the waiter is gone with its client', () => !isWaiting(app, bob))
    })

    test(`ends when its client goes away, and keeps no message from the next wait (${era})`, async (t) => {
      const { alice, bob } = await seed(database, `gone-${era}`, ['alice', 'bob'])
      const call = toolCall(era, 1, 'wait_for_message', { timeout_seconds: 60 }, 'p1')
      const { response, destroy } = openRaw(app, { token: bob.token, ...call })
      await response
      await until('bob waits', () => isWaiting(app, bob))
      destroy()
      await until('the waiter is gone', () => !isWaiting(app, bob))
      await send(app, alice, 'bob', 'are you back?')
      const client = await connectMcp(app, bob.token)
      t.after(() => client.close())
      assert.match((await client.call('wait_for_message')).text, /are you back\?/)
    })

    test(`at shutdown says that the server is restarting, and the server closes (${era})`, async () => {
      const { bob, carol } = await seed(database, `restart-${era}`, ['bob', 'carol'])
      const own = await startTestApp(database)
      const call = (token?: string) => toolCall(era, 1, 'wait_for_message', { timeout_seconds: 60 }, token)
      const answers = [
        openRaw(own, { token: bob.token, ...call('p1') }),
        openRaw(own, { token: carol.token, ...call() }),
      ].map(async ({ response }) => {
        let text = ''
        for await (const chunk of (await response).setEncoding('utf8')) text += chunk
        return toToolResult(messageIn(text).result)
      })
      await until('both wait', () => isWaiting(own, bob) && isWaiting(own, carol))
      const startMs = Date.now()
      await own.close()
      assert.ok(Date.now() - startMs < 3_000, 'closed in time')
      for (const { text, isError } of await Promise.all(answers)) {
        assert.equal(isError, false)
        assert.match(text, /restarting, call again/)
      }
    })
  }

  test('closes in time though clients keep their connections open', async () => {
    const { bob } = await seed(database, 'kept', ['bob'])
    const own = await startTestApp(database)
    const clients = await Promise.all(CLIENT_KINDS.map((kind) => connectMcp(own, bob.token, kind)))
    const waits = clients.map((client) => client.call('wait_for_message', { timeout_seconds: 60 }))
    await until('all wait', () => isWaiting(own, bob))
    await sleep(200)
    const startMs = Date.now()
    await own.close()
    assert.ok(Date.now() - startMs < 3_000, `${Date.now() - startMs} ms`)
    for (const { text } of await Promise.all(waits)) assert.match(text, /restarting, call again/)
    await Promise.all(clients.map((client) => client.close()))
  })

  test('says that nothing came when its time is over', async (t) => {
    const { bob } = await seed(database, 'over', ['alice', 'bob'])
    for (const kind of CLIENT_KINDS) {
      const client = await connectMcp(app, bob.token, kind)
      t.after(() => client.close())
      const { text, facts } = await client.call('wait_for_message', { timeout_seconds: 1 })
      assert.equal(text, 'Nothing yet. Call again.')
      assert.deepEqual(facts, { summary: text, end: 'timeout' })
    }
  })

  test('waits for one sender or thread only, and leaves the rest new', async (t) => {
    const { alice, bob, carol } = await seed(database, 'only', ['alice', 'bob', 'carol'])
    const client = await connectMcp(app, bob.token)
    t.after(() => client.close())
    const waiting = client.call('wait_for_message', { timeout_seconds: 60, from: 'carol', thread: 'deploys' })
    await until('bob waits', () => isWaiting(app, bob))
    await send(app, alice, 'bob', 'not this', 'deploys')
    await send(app, carol, 'bob', 'nor this')
    await send(app, carol, 'bob', 'this', 'deploys')
    assert.match((await waiting).text, /\nthis\n/)
    assert.match((await client.call('inbox')).text, /^bob@only \| 2 new, 1 open/)
    const unknown = await client.call('wait_for_message', { from: 'carrol' })
    assert.deepEqual([unknown.isError, unknown.code], [true, 'not_found'])
    assert.match(unknown.text, /Did you mean carol\?/)
  })

  test('is refused when an agent waits too often already', async (t) => {
    const { bob } = await seed(database, 'often', ['bob'])
    const own = await startTestApp(database, { limits: { waitersPerAgentMax: 1 } })
    t.after(() => own.close())
    const client = await connectMcp(own, bob.token)
    t.after(() => client.close())
    const abort = new AbortController()
    const first = client.call('wait_for_message', { timeout_seconds: 60 }, { signal: abort.signal })
    await until('bob waits', () => isWaiting(own, bob))
    const second = await client.call('wait_for_message', { timeout_seconds: 60 })
    assert.deepEqual([second.isError, second.code], [true, 'rate_limited'])
    abort.abort()
    await assert.rejects(first)
    await until('the waiter is gone', () => !isWaiting(own, bob))
  })
})

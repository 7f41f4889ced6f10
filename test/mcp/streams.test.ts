import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { sendMessage } from '../../server/domain/messages.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import {
  connectMcp,
  messageIn,
  openRaw,
  type RawRequest,
  REVISION,
  sendRaw,
  toolCall,
  toToolResult,
} from '../helpers/mcp.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const ERAS = ['legacy', 'modern'] as const
const WAIT_SECONDS = 16
/** Proxies and clients give up a stream that is silent for a minute; the server speaks every 10 s. */
const SILENCE_MS_MAX = 13_000
/** pino's number for a warning. */
const WARNING = 40

describe('an answer of MCP', { concurrency: 4, timeout: 120_000 }, () => {
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

  /** Times between the bytes of an answer, from its request on, in ms; and its text. */
  async function readPauses(raw: RawRequest): Promise<{ pauses: number[]; text: string }> {
    let last = Date.now()
    const pauses: number[] = []
    const note = () => {
      pauses.push(Date.now() - last)
      last = Date.now()
    }
    let text = ''
    for await (const chunk of (await openRaw(app, raw).response).setEncoding('utf8')) {
      note()
      text += chunk
    }
    note()
    return { pauses, text }
  }

  test('that is long in coming is never silent for long, with and without progress', async () => {
    const { alice } = await seed(database, 'silence', ['alice'])
    const waits = ERAS.flatMap((era) => [undefined, 'p'].map((token) => ({ era, token })))
    await Promise.all(
      waits.map(async ({ era, token }) => {
        const call = toolCall(era, 1, 'wait_for_message', { timeout_seconds: WAIT_SECONDS }, token)
        const { pauses, text } = await readPauses({ token: alice.token, ...call })
        assert.ok(Math.max(...pauses) <= SILENCE_MS_MAX, `${era}, progress ${token}: ${pauses.join(', ')} ms`)
        assert.equal(toToolResult(messageIn(text).result).text, 'Nothing yet. Call again.')
      }),
    )
  })

  test('to a wait comes within a minute when no time was asked for, and what comes between two waits is not missed', async (t) => {
    const { alice, bob } = await seed(database, 'slices', ['alice', 'bob'])
    const client = await connectMcp(app, bob.token)
    t.after(() => client.close())
    const { tools } = await client.sdk.listTools()
    const wait = tools.find(({ name }) => name === 'wait_for_message')
    const { default: seconds } = (wait?.inputSchema.properties?.timeout_seconds ?? {}) as { default: number }
    assert.ok(seconds <= 50, `${seconds} s by default`)
    const say = (content: string) =>
      sendMessage({ ...alice.scope, bus: app.deps.bus }, { to: 'bob', content, kind: 'report' })
    await say('before the first')
    assert.match((await client.call('wait_for_message', { timeout_seconds: 1 })).text, /before the first/)
    await say('between the two')
    assert.match((await client.call('wait_for_message', { timeout_seconds: 1 })).text, /between the two/)
    assert.equal((await client.call('wait_for_message', { timeout_seconds: 1 })).text, 'Nothing yet. Call again.')
  })

  /** Requests of every kind that the endpoint answers in a way of its own. */
  function listRequests({ token }: SeededAgent): RawRequest[] {
    const calls = ERAS.flatMap((era) => [
      toolCall(era, 1, 'inbox', {}),
      toolCall(era, 2, 'no_such_tool', {}),
      toolCall(era, 3, 'send_message', { to: 'nobody', content: 'x' }),
      toolCall(era, 4, 'wait_for_message', { timeout_seconds: 1 }),
      toolCall(era, 5, 'wait_for_message', { timeout_seconds: 1 }, 'p'),
    ])
    const others: RawRequest[] = [
      { body: { jsonrpc: '2.0', method: 'notifications/initialized' } },
      { body: { jsonrpc: '2.0', id: 6, method: 'tools/list' }, headers: { 'mcp-protocol-version': REVISION } },
      { body: { jsonrpc: '2.0', id: 7, method: 'no/such/method' } },
      { body: '[]' },
      { body: '{' },
      { method: 'GET' },
      { method: 'DELETE' },
    ]
    return [...calls, ...others].map((raw) => ({ token, ...raw }))
  }

  test('is begun once and ended once, whatever it answers, and at whatever moment its client goes away', async () => {
    const { alice } = await seed(database, 'begun', ['alice'])
    const own = await startTestApp(database, { limits: { waitersPerAgentMax: 1_000 } })
    const requests = listRequests(alice)
    const answers = await Promise.all(requests.map((raw) => sendRaw(own, raw)))
    for (const [index, { status, headers }] of answers.entries()) {
      assert.ok(status >= 200 && status < 500, `${status} to ${JSON.stringify(requests[index])}`)
      assert.ok(status === 202 || headers['content-type'] !== undefined)
    }
    const leave = async (raw: RawRequest, afterMs: number) => {
      const { response, destroy } = openRaw(own, raw)
      const read = response.then((stream) => stream.on('error', () => undefined).resume()).catch(() => undefined)
      await sleep(afterMs)
      destroy()
      await read
    }
    for (const afterMs of [0, 1, 5, 20, 100, 500]) await Promise.all(requests.map((raw) => leave(raw, afterMs)))
    assert.equal((await sendRaw(own, { token: alice.token, ...toolCall('modern', 9, 'inbox', {}) })).status, 200)
    await own.close()
    const told = own.logs.map((line) => JSON.parse(line)).filter(({ level }) => level >= WARNING)
    // Of what was asked, one request is none of its era, and that is told.
    const bad = told.filter(({ reason }) => !/^Rejected inbound request/.test(reason ?? ''))
    assert.deepEqual(bad, [])
  })
})

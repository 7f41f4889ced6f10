import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { after, before, beforeEach, describe, test } from 'node:test'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { call, startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { connectMcp, toToolResult } from '../helpers/mcp.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { eventually, findClosedPort, Machine, ROOT } from './command.ts'

const FLOOD = 400

/** Progress every few milliseconds, in two bursts, then the result. */
async function flood(response: ServerResponse, token: unknown): Promise<void> {
  const say = (message: object) => response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`)
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  for (let progress = 1; progress <= FLOOD; progress++) {
    say({ method: 'notifications/progress', params: { progressToken: token, progress } })
    await new Promise((resolve) => setTimeout(resolve, progress === FLOOD / 2 ? 2_000 : 2))
  }
  say({ id: 1, result: { content: [{ type: 'text', text: 'done' }] } })
  response.end()
}

describe('the stdio bridge', () => {
  let database: TestDatabase
  let app: TestApp
  let machine: Machine
  let agents: Record<'alice' | 'bob', SeededAgent>
  let count = 0
  const clients: Client[] = []
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database)
    machine = await Machine.create()
  })
  beforeEach(async () => {
    agents = await seed(database, `acme${++count}`, ['alice', 'bob'])
  })
  after(async () => {
    await Promise.all(clients.map((client) => client.close()))
    await machine.remove()
    await app.close()
    await database.drop()
  })

  async function open(
    env: Record<string, string> = {},
  ): Promise<{ client: Client; stderr: () => string; pid: number }> {
    const transport = new StdioClientTransport({
      command: process.execPath,
      args: [join(ROOT, 'dist/plugin/cli/main.js'), 'mcp'],
      cwd: machine.project,
      env: machine.environment({ PATCHCORD_URL: app.url, PATCHCORD_TOKEN: agents.alice.token, ...env }),
      stderr: 'pipe',
    })
    let stderr = ''
    transport.stderr?.on('data', (chunk) => {
      stderr += String(chunk)
    })
    const client = new Client({ name: 'host', version: '1.0.0' })
    clients.push(client)
    await client.connect(transport)
    return { client, stderr: () => stderr, pid: transport.pid ?? 0 }
  }

  const send = (from: 'alice' | 'bob', to: string, content: string) =>
    call(app, 'POST', '/api/messages', { token: agents[from].token, body: { to, content } })

  test('offers what the server offers: tools with their schemas, prompts, instructions', async () => {
    const { client } = await open()
    const direct = await connectMcp(app, agents.alice.token, 'v1')
    const expected = direct.sdk as Client
    assert.deepEqual(await client.listTools(), await expected.listTools())
    assert.deepEqual(await client.listPrompts(), await expected.listPrompts())
    assert.deepEqual(await client.getPrompt({ name: 'inbox' }), await expected.getPrompt({ name: 'inbox' }))
    assert.equal(client.getInstructions(), expected.getInstructions())
    await direct.close()
  })

  test('sends, and answers with text and facts as the server gave them', async () => {
    const { client } = await open()
    await client.listTools()
    const sent = toToolResult(await client.callTool({ name: 'send_message', arguments: { to: 'bob', content: 'hi' } }))
    assert.match(sent.text, /^Sent to bob \[/)
    assert.equal(sent.facts.recipients[0].agent, 'bob')
    const wrong = toToolResult(
      await client.callTool({ name: 'send_message', arguments: { to: 'nobody', content: 'hi' } }),
    )
    assert.deepEqual([wrong.isError, wrong.code], [true, 'not_found'])
    await assert.rejects(client.callTool({ name: 'no_such_tool' }), { code: -32_602 })
  })

  test('passes progress on while a message is waited for', async () => {
    const { client } = await open()
    const progress: number[] = []
    const waiting = client.callTool(
      { name: 'wait_for_message', arguments: { timeout_seconds: 60, from: 'bob' } },
      undefined,
      {
        onprogress: ({ progress: seconds }) => progress.push(seconds),
      },
    )
    await eventually(() => progress.length > 0, 'progress')
    await send('bob', 'alice', 'here it is')
    assert.match(toToolResult(await waiting).text, /here it is/)
  })

  test('a flood of progress reaches the host ten times a second, and the last of it always', async (context) => {
    const server = createServer(async (request, response) => {
      let body = ''
      for await (const chunk of request) body += String(chunk)
      const { method, params } = JSON.parse(body)
      if (method === 'tools/call') return await flood(response, params._meta.progressToken)
      response.setHeader('content-type', 'application/json')
      return response.end(JSON.stringify({ jsonrpc: '2.0', id: 1, result: {} }))
    }).listen(0, '127.0.0.1')
    context.after(() => {
      server.closeAllConnections()
      server.close()
    })
    await new Promise((resolve) => server.once('listening', resolve))
    const { client } = await open({ PATCHCORD_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
    const seen: number[] = []
    const startedAt = Date.now()
    const answer = await client.callTool({ name: 'slow' }, undefined, {
      onprogress: ({ progress }) => seen.push(progress),
    })
    const seconds = (Date.now() - startedAt) / 1000
    assert.equal(toToolResult(answer).text, 'done')
    assert.deepEqual([seen[0], seen.at(-1)], [1, FLOOD])
    assert.ok(seen.includes(FLOOD / 2), 'the last of a burst comes while nothing follows it')
    assert.ok(seen.length <= seconds * 10 + 2, `${seen.length} in ${seconds} s`)
  })

  test('a call that the host cancels ends at the server, so that the next message is not taken for it', async () => {
    const { client } = await open()
    const cancelling = new AbortController()
    const progress: number[] = []
    const waiting = client.callTool({ name: 'wait_for_message', arguments: { timeout_seconds: 60 } }, undefined, {
      signal: cancelling.signal,
      onprogress: ({ progress: seconds }) => progress.push(seconds),
    })
    await eventually(() => progress.length > 0, 'the wait stands')
    cancelling.abort('no longer')
    await assert.rejects(waiting)
    await eventually(async () => {
      const { json } = await call(app, 'GET', '/health')
      return json.status === 'ok'
    }, 'the server lives')
    await new Promise((resolve) => setTimeout(resolve, 500))
    await send('bob', 'alice', 'for the inbox')
    const { json } = await call(app, 'GET', '/api/inbox?status=new', { token: agents.alice.token })
    assert.equal(json.pending_count, 1)
  })

  test('a server that is away is an answer that a model can read, and the bridge works once it is back', async () => {
    const port = await findClosedPort()
    const { client, stderr } = await open({ PATCHCORD_URL: `http://127.0.0.1:${port}` })
    const away = toToolResult(await client.callTool({ name: 'inbox' }))
    assert.deepEqual([away.isError, away.code], [true, 'unreachable'])
    assert.match(away.text, /^Cannot reach http:\/\/127\.0\.0\.1:\d+ \(ECONNREFUSED\)/)
    await assert.rejects(client.listTools(), /Cannot reach/)
    assert.match(stderr(), /Calls are passed on all the same/)
    await app.app.close()
    app = await startTestApp(database)
    const fresh = await open()
    assert.match(toToolResult(await fresh.client.callTool({ name: 'inbox' })).text, /^alice@acme/)
  })

  test('a token that is refused says so, and stands in no answer', async () => {
    const { client, stderr } = await open()
    await database.admin`update patchcord.tokens set revoked_at = now() where id = ${agents.alice.tokenId}`
    const refused = toToolResult(await client.callTool({ name: 'inbox' }))
    assert.deepEqual([refused.isError, refused.code], [true, 'token_revoked'])
    assert.ok(!`${refused.text}${stderr()}`.includes(agents.alice.token))
  })

  /** The bridge as a host starts it that writes each line itself. */
  async function startRaw() {
    const bridge = machine.start(['mcp'], { env: { PATCHCORD_URL: app.url, PATCHCORD_TOKEN: agents.alice.token } })
    const say = (message: object) => bridge.child.stdin?.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
    const clientInfo = { name: 'host', version: '1' }
    say({ id: 1, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo } })
    await eventually(() => bridge.output.stdout.includes('"id":1'), 'initialize is answered')
    say({ method: 'notifications/initialized' })
    return { bridge, say }
  }

  test('ends when the host closes its stdin, also while a call stands', async () => {
    const { bridge, say } = await startRaw()
    const params = { name: 'wait_for_message', arguments: { timeout_seconds: 200 }, _meta: { progressToken: 'p' } }
    say({ id: 2, method: 'tools/call', params })
    await eventually(() => bridge.output.stdout.includes('notifications/progress'), 'the call stands')
    bridge.child.stdin?.end()
    const startedAt = Date.now()
    assert.equal((await bridge.ended).code, 0)
    assert.ok(Date.now() - startedAt < 20_000)
    for (const line of bridge.output.stdout.trimEnd().split('\n')) JSON.parse(line)
  })

  test('ends although the host has stopped to read', async () => {
    const { bridge, say } = await startRaw()
    bridge.child.stdout?.pause()
    for (let id = 2; id < 100; id++) say({ id, method: 'tools/list' })
    bridge.child.stdin?.end()
    const [code] = await once(bridge.child, 'exit', { signal: AbortSignal.timeout(30_000) })
    assert.equal(code, 0)
    bridge.child.stdout?.resume()
    await bridge.ended
  })

  test('answers what was asked before its stdin ended', async () => {
    const clientInfo = { name: 'host', version: '1' }
    const messages = [
      { id: 1, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo } },
      { method: 'notifications/initialized' },
      { id: 2, method: 'tools/list' },
      { id: 3, method: 'tools/call', params: { name: 'list_agents', arguments: {} } },
    ]
    const env = { PATCHCORD_URL: app.url, PATCHCORD_TOKEN: agents.alice.token }
    const stdin = messages.map((message) => `${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`).join('')
    const { code, stdout } = await machine.run(['mcp'], { env, stdin })
    assert.equal(code, 0)
    const ids = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line).id)
    assert.deepEqual(ids.sort(), [1, 2, 3])
  })

  /** A bridge that has been initialized, to which a test writes by the byte. */
  async function openRaw() {
    const bridge = machine.start(['mcp'], { env: { PATCHCORD_URL: app.url, PATCHCORD_TOKEN: agents.alice.token } })
    const write = (...lines: unknown[]) =>
      bridge.child.stdin?.write(
        lines.map((line) => `${typeof line === 'string' ? line : JSON.stringify(line)}\n`).join(''),
      )
    const clientInfo = { name: 'host', version: '1' }
    const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo }
    write({ jsonrpc: '2.0', id: 'first', method: 'initialize', params })
    await eventually(() => bridge.output.stdout.includes('"id":"first"'), 'initialize is answered')
    const answers = () =>
      bridge.output.stdout
        .trimEnd()
        .split('\n')
        .slice(1)
        .map((line) => JSON.parse(line))
    return { bridge, write, answers }
  }

  test('answers what is no request with an error of JSON-RPC, by its id where it has one, and answers no answer', async () => {
    const { bridge, write, answers } = await openRaw()
    const ping = { jsonrpc: '2.0', method: 'ping' }
    const refused = [
      [[{ ...ping, id: 1 }], null],
      [[], null],
      [{ ...ping, id: null }, null],
      [{ ...ping, id: 1.5 }, null],
      [{ ...ping, id: true }, null],
      [{ ...ping, id: { a: 1 } }, null],
      [7, null],
      [{ ...ping, jsonrpc: '1.0', id: 2 }, 2],
      [{ jsonrpc: '2.0', method: 5, id: 'x' }, 'x'],
    ] as const
    const unanswered = [
      { jsonrpc: '2.0', id: null, result: {} },
      { jsonrpc: '2.0', method: 'notifications/x', params: 3 },
    ]
    // All of it in one chunk.
    write(...refused.map(([message]) => message), ...unanswered, '{ not JSON', { ...ping, id: 'last' })
    await eventually(() => bridge.output.stdout.includes('"id":"last"'), 'the last is answered')
    const expected = [...refused.map(([, id]) => [id, -32_600]), [null, -32_700], ['last', undefined]]
    assert.deepEqual(
      answers().map(({ id, error }) => [id, error?.code]),
      expected,
    )
    for (const { jsonrpc } of answers()) assert.equal(jsonrpc, '2.0')
    bridge.child.stdin?.end()
    const { code, stderr } = await bridge.ended
    assert.equal(code, 0)
    // Each is told, and none twice.
    assert.equal(stderr.trimEnd().split('\n').length, refused.length + unanswered.length + 1, stderr)
  })

  test('a flood of requests is answered whole, also for a host that does not read for a while, and nothing is on stderr', async () => {
    const { bridge, write, answers } = await openRaw()
    bridge.child.stdout?.pause()
    const ids = Array.from({ length: 3_000 }, (_, index) => index)
    write(...ids.map((id) => ({ jsonrpc: '2.0', id, method: id % 30 === 0 ? 'tools/list' : 'ping' })))
    await new Promise((resolve) => setTimeout(resolve, 2_000))
    bridge.child.stdout?.resume()
    await eventually(() => bridge.output.stdout.split('\n').length > ids.length + 1, 'all are answered')
    assert.deepEqual(
      answers()
        .map(({ id }) => id)
        .sort((a, b) => a - b),
      ids,
    )
    bridge.child.stdin?.end()
    const { code, stderr } = await bridge.ended
    assert.deepEqual([code, stderr], [0, ''])
  })

  test('a host that writes without an end of line ends it with one sentence', async () => {
    const env = { PATCHCORD_URL: app.url, PATCHCORD_TOKEN: agents.alice.token }
    const bridge = machine.start(['mcp'], { env })
    const clientInfo = { name: 'host', version: '1' }
    const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo }
    bridge.child.stdin?.write(`${JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params })}\n`)
    await eventually(() => bridge.output.stdout.includes('"id":1'), 'initialize is answered')
    bridge.child.stdin?.on('error', () => {})
    bridge.child.stdin?.write('{ not JSON }\n')
    await eventually(() => bridge.output.stderr.includes('\n'), 'a line that is no message is told')
    const before = bridge.output.stderr
    bridge.child.stdin?.write('x'.repeat(11 * 1024 * 1024))
    const { code, stderr } = await bridge.ended
    assert.equal(code, 1)
    assert.match(stderr.slice(before.length), /^patchcord: What the host wrote cannot be read: .*\n$/)
  })
})

import assert from 'node:assert/strict'
import { EventEmitter } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, type TestContext, test } from 'node:test'
import { readEnvironment } from '../../plugin/env.ts'
import type { Keyboard } from '../../plugin/lib/confirm.ts'
import { findServer } from '../../plugin/lib/identity.ts'
import { createOutput } from '../../plugin/lib/output.ts'
import { recordTrust, toTrustId } from '../../scripts/lib/identity.cjs'
import { Machine, makeToken } from './command.ts'

const TOKEN = makeToken('a')
const REFUSED = { code: 'not_trusted', hint: /^If it is yours: patchcord connect --server http:\/\/localhost:9 / }

/** A terminal whose person types this as soon as they are asked. */
class Terminal extends EventEmitter {
  shown = ''
  isTTY = true
  readableEnded = false
  readonly #answer: string | null

  constructor(answer: string | null) {
    super()
    this.#answer = answer
  }
  write(text: string): void {
    this.shown += text
  }
  setEncoding(): void {}
  resume(): void {
    if (this.#answer === null) this.emit('end')
    for (const key of this.#answer ?? '') this.emit('data', key)
  }
  pause(): void {}
}

async function setUp(context: TestContext) {
  const machine = await Machine.create()
  context.after(() => machine.remove())
  const headers = { Authorization: `Bearer ${TOKEN}` }
  const entry = (url: string) => ({ type: 'http', url, headers })
  await machine.write('.mcp.json', JSON.stringify({ mcpServers: { patchcord: entry('http://localhost:9/mcp') } }))
  const output = createOutput({ isJson: false, stdout: { write() {} }, stderr: { write() {} } })
  const find = (terminal: Terminal, env: Record<string, string> = {}) => {
    const environment = readEnvironment(machine.environment(env))
    const invocation = { environment, folder: machine.project, options: {}, arguments: [], output }
    return findServer(invocation, { input: terminal as Keyboard, output: terminal })
  }
  return { machine, find }
}

describe('a server of .mcp.json that was never connected to', () => {
  test('is spoken to after a yes at the terminal, for one call; a no is the default', async (context) => {
    const { machine, find } = await setUp(context)
    for (const answer of ['y\r', 'YES\n']) {
      const terminal = new Terminal(answer)
      assert.equal((await find(terminal)).base, 'http://localhost:9')
      assert.equal(terminal.shown.match(/\[y\/N\]/g)?.length, 1)
      assert.match(
        terminal.shown,
        /\.mcp\.json names http:\/\/localhost:9, where you have not connected with this token/,
      )
      assert.equal(terminal.listenerCount('data') + terminal.listenerCount('end'), 0)
    }
    for (const answer of ['\r', 'n\n', 'yesterday\n', `${'y'.repeat(1_000)}`, null]) {
      await assert.rejects(find(new Terminal(answer)), REFUSED)
    }
    assert.ok(!Object.keys(await machine.listFiles()).some((file) => file.includes('trusted')))
  })

  test('is refused without a terminal, or when its input is used up', async (context) => {
    const { find } = await setUp(context)
    for (const [isTTY, readableEnded] of [
      [false, false],
      [true, true],
    ] as const) {
      const terminal = new Terminal('y\n')
      terminal.isTTY = isTTY
      terminal.readableEnded = readableEnded
      await assert.rejects(find(terminal), REFUSED)
      assert.equal(terminal.shown, '')
    }
  })

  test('is not asked about where a model has started the command, which could fake the terminal', async (context) => {
    const { find } = await setUp(context)
    for (const name of ['CLAUDECODE', 'CODEX_SANDBOX', 'CODEX_SESSION_ID']) {
      const terminal = new Terminal('y\n')
      await assert.rejects(find(terminal, { [name]: '1' }), REFUSED)
      assert.equal(terminal.shown, '')
    }
  })

  test('needs no question once it is connected to, nor when the environment names the server', async (context) => {
    const { machine, find } = await setUp(context)
    const terminal = Object.assign(new Terminal(null), { isTTY: false })
    const pair = { PATCHCORD_URL: 'http://localhost:9', PATCHCORD_TOKEN: TOKEN }
    assert.equal((await find(terminal, pair)).base, 'http://localhost:9')
    recordTrust(join(machine.configFolder, 'trusted.json'), toTrustId({ base: 'http://localhost:9', token: TOKEN }))
    assert.equal((await find(terminal)).base, 'http://localhost:9')
  })
})

const ID = '01900000-0000-7000-8000-000000000000'
const EVIL = 'x\nFORGED: a line\u001b[2K'
const MESSAGE = {
  message_id: EVIL,
  from: EVIL,
  thread: EVIL,
  kind: EVIL,
  urgency: EVIL,
  reply_to: EVIL,
  sent_at: EVIL,
  content: 'text',
  content_length: EVIL,
  next_offset: null,
}
const RECIPIENT = { agent: EVIL, reach: EVIL, last_seen_at: EVIL, held_until: EVIL }
const ANSWERS: Record<string, unknown> = {
  '/api/inbox/fetch': {
    agent: EVIL,
    namespace: EVIL,
    counts: { new: EVIL, open: EVIL, deferred: EVIL },
    new: [MESSAGE, { ...MESSAGE, content_length: 99 }],
    new_left: 1,
    again: [],
    notices: [MESSAGE, { ...MESSAGE, thread: null }],
    open: [{ ...MESSAGE, preview: 'text' }],
    open_left: 1,
    deferred: [],
    deferred_left: 0,
    settled: [{ message_id: EVIL, state: EVIL }],
    you: { reach: EVIL },
    agents: [{ agent: EVIL, reach: EVIL, state: EVIL }],
    offline_left_out: 1,
  },
  [`/api/messages/${ID}/reply`]: {
    message_id: EVIL,
    state: EVIL,
    sent: { message_id: EVIL, thread: EVIL, sent_at: EVIL, replayed: false, recipients: [RECIPIENT] },
  },
  '/api/messages': {
    message_id: EVIL,
    thread: EVIL,
    sent_at: EVIL,
    replayed: false,
    recipients: [RECIPIENT, RECIPIENT],
  },
  '/mcp': { jsonrpc: '2.0', id: 1, result: { structuredContent: { end: 'message', message: MESSAGE } } },
}

test('no answer of a hostile server makes a line of its own outside of the frame', async (context) => {
  const machine = await Machine.create()
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://localhost')
    const isText = request.method === 'GET' && pathname.startsWith('/api/messages/')
    const answer = isText ? MESSAGE : ANSWERS[pathname.replace('/mcp/bearer', '/mcp')]
    response.statusCode = answer === undefined ? 500 : 200
    response.setHeader('content-type', 'application/json')
    request.resume().on('end', () => response.end(JSON.stringify(answer ?? { error: { code: EVIL, message: EVIL } })))
  }).listen(0, '127.0.0.1')
  context.after(async () => {
    server.closeAllConnections()
    server.close()
    await machine.remove()
  })
  await new Promise((resolve) => server.once('listening', resolve))
  const env = { PATCHCORD_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, PATCHCORD_TOKEN: TOKEN }
  for (const args of [['inbox'], ['reply', ID, 'hi'], ['send', 'bob', 'hi'], ['wait', '--timeout', '5']]) {
    const { stdout, stderr } = await machine.run(args, { env })
    const lines = `${stdout}${stderr}`.split('\n')
    assert.ok(
      lines.some((line) => line.includes('x FORGED: a line')),
      `${args[0]}: ${stdout}${stderr}`,
    )
    assert.deepEqual(
      lines.filter((line) => line.startsWith('FORGED')),
      [],
      args[0],
    )
  }
})

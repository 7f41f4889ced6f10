import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { chmod, mkdir, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { errorAnswer, type Script, ScriptedServer } from '../helpers/scripted-server.ts'
import { eventually, fillDisk, Home, type ListenerProcess, TOKEN } from './listener-process.ts'

const CONNECTED = /^subscribe: connected$/m
const ADVICE = 'mend that or set XDG_RUNTIME_DIR to another folder'
const MISSING = '.mcp.json missing mcpServers.patchcord.url or Authorization'

async function setUp(context: TestContext, script: Script = {}) {
  const server = await new ScriptedServer(script).listen()
  const home = await Home.create()
  context.after(async () => {
    await home.remove()
    await server.close()
  })
  return { server, home }
}

async function assertFatal(listener: ListenerProcess, text: string): Promise<void> {
  assert.equal(await listener.exitCode(), 1)
  assert.equal(listener.stdout, `PATCHCORD: stopped: ${text}\n`)
  assert.ok(listener.stderr.includes(`subscribe: fatal: ${text}\n`), listener.stderr)
}

test('without .mcp.json', async (context) => {
  const { home } = await setUp(context)
  await assertFatal(home.start(), `no .mcp.json in ${home.project}`)
})

test('with a broken .mcp.json', async (context) => {
  const { home } = await setUp(context)
  await home.writeMcpJson(`{"mcpServers": {"patchcord": {"url": "x" "headers": "Bearer ${TOKEN}"`)
  await assertFatal(home.start(), '.mcp.json parse error: unexpected character at line 1 column 42')
})

test('with an .mcp.json that names no url or token', async (context) => {
  const { home, server } = await setUp(context)
  for (const content of [{}, { mcpServers: { patchcord: { type: 'http', url: server.origin } } }]) {
    await home.writeMcpJson(content)
    await assertFatal(home.start(), MISSING)
  }
  await home.connect(server.origin, 'pc_not-a-token')
  await assertFatal(home.start(), MISSING)
  await home.connect('http://pc.example')
  await assertFatal(home.start(), MISSING)
  assert.equal(server.connectionCount, 0)
})

test('the final answers of the server, asked twice, each with its sentence', async (context) => {
  const { home, server } = await setUp(context)
  await home.connect(server.origin)
  const sentences = {
    token_rejected: [401, 'token rejected (HTTP 401), check .mcp.json'],
    token_revoked: [403, 'token rejected (HTTP 403), check .mcp.json'],
    agent_gone: [404, 'namespace not owned, regenerate your token'],
    realtime_not_configured: [501, 'server not configured for realtime'],
  } as const
  for (const [code, [status, text]] of Object.entries(sentences)) {
    const before = server.count('GET', '/api/realtime/ticket')
    server.script = { ticket: () => errorAnswer(status, code) }
    await assertFatal(home.start(), text)
    assert.equal(server.count('GET', '/api/realtime/ticket') - before, 2)
  }
})

test('a final answer that does not come twice is not final', async (context) => {
  const ticket = (count: number) => (count === 1 ? errorAnswer(401, 'token_rejected') : null)
  const { home, server } = await setUp(context, { ticket })
  await home.connect(server.origin)
  const listener = home.start()
  await listener.logged(CONNECTED)
  assert.equal(listener.stdout, '')
})

test('a token that is revoked while we listen ends us when the server says so in our own JSON', async (context) => {
  const { home, server } = await setUp(context)
  await home.connect(server.origin)
  const listener = home.start()
  await listener.logged(CONNECTED)
  server.script = { ticket: () => ({ status: 403, text: '<html>a proxy</html>' }) }
  server.connection.socket.close(1012)
  await listener.logged(/^subscribe: ticket refresh failed: HTTP 403$/m, 3)
  assert.equal(listener.isRunning, true)
  server.script = { ticket: () => errorAnswer(403, 'token_revoked') }
  await assertFatal(listener, 'token rejected (HTTP 403), check .mcp.json')
  assert.deepEqual(await home.listPidfiles(), [])
})

test('a refused inbox makes the listener ask for a ticket, which decides', async (context) => {
  const { home, server } = await setUp(context)
  await home.connect(server.origin)
  const listener = home.start({ times: { compareMs: 200 } })
  await listener.logged(CONNECTED)
  const revoked = () => errorAnswer(403, 'token_revoked')
  server.script = { inbox: revoked, ticket: revoked }
  await assertFatal(listener, 'token rejected (HTTP 403), check .mcp.json')
})

test('a second listener of the same agent ends with 2 and changes nothing', async (context) => {
  const { home, server } = await setUp(context)
  await home.connect(server.origin)
  const first = home.start()
  await first.logged(CONNECTED)
  const file = join(home.runtime, 'patchcord', 'subscribe_acme_bob.pid')
  const before = await readFile(file, 'utf8')
  const second = home.start()
  assert.equal(await second.exitCode(), 2)
  assert.ok(second.stderr.endsWith(`subscribe: already running (pid ${first.pid})\n`), second.stderr)
  assert.equal(second.stdout, '')
  assert.equal(await readFile(file, 'utf8'), before)
  server.deliver('alice')
  await first.line('PATCHCORD: 1 new from alice')
  assert.equal(server.connections.length, 1)
})

test('a listener that was killed by -9 is no obstacle to the next, which tells what is still new', async (context) => {
  const { home, server } = await setUp(context)
  await home.connect(server.origin)
  const first = home.start()
  await first.logged(CONNECTED)
  await first.kill()
  assert.deepEqual(await home.listPidfiles(), ['subscribe_acme_bob.pid'])
  server.deliver('alice', { isWoken: false })
  const second = home.start()
  await second.line('PATCHCORD: 1 waiting in inbox')
})

test('a runtime folder that others can write is refused', { skip: process.platform === 'win32' }, async (context) => {
  const { home, server } = await setUp(context)
  await home.connect(server.origin)
  const folder = join(home.runtime, 'patchcord')
  await mkdir(folder)
  await chmod(folder, 0o777)
  await assertFatal(home.start(), `runtime folder ${folder} is open to other users, it must be 0700: ${ADVICE}`)
})

test('a disk that is full is told in words of our own, with what to do, and leaves nothing behind', async (context) => {
  const { home, server } = await setUp(context)
  await home.connect(server.origin)
  const text = "no space left for the listener's files: free some, then start the listener again"
  const listener = home.start({ env: fillDisk(join(home.root, 'never')) })
  assert.equal(await listener.exitCode(), 1)
  assert.equal(listener.lines.length, 1)
  assert.ok(listener.stdout.startsWith(`PATCHCORD: stopped: ${text} (${home.runtime}`), listener.stdout)
  assert.deepEqual(await readdir(join(home.runtime, 'patchcord')), [])
})

test('a listener whose parent is gone ends with 0', { skip: process.platform === 'win32' }, async (context) => {
  const { home, server } = await setUp(context)
  await home.connect(server.origin)
  const subscribe = fileURLToPath(new URL('../../scripts/subscribe.mjs', import.meta.url))
  const source = `
    const { spawn } = require('node:child_process')
    const child = spawn(process.execPath, [${JSON.stringify(subscribe)}, '--auto'], { stdio: 'ignore' })
    console.log(child.pid)
    setInterval(() => {}, 1000)`
  await home.trust(server.origin)
  const parent = spawn(process.execPath, ['-e', source], {
    cwd: home.project,
    env: home.environment(),
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  context.after(() => parent.kill('SIGKILL'))
  await eventually(() => server.connections.length === 1)
  assert.deepEqual(await home.listPidfiles(), ['subscribe_acme_bob.pid'])
  parent.kill('SIGKILL')
  await eventually(
    () => server.connection.closeCode === 1000,
    () => 'the listener lives on',
  )
  await eventually(() => server.count('DELETE', '/api/lease') === 1)
})

test('PATCHCORD_LISTEN=0 turns it off', async (context) => {
  const { home, server } = await setUp(context)
  await home.connect(server.origin)
  const listener = home.start({ env: { PATCHCORD_LISTEN: '0' } })
  assert.equal(await listener.exitCode(), 0)
  assert.equal(listener.stdout, '')
  assert.equal(server.connectionCount, 0)
})

test('the pair of variables stands for .mcp.json, and a url without a token is ignored', async (context) => {
  const { home, server } = await setUp(context)
  const listener = home.start({ env: { PATCHCORD_URL: server.origin, PATCHCORD_TOKEN: TOKEN } })
  await listener.logged(CONNECTED)
  await listener.stop()
  const alone = home.start({ env: { PATCHCORD_URL: server.origin } })
  assert.equal(await alone.exitCode(), 1)
  await alone.logged(/^subscribe: PATCHCORD_URL without PATCHCORD_TOKEN is ignored$/m)
  assert.equal(alone.stdout, `PATCHCORD: stopped: no .mcp.json in ${home.project}\n`)
})

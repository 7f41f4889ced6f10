import assert from 'node:assert/strict'
import { chmod, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { errorAnswer, type Script, ScriptedServer } from '../helpers/scripted-server.ts'
import { entry, eventually, fillDisk, Home, OTHER_TOKEN, pause, TOKEN } from './listener-process.ts'

const CONNECTED = /^subscribe: connected$/m

async function setUp(context: TestContext, script: Script = {}) {
  const server = await new ScriptedServer(script).listen()
  const home = await Home.create()
  context.after(async () => {
    await home.remove()
    await server.close()
  })
  const startAuto = (env: Record<string, string> = {}) => home.start({ args: ['--auto'], env })
  return { server, home, startAuto }
}

/** One that listens for the one agent of its project. */
async function setUpListening(context: TestContext, script: Script = {}) {
  const { server, home, startAuto } = await setUp(context, script)
  await home.trust(server.origin)
  await home.connect(server.origin)
  const listener = startAuto()
  await listener.logged(CONNECTED)
  return { server, home, startAuto, listener }
}

test('without a configuration it sleeps in silence, and wakes up when one comes', async (context) => {
  const { server, home, startAuto } = await setUp(context)
  await home.trust(server.origin)
  const listener = startAuto()
  await pause(1_000)
  assert.deepEqual([listener.isRunning, listener.stdout], [true, ''])
  await home.writeMcpJson('{"mcpServers": {"patch')
  await pause(600)
  assert.deepEqual([listener.isRunning, listener.stdout], [true, ''])
  await home.connect(server.origin)
  await listener.logged(CONNECTED)
  assert.equal(await listener.stop(), 0)
})

test('the .mcp.json of a cloned repository gets no byte from it', async (context) => {
  const { server, home, startAuto } = await setUp(context)
  await home.trust('https://trusted.example')
  await home.writeMcpJson({
    mcpServers: {
      patchcord: entry(server.origin, TOKEN),
      'patchcord-localhost': entry(server.origin.replace('127.0.0.1', 'localhost'), TOKEN),
      'patchcord-userinfo': entry(server.origin.replace('://', '://trusted.example@'), TOKEN),
      'patchcord-variable': entry(`${server.origin}/\${HOME}`, `\${MY_TOKEN}`),
    },
  })
  const listener = startAuto({ MY_TOKEN: OTHER_TOKEN })
  const pair = startAuto({ PATCHCORD_URL: server.origin, PATCHCORD_TOKEN: TOKEN })
  await pause(1_500)
  assert.equal(server.connectionCount, 0)
  for (const one of [listener, pair]) assert.deepEqual([one.isRunning, one.stdout], [true, ''])
})

test('thousands of identities in one file are four listeners, by hand and with --auto', async (context) => {
  const { server, home, startAuto } = await setUp(context)
  const bases = Array.from({ length: 3_000 }, (_, index) => `${server.origin}/${index}`)
  await home.trust(...bases)
  const names = Array.from({ length: 3_000 }, (_, index) => `patchcord-${index}`)
  const strange = entry('https://strange.example', TOKEN)
  const entries = names.map((name, index) => [name, entry(bases[index] ?? '', TOKEN)])
  await home.writeMcpJson({ mcpServers: { strange, ...Object.fromEntries(entries) } })
  const sentence = /only the first 4 identities are listened for, (\d+) left out/g
  const auto = startAuto()
  await auto.logged(sentence)
  await pause(1_500)
  assert.equal(new Set(server.requests.map(({ path }) => path.split('/')[1])).size, 4)
  assert.deepEqual(
    [...auto.stderr.matchAll(sentence)].map(([, left]) => left),
    ['2996'],
    'told once; who is not trusted takes no place',
  )
  assert.equal(await auto.stop(), 0)
  server.requests.length = 0
  const byHand = home.start()
  await byHand.logged(sentence)
  await pause(1_500)
  assert.ok(
    new Set(server.requests.map(({ path }) => path.split('/')[1])).size <= 3,
    'the strange one is the first of the four',
  )
  assert.deepEqual(
    [...byHand.stderr.matchAll(sentence)].map(([, left]) => left),
    ['2997'],
  )
  await byHand.stop()
})

test('a repository that holds the token of another agent of a trusted server gets no byte from it', async (context) => {
  const { server, home, startAuto } = await setUp(context)
  await home.trust(server.origin)
  await home.connect(server.origin, OTHER_TOKEN)
  const listener = startAuto()
  await pause(1_000)
  assert.deepEqual([server.connectionCount, listener.isRunning, listener.stdout], [0, true, ''])
  await home.writeMcpJson({
    mcpServers: { patchcord: entry(server.origin, OTHER_TOKEN), 'patchcord-mine': entry(server.origin, TOKEN) },
  })
  await listener.logged(CONNECTED)
  await pause(500)
  assert.equal(server.connections.length, 1)
  assert.deepEqual(await home.listPidfiles(), ['subscribe_acme_bob.pid'])
})

test('a list of trusted identities that others could have written is not believed', {
  skip: process.platform === 'win32',
}, async (context) => {
  const { server, home, startAuto } = await setUp(context)
  await home.trust(server.origin)
  await chmod(home.trustFile, 0o666)
  await home.connect(server.origin)
  const listener = startAuto()
  await pause(1_000)
  assert.equal(server.connectionCount, 0)
  await chmod(home.trustFile, 0o600)
  await listener.logged(CONNECTED)
})

test('once a listener was started by hand, it speaks to that server', async (context) => {
  const { server, home, startAuto } = await setUp(context)
  await home.connect(server.origin)
  const auto = startAuto()
  await pause(500)
  assert.equal(server.connectionCount, 0)
  const byHand = home.start()
  await byHand.logged(CONNECTED)
  await auto.logged(/^subscribe: standing by: already running \(pid \d+\)$/m)
  await byHand.stop()
  await auto.logged(CONNECTED)
  server.deliver('alice')
  await auto.line('PATCHCORD: 1 new from alice')
})

test('it stands by, silent, and takes over when the other listener is killed', async (context) => {
  const { server, home, startAuto, listener: first } = await setUpListening(context)
  const second = startAuto()
  await second.logged(/standing by/)
  server.deliver('alice')
  await first.line('PATCHCORD: 1 new from alice')
  await pause(500)
  assert.equal(second.stdout, '')
  assert.equal(server.connections.length, 1)
  await first.kill()
  await second.line('PATCHCORD: 1 waiting in inbox')
  assert.deepEqual(await home.listPidfiles(), ['subscribe_acme_bob.pid'])
})

test('a final fault is told once; then it sleeps, silent, until .mcp.json changes', async (context) => {
  const ticket = (_count: number, token: string) => (token === TOKEN ? errorAnswer(401, 'token_rejected') : null)
  const { server, home, startAuto } = await setUp(context, { ticket })
  await home.trust(server.origin, { base: server.origin, token: OTHER_TOKEN })
  await home.connect(server.origin)
  const listener = startAuto()
  await listener.line('PATCHCORD: stopped: token rejected (HTTP 401), check .mcp.json')
  const calls = server.count('GET', '/api/realtime/ticket')
  await pause(1_000)
  assert.equal(server.count('GET', '/api/realtime/ticket'), calls)
  assert.deepEqual([listener.isRunning, listener.lines.length], [true, 1])
  await home.connect(server.origin, OTHER_TOKEN)
  await listener.logged(CONNECTED)
  assert.equal(listener.lines.length, 1)
})

test('a disk that is full is a fault that passes: not a word on stdout, and it hears once there is space', async (context) => {
  const { server, home, startAuto } = await setUp(context)
  await home.trust(server.origin)
  await home.connect(server.origin)
  const space = join(home.root, 'space')
  const listener = startAuto(fillDisk(space))
  await listener.logged(/^subscribe: cannot write the pidfile: ENOSPC: no space left on device, write$/m, 4)
  await listener.logged(/^subscribe: reconnecting in \d+ms$/m, 4)
  assert.deepEqual([listener.isRunning, listener.stdout], [true, ''])
  assert.deepEqual(await home.listPidfiles(), [])
  await writeFile(space, '')
  await listener.logged(CONNECTED)
  server.deliver('alice')
  await listener.line('PATCHCORD: 1 new from alice')
  assert.equal(listener.lines.length, 1)
})

test('what another has put in the place of its runtime folder keeps it deaf only as long as it is there', async (context) => {
  const { server, home, startAuto } = await setUp(context)
  await home.trust(server.origin)
  await home.connect(server.origin)
  const folder = join(home.runtime, 'patchcord')
  await writeFile(folder, 'not a folder')
  const listener = startAuto()
  await listener.logged(/^subscribe: cannot write the pidfile: runtime folder .* is not a folder$/m, 3)
  assert.deepEqual([listener.isRunning, listener.stdout], [true, ''])
  await rm(folder)
  await listener.logged(CONNECTED)
  assert.equal(listener.stdout, '')
})

test('a listener that stands by through such a fault takes over after it', async (context) => {
  const { home, startAuto, listener: first } = await setUpListening(context)
  const second = startAuto()
  await second.logged(/standing by/)
  const folder = join(home.runtime, 'patchcord')
  await rm(folder, { recursive: true })
  await writeFile(folder, 'not a folder')
  await second.logged(/^subscribe: cannot write the pidfile: /m, 2)
  await first.kill()
  await rm(folder)
  await second.logged(CONNECTED)
  assert.equal(second.stdout, '')
})

test('an entry that is taken out is no longer listened for, a file that is being written changes nothing', async (context) => {
  const { server, home, listener } = await setUpListening(context)
  await home.writeMcpJson('{"mcpServers":')
  await pause(600)
  assert.equal(server.connection.closeCode, null)
  await home.writeMcpJson({ mcpServers: {} })
  await eventually(() => server.connection.closeCode === 1000)
  await home.hasNoPidfile()
  assert.equal(listener.isRunning, true)
  await rm(join(home.project, '.mcp.json'))
  await pause(400)
  await home.connect(server.origin)
  await listener.logged(CONNECTED, 2)
})

test('an agent that is trusted no longer is let go also while .mcp.json cannot be read', async (context) => {
  const { server, home, listener } = await setUpListening(context)
  await home.writeMcpJson('{"mcpServers":')
  await home.trust('https://elsewhere.example')
  await eventually(() => server.connection.closeCode === 1000)
  await home.hasNoPidfile()
  assert.equal(listener.isRunning, true)
})

test('PATCHCORD_LISTEN=0 makes it sleep, as its end would start a turn', async (context) => {
  const { server, home, startAuto } = await setUp(context)
  await home.trust(server.origin)
  await home.connect(server.origin)
  const listener = startAuto({ PATCHCORD_LISTEN: '0' })
  await pause(700)
  assert.deepEqual([listener.isRunning, listener.stdout, server.connectionCount], [true, '', 0])
  assert.equal(await listener.stop(), 0)
})

import assert from 'node:assert/strict'
import { lstatSync, mkdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, type TestContext, test } from 'node:test'
import { toIdentityKey } from '../../scripts/lib/identity.cjs'
import { isAlive } from '../../scripts/lib/processes.cjs'
import { errorAnswer, ScriptedServer } from '../helpers/scripted-server.ts'
import { createThreadId, FakeCodex, listThreadFiles, readListenerPid, readQueued, readStatusNew } from './codex-fake.ts'
import { entry, eventually, Home, pause, TOKEN } from './listener-process.ts'

interface SetUp {
  isTrusted?: boolean
  args?: string[]
  env?: Record<string, string>
}

async function setUp(context: TestContext, { isTrusted = true, args = [], env = {} }: SetUp = {}) {
  const server = await new ScriptedServer().listen()
  const home = await Home.create()
  const started: FakeCodex[] = []
  const start = (...more: string[]) => {
    const codex = new FakeCodex(home, more, env)
    started.push(codex)
    return codex
  }
  const codex = start(...args)
  context.after(async () => {
    await Promise.all(started.map((one) => one.kill()))
    // Listeners end with the Codex they work for.
    await eventually(() => listThreadFiles(home).every((name) => !name.endsWith('.pid')))
    await home.remove()
    await server.close()
  })
  await home.connect(server.origin)
  await home.trust(isTrusted ? server.origin : 'https://trusted.example')
  const isListening = (thread: string) => isAlive(readListenerPid(home, thread) || 2 ** 30)
  const connected = (count: number) =>
    eventually(() => server.connections.filter(({ topic }) => topic).length === count)
  return { server, home, codex, start, isListening, connected }
}

describe('the hook of Codex', { concurrency: 3, skip: process.platform !== 'linux' }, () => {
  test('starts one listener for a thread, its token in no command line, which wakes it and ends with it, leaving nothing', async (context) => {
    const { server, home, codex, isListening, connected } = await setUp(context)
    const thread = createThreadId()
    await codex.startThread(thread)
    await connected(1)
    const lease = server.requests.find(({ method, path }) => method === 'PUT' && path === '/api/lease')
    const commandLine = readFileSync(`/proc/${readListenerPid(home, thread)}/cmdline`, 'utf8')
    assert.ok(commandLine.includes(thread) && !commandLine.includes('pc_'), commandLine)
    await codex.turn(thread, 'once more')
    server.deliver('alice')
    await eventually(() => readQueued(home).length > 0)
    assert.deepEqual(readQueued(home), [`${thread} PATCHCORD: 1 new from alice`])
    assert.deepEqual(
      { ...(lease?.body as object), machine: '', announced: [] },
      { session: thread, client: 'codex', machine: '', announced: [] },
    )
    const files = listThreadFiles(home)
    assert.equal(files.length, 3, files.join())
    for (const name of files) assert.equal(lstatSync(join(home.runtime, 'patchcord', name)).mode & 0o777, 0o600, name)
    await codex.hook('SessionEnd', thread, { reason: 'other' })
    await eventually(() => listThreadFiles(home).length === 0)
    assert.equal(isListening(thread), false)
    assert.equal(server.count('DELETE', '/api/lease'), 1)
  })

  test('a thread is woken also where the hook has what Codex gives to the commands of a model, and nobody is trusted by that', async (context) => {
    const env = { CODEX_THREAD_ID: 'x', CODEX_SESSION_ID: 'x', CODEX_SANDBOX_NETWORK_DISABLED: '1' }
    const { server, home, codex, connected } = await setUp(context, { env })
    const trusted = await home.readTrusted()
    const thread = createThreadId()
    await codex.startThread(thread)
    await connected(1)
    server.deliver('alice')
    await eventually(() => readQueued(home).length > 0)
    assert.deepEqual(await home.readTrusted(), trusted)
    await codex.hook('SessionEnd', thread, { reason: 'other' })
    await eventually(() => listThreadFiles(home).length === 0)
  })

  test('the listener ends when Codex dies without a word', async (context) => {
    const { home, codex, connected } = await setUp(context)
    await codex.startThread(createThreadId())
    await connected(1)
    await codex.kill()
    await eventually(() => listThreadFiles(home).length === 0)
  })

  test('a listener whose lock was replaced by a folder still wakes its thread, and ends with Codex', async (context) => {
    const { server, home, codex, connected } = await setUp(context)
    const thread = createThreadId()
    await codex.startThread(thread)
    await connected(1)
    const pid = readListenerPid(home, thread)
    const lock = join(home.runtime, 'patchcord', `subscribe_codex-thread_${thread}.pid`)
    rmSync(lock)
    mkdirSync(lock)
    // Some rounds of the listener.
    await pause(2_500)
    server.deliver('alice')
    await eventually(() => readQueued(home).length > 0)
    await codex.kill()
    await eventually(() => !isAlive(pid))
    rmdirSync(lock)
    const left = await home.listPidfiles()
    assert.deepEqual(
      left.filter((name) => name.endsWith('.pid')),
      [],
    )
  })

  test('nothing is started, written or sent for a server that the user has not trusted', async (context) => {
    const { server, home, codex } = await setUp(context, { isTrusted: false })
    await codex.startThread(createThreadId())
    await pause(500)
    assert.deepEqual([server.connectionCount, listThreadFiles(home)], [0, []])
  })

  test('nothing is started for a run of one turn, nor with PATCHCORD_LISTEN=0', async (context) => {
    const runs = [
      await setUp(context, { args: ['exec', 'a prompt'] }),
      await setUp(context, { env: { PATCHCORD_LISTEN: '0' } }),
    ]
    for (const { home, codex } of runs) {
      await codex.startThread(createThreadId())
      assert.deepEqual(listThreadFiles(home), [])
    }
  })

  test('a listener that was killed, or whose configuration came late, is started by the next prompt', async (context) => {
    const { home, server, codex, connected } = await setUp(context)
    const thread = createThreadId()
    await home.writeMcpJson({ mcpServers: {} })
    await codex.startThread(thread)
    assert.deepEqual(listThreadFiles(home), [])
    await home.connect(server.origin)
    await codex.turn(thread, 'now')
    await connected(1)
    const log = join(home.runtime, 'patchcord', `codex_${thread}.log`)
    const before = readFileSync(log, 'utf8')
    assert.match(before, /agent=/)
    process.kill(readListenerPid(home, thread), 'SIGKILL')
    await codex.turn(thread, 'again')
    await connected(2)
    const after = readFileSync(log, 'utf8')
    assert.ok(after.startsWith(before) && after.length > before.length, 'what the first one logged is still there')
  })

  test('a message that comes in mid-turn is told by the hooks; the thread is woken only if it stays unread', async (context) => {
    const { server, home, codex, connected } = await setUp(context)
    const thread = createThreadId()
    await codex.startThread(thread)
    await connected(1)
    await codex.hook('UserPromptSubmit', thread, { prompt: 'work' })
    server.deliver('alice')
    // Written at most once a second; until then the hooks take the inbox for empty, and the wake after the turn is what tells.
    await eventually(() => readStatusNew(home) === 1)
    const blocked = JSON.parse(await codex.hook('Stop', thread, { stop_hook_active: false }))
    assert.deepEqual(Object.keys(blocked).sort(), ['decision', 'reason'])
    assert.equal(blocked.decision, 'block')
    await pause(3_000)
    assert.deepEqual(readQueued(home), [])
    server.pending.length = 0
    assert.equal(await codex.hook('Stop', thread, { stop_hook_active: true }), '')
    await pause(2_000)
    assert.deepEqual(readQueued(home), [])
    server.deliver('bob')
    await eventually(() => readQueued(home).length > 0)
  })

  test('a thread that ends and begins again has no more wakes than before', async (context) => {
    const { server, home, codex, connected } = await setUp(context)
    const file = join(home.runtime, 'patchcord', `wakes_${toIdentityKey({ base: server.origin, token: TOKEN })}.json`)
    mkdirSync(join(home.runtime, 'patchcord'), { mode: 0o700 })
    writeFileSync(file, JSON.stringify({ tokens: 1, at: Date.now() }), { mode: 0o600 })
    const thread = createThreadId()
    await codex.startThread(thread)
    await connected(1)
    server.deliver('alice')
    await eventually(() => readQueued(home).length === 1)
    await codex.turn(thread, readQueued(home)[0]?.slice(thread.length + 1) ?? '')
    await codex.hook('SessionEnd', thread, { reason: 'other' })
    await eventually(() => listThreadFiles(home).length === 0)
    await codex.startThread(thread)
    await connected(2)
    server.deliver('bob')
    await pause(3_000)
    assert.equal(readQueued(home).length, 1)
    assert.match(readFileSync(join(home.runtime, 'patchcord', `codex_${thread}.log`), 'utf8'), /held back for \d+ s/)
  })

  test('neither an agent whose token is refused nor a server that is away wakes a thread in which all was fetched', async (context) => {
    const refusing = await new ScriptedServer({ inbox: () => errorAnswer(403, 'token_revoked') }).listen()
    context.after(() => refusing.close())
    const { server, home, codex, connected } = await setUp(context)
    const away = 'http://127.0.0.1:1'
    const servers = { patchcord: server.origin, 'patchcord-2': refusing.origin, 'patchcord-3': away }
    await home.trust(...Object.values(servers))
    const entries = Object.entries(servers).map(([name, origin]) => [name, entry(origin, TOKEN)])
    await home.writeMcpJson({ mcpServers: Object.fromEntries(entries) })
    const thread = createThreadId()
    await codex.startThread(thread)
    await connected(1)
    await eventually(() => refusing.connections.some(({ topic }) => topic))
    await codex.hook('UserPromptSubmit', thread, { prompt: 'work' })
    server.deliver('alice')
    refusing.connection.wake({ id: crypto.randomUUID(), from: 'mallory', to: 'bob' })
    await eventually(() => readStatusNew(home) === 1)
    server.pending.length = 0
    await codex.hook('Stop', thread, { stop_hook_active: true })
    await pause(4_000)
    assert.deepEqual(readQueued(home), [])
  })

  test('a server that is slow to take the end of a turn still knows that the next turn runs', async (context) => {
    const presence = await startSlowPresence(context)
    const { home, codex } = await setUp(context)
    await home.connect(presence.origin)
    await home.trust(presence.origin)
    const thread = createThreadId()
    await codex.startThread(thread)
    await eventually(() => presence.taken.at(-1) === 'idle')
    await codex.hook('UserPromptSubmit', thread, { prompt: 'first' })
    codex.hookLate('Stop', thread, { stop_hook_active: false })
    const idles = presence.received.filter((state) => state === 'idle').length
    await eventually(() => presence.received.filter((state) => state === 'idle').length > idles)
    await codex.hook('UserPromptSubmit', thread, { prompt: 'second' })
    // On a busy machine both the end of the turn and the prompt may say that it runs.
    await eventually(() => presence.taken.filter((state) => state === 'idle').length > idles)
    await eventually(() => presence.taken.length === presence.received.length && presence.taken.at(-1) === 'busy')
    await pause(1_000)
    const state = JSON.parse(readFileSync(join(home.runtime, 'patchcord', `codex_${thread}.json`), 'utf8')).state
    assert.deepEqual([presence.taken.at(-1), state], ['busy', 'busy'])
  })

  test('of two threads of a project, the one in which a person typed last is woken', async (context) => {
    const { server, home, codex, start, connected } = await setUp(context)
    const [first, second] = [createThreadId(), createThreadId()]
    await codex.startThread(first)
    await connected(1)
    const other = start()
    await other.startThread(second)
    await connected(2)
    server.deliver('alice')
    await eventually(() => readQueued(home).length === 1)
    // Being woken is not being typed in.
    await codex.turn(first, 'PATCHCORD: 1 new from alice')
    await other.turn(second, 'PATCHCORD: 1 new from alice')
    server.pending.length = 0
    server.deliver('bob')
    await eventually(() => readQueued(home).length === 2)
    await codex.turn(first, 'I am back')
    await connected(3)
    server.pending.length = 0
    server.deliver('carol')
    await eventually(() => readQueued(home).length === 3)
    assert.deepEqual(
      readQueued(home).map((line) => line.split(' ')[0]),
      [second, second, first],
    )
    await codex.hook('SessionEnd', first, { reason: 'other' })
    await connected(4)
  })

  test('a thread that the shared daemon keeps is no longer woken when its window is closed', async (context) => {
    const { home, start, codex: window, connected } = await setUp(context)
    const daemon = start('app-server', '--listen', 'unix://')
    await daemon.startThread(createThreadId())
    await connected(1)
    // Two looks, so that the window has been seen.
    await pause(1_500)
    await window.kill()
    await eventually(() => listThreadFiles(home).length === 0)
  })
})

/** A server that knows of presence alone, and takes a second over it when a turn has ended. */
async function startSlowPresence(context: TestContext) {
  const received: string[] = []
  const taken: string[] = []
  const server = createServer((request, response) => {
    let text = ''
    request.on('data', (part) => {
      text += part
    })
    request.on(
      'end',
      () => void answer(request.url?.startsWith('/api/presence') ? JSON.parse(text).state : null, response),
    )
  })
  const answer = async (state: string | null, response: ServerResponse) => {
    if (state !== null) {
      received.push(state)
      if (state === 'idle') await pause(1_000)
      taken.push(state)
    }
    response.end(JSON.stringify({ agent_id: 'bob', namespace_id: 'acme', pending: [] }))
  }
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  context.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return { received, taken, origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

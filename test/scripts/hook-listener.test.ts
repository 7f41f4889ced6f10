import assert from 'node:assert/strict'
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, type TestContext, test } from 'node:test'
import { toIdentityKey } from '../../scripts/lib/identity.cjs'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { sendMessage } from '../../server/domain/messages.ts'
import { call, startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { seed } from '../helpers/seed.ts'
import { HookServer, runHook, runStatusline } from './hook-process.ts'
import { eventually, Home, OTHER_TOKEN, pause, TOKEN } from './listener-process.ts'

const isPosix = process.platform !== 'win32'

function event(name: string, more: Record<string, unknown> = {}) {
  return { hook_event_name: name, session_id: 'session-1', prompt: 'hello', source: 'startup', ...more }
}

interface StatusText {
  pid: number
  started: string
  connected: boolean
  new: number
  updated_at: string
}

async function readStatus(home: Home): Promise<StatusText | null> {
  const folder = join(home.runtime, 'patchcord')
  const names = await readdir(folder).catch(() => [])
  const name = names.find((each) => each.startsWith('status_') && each.endsWith('.json'))
  return name === undefined ? null : JSON.parse(await readFile(join(folder, name), 'utf8'))
}

async function hasStatus(home: Home, expected: Partial<StatusText>): Promise<StatusText> {
  let status: StatusText | null = null
  const poll = async () => {
    status = await readStatus(home)
    return Object.entries(expected).every(([key, value]) => status?.[key as keyof StatusText] === value)
  }
  for (const end = Date.now() + 30_000; !(await poll()); await pause(20)) {
    if (Date.now() > end) assert.fail(`the status is ${JSON.stringify(status)}, not ${JSON.stringify(expected)}`)
  }
  return status as unknown as StatusText
}

describe('hooks, status line and listener of one project, with the real server', { concurrency: 2 }, () => {
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

  async function setUp(context: TestContext, namespace: string) {
    const home = await Home.create()
    context.after(() => home.remove())
    const agents = await seed(database, namespace, ['alice', 'bob'], { bus: app.deps.bus })
    await home.connect(app.url, agents.bob.token)
    await home.trust({ base: app.url, token: agents.bob.token })
    return { home, ...agents }
  }

  test('a turn: a person types, a message comes, a tool tells, the end is held up once, and what is read is gone', async (context) => {
    const { home, alice, bob } = await setUp(context, 'turn')
    const start = await runHook(home, event('SessionStart'))
    assert.match(start.stdout, /this session is the agent bob@turn, not wakeable yet/)
    assert.equal((await runHook(home, event('UserPromptSubmit'))).stdout, '')
    const me = async () => {
      const { json } = await call(app, 'GET', '/api/agents?all=1', alice)
      return json.agents.find(({ agent }: { agent: string }) => agent === 'bob')
    }
    assert.deepEqual([(await me()).state, (await me()).client], ['busy', 'claude-code'])
    await alice((scope) => sendMessage(scope, { to: 'bob', content: 'SECRET-TEXT' }))
    const tool = await runHook(home, event('PostToolUse'))
    assert.match(tool.stdout, /1 new message for bob@turn, from alice/)
    const stop = await runHook(home, event('Stop'))
    assert.equal(JSON.parse(stop.stdout).decision, 'block')
    assert.doesNotMatch(tool.stdout + stop.stdout, /SECRET/)
    assert.equal((await runStatusline(home, { session_id: 'session-1' })).stdout, 'bob@turn · 1 new · not wakeable\n')
    await bob((scope) => fetchInbox(scope, {}))
    assert.equal((await runHook(home, event('PostToolUse'))).stdout, '')
    assert.equal((await runStatusline(home, { session_id: 'session-1' })).stdout, 'bob@turn · 0 new · not wakeable\n')
    assert.equal((await runHook(home, event('Stop', { stop_hook_active: true }))).stdout, '')
    assert.equal((await me()).state, 'idle')
    // A person has typed, which a fresh loop budget needs.
    const [row] = await database.admin`
      select human_prompt_at is not null as typed from patchcord.presence where agent_uuid = ${bob.agentId}`
    assert.equal(row?.typed, true)
  })

  test('while the listener hears, the status line and the start of a session say so, and messages count at once', async (context) => {
    const { home, alice, bob } = await setUp(context, 'heard')
    assert.equal((await runStatusline(home, {})).stdout, 'patchcord · not wakeable\n')
    const listener = home.start({ args: ['--auto'] })
    await hasStatus(home, { connected: true, new: 0 })
    assert.equal((await runStatusline(home, {})).stdout, 'bob@heard · 0 new · wakeable\n')
    assert.match((await runHook(home, event('SessionStart'))).stdout, /the agent bob@heard, wakeable\./)
    await alice((scope) => sendMessage(scope, { to: 'bob', content: 'x' }))
    await hasStatus(home, { connected: true, new: 1 })
    assert.equal((await runStatusline(home, {})).stdout, 'bob@heard · 1 new · wakeable\n')
    assert.match((await runHook(home, event('PostToolUse'))).stdout, /1 new message for bob@heard, from alice/)
    // The listener is not told of what was read; the hook of this session has seen it.
    await bob((scope) => fetchInbox(scope, {}))
    assert.equal((await runHook(home, event('Stop'))).stdout, '')
    assert.equal((await runStatusline(home, { session_id: 'session-1' })).stdout, 'bob@heard · 0 new · wakeable\n')
    assert.equal(await listener.stop(), 0)
    await hasStatus(home, { connected: false })
    assert.equal((await runStatusline(home, {})).stdout, 'bob@heard · not wakeable\n')
  })

  test('a listener that was killed, or whose server is gone, makes nobody wakeable', async (context) => {
    const { home } = await setUp(context, 'killed')
    const listener = home.start({ args: ['--auto'] })
    const status = await hasStatus(home, { connected: true })
    assert.equal(status.pid, listener.pid)
    await listener.kill()
    assert.equal((await readStatus(home))?.connected, true)
    assert.equal((await runStatusline(home, {})).stdout, 'bob@killed · not wakeable\n')
  })
})

describe('what the listener has written down', { concurrency: 4 }, () => {
  async function setUp(context: TestContext) {
    const server = await HookServer.open()
    const home = await Home.create()
    context.after(async () => {
      await home.remove()
      await server.close()
    })
    await home.connect(server.origin)
    await home.trust(server.origin)
    const folder = join(home.runtime, 'patchcord')
    await mkdir(folder, { mode: 0o700 })
    /** As a listener of this very process would. */
    const write = async (more: Record<string, unknown> = {}, token = TOKEN) => {
      const key = toIdentityKey({ base: server.origin, token })
      const who = { agent: 'bob', namespace: 'acme', server: server.origin, pid: process.pid, started: '' }
      const status = { ...who, connected: true, new: 0, updated_at: new Date().toISOString(), ...more }
      await writeFile(join(folder, `status_acme_bob_${key}.json`), JSON.stringify(status), { mode: 0o600 })
    }
    const isAsked = async (name: string, more = {}) => {
      const before = server.requests.length
      await runHook(home, event(name, more))
      return server.requests.slice(before).some(({ path }) => path.includes('inbox'))
    }
    return { server, home, write, isAsked }
  }

  test('spares the server every question whose answer it holds', async (context) => {
    const { server, write, isAsked } = await setUp(context)
    await write({ new: 0 })
    for (const name of ['PostToolUse', 'UserPromptSubmit', 'Stop']) assert.equal(await isAsked(name), false, name)
    server.deliver('alice')
    await write({ new: 1 })
    assert.equal(await isAsked('PostToolUse'), true)
    // Told, and nothing has come since.
    for (const name of ['PostToolUse', 'UserPromptSubmit']) assert.equal(await isAsked(name), false, name)
    assert.equal(await isAsked('Stop'), true)
    await pause(5)
    await write({ new: 2 })
    assert.equal(await isAsked('PostToolUse'), true)
    assert.equal(await isAsked('PostToolUse', { session_id: 'session-2' }), true)
  })

  test('is not believed of a process that is gone or another, that does not hear, or that was last well long ago', async (context) => {
    const { home, write, isAsked } = await setUp(context)
    const others: Record<string, unknown>[] = [
      { pid: 2 ** 30 },
      { pid: 1 },
      { pid: 0 },
      { pid: -1 },
      { connected: false },
      { connected: 'true' },
      { updated_at: new Date(Date.now() - 3_600_000).toISOString() },
      { updated_at: new Date(Date.now() + 3_600_000).toISOString() },
      { updated_at: 'yesterday' },
      { server: 'https://elsewhere.example' },
      { new: -1 },
      ...(process.platform === 'linux' ? [{ started: '1' }] : []),
    ]
    for (const [index, other] of others.entries()) {
      await write(other)
      assert.equal(await isAsked('PostToolUse', { session_id: `s${index}` }), true, JSON.stringify(other))
      assert.doesNotMatch((await runStatusline(home, {})).stdout, /· wakeable/)
    }
    await write()
    assert.equal(await isAsked('PostToolUse'), false)
    await write({ agent: 'Ignore\nall', namespace: 'x' })
    assert.equal((await runStatusline(home, {})).stdout, 'patchcord · not wakeable\n')
    // Of another token it says nothing.
    await home.connect('http://127.0.0.1:1', OTHER_TOKEN)
    await write()
    assert.equal((await runStatusline(home, {})).stdout, 'patchcord · not wakeable\n')
  })

  test('is the user’s alone, and never written more than once a second', async (context) => {
    const { ScriptedServer } = await import('../helpers/scripted-server.ts')
    const server = await new ScriptedServer().listen()
    const home = await Home.create()
    context.after(async () => {
      await home.remove()
      await server.close()
    })
    await home.connect(server.origin)
    const listener = home.start()
    await listener.logged(/^subscribe: connected$/m)
    const seen = new Set<string>()
    const startedAt = Date.now()
    for (let index = 0; index < 150; index++) {
      server.deliver('alice')
      seen.add((await readStatus(home))?.updated_at ?? '')
      await pause(10)
    }
    const seconds = (Date.now() - startedAt) / 1_000
    await hasStatus(home, { new: 150 })
    assert.ok(seen.size <= seconds + 3, `${seen.size} writes in ${seconds} s`)
    const folder = join(home.runtime, 'patchcord')
    const names = (await readdir(folder)).filter((name) => name.startsWith('status_'))
    assert.equal(names.length, 1)
    if (isPosix) assert.equal((await stat(join(folder, names[0] ?? ''))).mode & 0o777, 0o600)
    await eventually(() => listener.isRunning)
    assert.doesNotMatch(await readFile(join(folder, names[0] ?? ''), 'utf8'), /pc_/)
  })
})

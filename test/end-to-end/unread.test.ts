import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { after, before, describe, type TestContext, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { purgeOnce } from '../../server/domain/retention.ts'
import { call, startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { startInstance } from '../helpers/instance.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { Machine, ROOT } from '../plugin/command.ts'
import { runHook } from '../scripts/hook-process.ts'
import { Home } from '../scripts/listener-process.ts'

const CONNECTED = /subscribe: connected/
const SHORT_LIFE_DAYS = 7

describe('a message that nobody has read', { concurrency: 4, timeout: 180_000 }, () => {
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
    const agents = await seed(database, namespace, ['alice', 'bob'])
    const { bob } = agents
    await home.connect(app.url, bob.token)
    await home.trust({ base: app.url, token: bob.token })
    return { home, ...agents }
  }

  const send = async ({ token }: SeededAgent, content: string, on: TestApp = app) =>
    (await call(on, 'POST', '/api/messages', { token, body: { to: 'bob', content, kind: 'report' } })).json
  async function stepsOf({ token }: SeededAgent, id: string): Promise<string[]> {
    const { json } = await call(app, 'GET', `/api/messages/${id}/status`, { token })
    return json.recipients[0].steps.map(({ step }: { step: string }) => step)
  }
  async function reachOfBob({ token }: SeededAgent): Promise<string> {
    const { json } = await call(app, 'GET', '/api/agents?all=1', { token })
    return json.agents.find(({ agent }: { agent: string }) => agent === 'bob').reach
  }
  async function becomesWakeable(asker: SeededAgent): Promise<void> {
    for (let tries = 0; tries < 500 && (await reachOfBob(asker)) !== 'wakeable'; tries++) await sleep(20)
    assert.equal(await reachOfBob(asker), 'wakeable')
  }
  const fetchAll = async ({ token }: SeededAgent) =>
    (await call(app, 'POST', '/api/inbox/fetch', { token, body: {} })).json
  const contentsOf = (messages: { content: string }[]) => messages.map(({ content }) => content)

  test('waits while its receiver is gone: killed, its lease over, its server restarted, old mail deleted; then it is told', async (t) => {
    const { home, alice, bob } = await setUp(t, 'away')
    let server = await startInstance(database)
    t.after(() => server.close())
    await home.connect(server.url, bob.token)
    await home.trust({ base: server.url, token: bob.token })
    const listener = home.start({ args: ['--auto'] })
    await listener.logged(CONNECTED)
    await becomesWakeable(alice)
    await listener.kill()
    await database.admin`
      update patchcord.leases set expires_at = clock_timestamp() - interval '1 s' where agent_uuid = ${bob.agentId}`
    await database.admin`
      update patchcord.tokens set last_used_at = clock_timestamp() - interval '1 hour' where id = ${bob.tokenId}`
    const sent = await send(alice, 'are you still there?', server)
    assert.equal(sent.recipients[0].reach, 'offline', 'its sender is told')
    await server.close()
    server = await startInstance(database, { port: Number(new URL(server.url).port) })
    await database.admin`
      update patchcord.agent_messages set sent_at = sent_at - interval '30 days' where id = ${sent.message_id}`
    await database.admin`
      update patchcord.message_bodies set sent_at = sent_at - interval '30 days' where id = ${sent.message_id}`
    await purgeOnce(database.api, SHORT_LIFE_DAYS)
    assert.deepEqual(await stepsOf(alice, sent.message_id), ['accepted'])
    const again = home.start({ args: ['--auto'] })
    await again.line('PATCHCORD: 1 waiting in inbox')
    assert.deepEqual(contentsOf((await fetchAll(bob)).new), ['are you still there?'])
  })

  /** One hook whose reader is gone before it says anything. */
  async function runUnheardHook(home: Home, name: string): Promise<number | null> {
    const child = spawn(process.execPath, [join(ROOT, 'scripts/hook.cjs')], {
      cwd: home.project,
      env: { ...home.environment(), PATCHCORD_HOOK_MS: '8000' },
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    child.stdout.destroy()
    child.stdin.end(JSON.stringify({ hook_event_name: name, session_id: 'session-1', prompt: 'hello' }))
    const [code] = await once(child, 'close')
    return code as number | null
  }

  test('stays new when a hook told of it to a client that no longer reads, and the end of the turn tells of it', async (t) => {
    const { home, alice, bob } = await setUp(t, 'hook')
    const { message_id: id } = await send(alice, 'urgent')
    for (const name of ['UserPromptSubmit', 'PostToolUse']) assert.equal(await runUnheardHook(home, name), 0)
    assert.deepEqual(await stepsOf(alice, id), ['accepted'])
    const { stdout } = await runHook(home, { hook_event_name: 'Stop', session_id: 'session-1' })
    assert.match(JSON.parse(stdout).reason, /1 new message for bob@hook, from alice/)
    assert.deepEqual(contentsOf((await fetchAll(bob)).new), ['urgent'])
  })

  test('counts as announced to nobody when the reader of the listener is gone', async (t) => {
    const { home, alice, bob } = await setUp(t, 'listener')
    const listener = home.start({ args: ['--auto'] })
    await listener.logged(CONNECTED)
    await becomesWakeable(alice)
    listener.child.stdout?.destroy()
    const { message_id: id } = await send(alice, 'anybody?')
    assert.equal(await listener.exitCode(), 0)
    assert.deepEqual(await stepsOf(alice, id), ['accepted'])
    assert.notEqual(await reachOfBob(alice), 'wakeable')
    assert.deepEqual(contentsOf((await fetchAll(bob)).new), ['anybody?'])
  })

  test('is shown again in full when the command that fetched it could not print it, by inbox and by wait', async (t) => {
    const machine = await Machine.create()
    t.after(() => machine.remove())
    const { alice, bob } = await seed(database, 'command', ['alice', 'bob'])
    const env = { PATCHCORD_URL: app.url, PATCHCORD_TOKEN: bob.token }
    for (const verb of ['inbox', 'wait']) {
      const { message_id: id } = await send(alice, `by ${verb}`)
      const running = machine.start([verb], { stdin: '', env })
      running.child.stdout?.destroy()
      await running.ended
      for (let tries = 0; tries < 100 && (await stepsOf(alice, id)).length < 2; tries++) await sleep(20)
      assert.deepEqual(await stepsOf(alice, id), ['accepted', 'fetched'], verb)
      const { code, stdout } = await machine.run(['inbox'], { env })
      assert.equal(code, 0)
      assert.match(stdout, new RegExp(`by ${verb}`))
      await call(app, 'POST', `/api/messages/${id}/done`, { token: bob.token })
    }
  })
})

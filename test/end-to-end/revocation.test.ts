import assert from 'node:assert/strict'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import { listAgents } from '../../server/domain/agents.ts'
import { issueToken, revokeToken } from '../../server/domain/tokens.ts'
import { call, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { startInstance } from '../helpers/instance.ts'
import { connectMcp, createTemporaryFolder, type ListenerProcess, spawnListener } from '../helpers/processes.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

/** The contract's second, and what a busy machine adds to it. */
const END_MS_MAX = 1_000 + 500
const PATIENCE_MS = 20_000

interface ListenerHere extends ListenerProcess {
  log: string[]
}

/** Two whole servers, real listeners and real waits on both, and no LISTEN: what ends a token reaches them all by state. */
describe('the end of a token', { timeout: 120_000 }, () => {
  let database: TestDatabase
  let folder: Awaited<ReturnType<typeof createTemporaryFolder>>
  let instances: TestApp[]
  let cutting: NodeJS.Timeout
  let homes = 0
  const closers: (() => Promise<unknown>)[] = []

  before(async () => {
    database = await createTestDatabase()
    folder = await createTemporaryFolder()
    // All clients here share one address, and what they are refused counts against it.
    const options = { limits: { unauthenticatedPerMinute: 10_000 } }
    instances = [await startInstance(database, options), await startInstance(database, options)]
    await cutListen()
    cutting = setInterval(() => void cutListen(), 50)
  })
  after(async () => {
    clearInterval(cutting)
    for (const close of closers.reverse()) await close()
    await Promise.all(instances.map((each) => each.close()))
    await folder.remove()
    await database.drop()
  })

  /** Both instances LISTEN again after a while: until the tests are over they are cut off each time. */
  async function cutListen(): Promise<void> {
    await database.superuser`
      select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name = 'patchcord-wakes'`
  }

  async function listen(app: TestApp, token: string): Promise<ListenerHere> {
    const home = join(folder.path, `home-${++homes}`)
    await mkdir(home, { mode: 0o700 })
    const listener = spawnListener({ url: app.url, token, home })
    const log: string[] = []
    listener.onLog((line) => log.push(line))
    closers.push(() => listener.stop())
    await until('the listener is connected', () => log.some((line) => line.includes('connected')))
    return { ...listener, log }
  }

  /** A wait that stands on an instance: its answer to come, with when that was. */
  async function wait(app: TestApp, token: string) {
    const agent = await connectMcp(app.url, token)
    closers.push(agent.close)
    const tokensBefore = [...app.deps.waiters.tokenIds()].length
    const answer = agent
      .call('wait_for_message', { timeout_seconds: 60 })
      .then(({ text, isError }) => ({ text, isError, at: performance.now() }))
    await until('the wait stands', () => [...app.deps.waiters.tokenIds()].length > tokensBefore)
    return { answer }
  }

  /** A listener and a wait on each instance. */
  async function occupy(token: string) {
    const listeners = await Promise.all(instances.map((app) => listen(app, token)))
    const waits = await Promise.all(instances.map((app) => wait(app, token)))
    return { listeners, answers: () => Promise.all(waits.map(({ answer }) => answer)) }
  }

  const holds = (tokenId: string) =>
    instances.some(({ hub, deps }) => [...hub.tokenIds(), ...deps.waiters.tokenIds()].includes(tokenId))
  const reachOf = async (observer: SeededAgent, name: string) =>
    (await observer((scope) => listAgents(scope, { all: true }))).agents.find(({ agent }) => agent === name)?.reach

  async function expectEnd(tokenId: string, endedAt: number): Promise<void> {
    await until('nothing hangs on the token', () => !holds(tokenId))
    const ms = performance.now() - endedAt
    assert.ok(ms < END_MS_MAX, `${ms} ms`)
  }

  async function expectStopped(listeners: ListenerHere[], line: string): Promise<void> {
    for (const listener of listeners) {
      const isThere = () => listener.lines.some(({ text }) => text === line)
      await until(() => `the line "${line}" in ${JSON.stringify([listener.lines, listener.log])}`, isThere)
      assert.equal(await listener.ended, 1)
    }
  }

  test('revoked: sockets and waits end on every instance, and the agent is not wakeable from that moment', async () => {
    const { alice, carol } = await seed(database, 'revoked', ['alice', 'carol'])
    const { listeners, answers } = await occupy(alice.token)
    await until('alice is wakeable', async () => (await reachOf(carol, 'alice')) === 'wakeable')
    await revokeToken(database.admin, alice.tokenId)
    const endedAt = performance.now()
    assert.equal(await reachOf(carol, 'alice'), 'online')
    await expectEnd(alice.tokenId, endedAt)
    for (const { text, isError, at } of await answers()) {
      assert.ok(isError && at - endedAt < END_MS_MAX)
      assert.match(text, /The token was revoked/)
    }
    await expectStopped(listeners, 'PATCHCORD: stopped: token rejected (HTTP 403), check .mcp.json')
  })

  test('revoked: the listeners, waits and leases of another token of the agent go on', async () => {
    const { alice, carol } = await seed(database, 'spared', ['alice', 'carol'])
    const spared = await issueToken(database.admin, { namespace: 'spared', agent: 'alice' })
    const [app] = instances as [TestApp]
    const [mine, other] = [await listen(app, alice.token), await listen(app, spared.token)]
    const { answer } = await wait(app, spared.token)
    await revokeToken(database.admin, alice.tokenId)
    await until('the socket has ended', () => !holds(alice.tokenId))
    await expectStopped([mine], 'PATCHCORD: stopped: token rejected (HTTP 403), check .mcp.json')
    await sleep(600)
    assert.ok([...app.hub.tokenIds()].includes(spared.id) && [...app.deps.waiters.tokenIds()].includes(spared.id))
    assert.ok(!other.log.some((line) => line.includes('closed')))
    assert.equal(await reachOf(carol, 'alice'), 'wakeable')
    await revokeToken(database.admin, spared.id)
    assert.ok((await answer).isError)
  })

  test('expired: all ends with it', async () => {
    const { carol } = await seed(database, 'expired', ['alice', 'carol'])
    const issued = { namespace: 'expired', agent: 'alice', expiresInSeconds: 8 }
    const short = await issueToken(database.admin, issued)
    const endsAt = performance.now() + issued.expiresInSeconds * 1000
    const { listeners, answers } = await occupy(short.token)
    assert.ok(performance.now() < endsAt, 'all stood before the token expired')
    await until('alice is wakeable', async () => (await reachOf(carol, 'alice')) === 'wakeable')
    await sleep(Math.max(0, endsAt - performance.now()))
    await expectEnd(short.id, endsAt)
    assert.notEqual(await reachOf(carol, 'alice'), 'wakeable')
    for (const { text, isError, at } of await answers()) {
      assert.ok(isError && at - endsAt < END_MS_MAX)
      assert.match(text, /not valid or has expired/)
    }
    await expectStopped(listeners, 'PATCHCORD: stopped: token rejected (HTTP 401), check .mcp.json')
  })

  test('its agent deleted: all ends, and says so', async () => {
    const { alice } = await seed(database, 'deleted', ['alice'])
    const { listeners, answers } = await occupy(alice.token)
    await database.admin`update patchcord.agents set deleted_at = clock_timestamp() where id = ${alice.agentId}`
    const endedAt = performance.now()
    await expectEnd(alice.tokenId, endedAt)
    for (const { text, isError } of await answers()) {
      assert.ok(isError)
      assert.match(text, /The agent of this token was deleted/)
    }
    await expectStopped(listeners, 'PATCHCORD: stopped: namespace not owned, regenerate your token')
  })

  test('its agent renamed: all ends once, and the listeners come back under the new name', async () => {
    const { alice, carol } = await seed(database, 'renamed', ['alice', 'carol'])
    const { listeners, answers } = await occupy(alice.token)
    const closed = ({ log }: ListenerHere) => log.filter((line) => line.includes('reconnecting in')).length
    await database.admin`update patchcord.agents set name = 'alicia' where id = ${alice.agentId}`
    const endedAt = performance.now()
    await until('all sockets were closed', () => listeners.every((each) => closed(each) > 0))
    assert.ok(performance.now() - endedAt < END_MS_MAX)
    for (const { text, isError, at } of await answers()) {
      assert.ok(isError && at - endedAt < END_MS_MAX)
      assert.match(text, /This agent is called alicia now\.\s+Call again/)
    }
    await until('they are back', () => instances.every(({ hub }) => [...hub.tokenIds()].includes(alice.tokenId)))
    await until('alicia is wakeable', async () => (await reachOf(carol, 'alicia')) === 'wakeable')
    await sleep(1_200)
    assert.deepEqual(listeners.map(closed), [1, 1])
  })

  test('a ticket from before the revocation opens nothing that lasts, also where nobody listened', async () => {
    const { alice, bob } = await seed(database, 'late', ['alice', 'bob'])
    const [app] = instances as [TestApp]
    const { json: ticket } = await call(app, 'GET', '/api/realtime/ticket', { token: alice.token })
    await revokeToken(database.admin, alice.tokenId)
    const url = `${ticket.realtime_url}?apikey=${ticket.apikey}&vsn=1.0.0`
    const openedAt = performance.now()
    assert.equal(await outcomeOf(new WebSocket(url)), 'closed with 1000')
    assert.ok(performance.now() - openedAt < END_MS_MAX)
    const keeper = await listen(app, bob.token)
    assert.equal(await outcomeOf(new WebSocket(url)), 'refused with 401')
    await keeper.stop()
  })
})

async function outcomeOf(socket: WebSocket): Promise<string> {
  return await new Promise((resolve) => {
    socket.on('close', (code) => resolve(`closed with ${code}`))
    socket.on('unexpected-response', (request, response) => {
      request.destroy()
      resolve(`refused with ${response.statusCode}`)
    })
    socket.on('error', (error) => resolve(error.message))
  })
}

async function until(what: string | (() => string), isTrue: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS
  while (!(await isTrue())) {
    if (performance.now() > deadline) assert.fail(`never came true: ${typeof what === 'string' ? what : what()}`)
    await sleep(10)
  }
}

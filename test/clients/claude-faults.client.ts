import assert from 'node:assert/strict'
import { after, afterEach, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { isEvent, type Running, Scene } from './helpers/scene.ts'

/** What is told twice is told within this. */
const SILENCE_MS = 15_000
/** It looks every 3 s, and connects; a busy machine takes its time. test/listener holds the time itself. */
const TAKE_OVER_MS_MAX = 20_000

describe('Claude Code with the plugin, when something ends', () => {
  let scene: Scene

  before(async () => {
    scene = await Scene.open(['alice', 'pair', 'steady', 'revoked'])
  })
  afterEach(() => scene.closeSessions())
  after(() => scene.close())

  /** Sends, and waits for the event at this session's model. */
  async function wake(agent: string, { model }: Running): Promise<void> {
    const from = model.requests.length
    await scene.world.send('alice', agent, 'hello', { kind: 'report' })
    await model.waitForRequest((one) => isEvent(one, /PATCHCORD: 1 (?:new from alice|waiting in inbox)/), {
      from,
      what: `wake of ${agent}`,
    })
  }

  test('a second session of the project stands by and takes over when the first ends', async () => {
    const project = await scene.world.createProject('pair')
    const first = await scene.start(project, { reader: 'pair' })
    await scene.world.waitForWakeable('pair')
    const second = await scene.start(project, { reader: 'pair' })
    await second.session.terminal.waitFor('1 monitor')
    await wake('pair', first)
    await sleep(2_000)
    assert.equal(second.model.requests.length, 0, second.model.describe())
    await first.session.waitForIdle()
    await first.session.exit()
    const endedAt = performance.now()
    await wake('pair', second)
    const took = performance.now() - endedAt
    assert.ok(took < TAKE_OVER_MS_MAX, `${took} ms`)
    assert.equal(second.model.requests.length, 1, second.model.describe())
  })

  test('the server restarts under it: no turn for that, and messages wake it again', async () => {
    const running = await scene.start(await scene.world.createProject('steady'), { reader: 'steady' })
    await scene.world.waitForWakeable('steady')
    await scene.world.restartServer(() => sleep(3_000))
    await wake('steady', running)
    assert.equal(running.model.requests.length, 1, running.model.describe())
  })

  test('the token is revoked: one line, once', async () => {
    const { model, session } = await scene.start(await scene.world.createProject('revoked'), { reader: 'revoked' })
    await scene.world.waitForWakeable('revoked')
    await scene.world.revoke('revoked')
    const request = await model.waitForRequest((one) => isEvent(one))
    assert.match(request.news, /<event>PATCHCORD: stopped: token rejected \(HTTP 40[13]\), check \.mcp\.json<\/event>/)
    await sleep(SILENCE_MS)
    assert.equal(model.requests.length, 1, model.describe())
    assert.match(await session.terminal.screen(), /1 monitor/, 'the monitor has not ended')
  })
})

import assert from 'node:assert/strict'
import { after, afterEach, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { callTool } from './helpers/model.ts'
import { ALLOW_RULES, Scene } from './helpers/scene.ts'

/** A turn that a hook starts comes at once. */
const SILENCE_MS = 5_000
const ALLOW = [...ALLOW_RULES, 'Bash(sleep *)']
/** Hooks alone: the session has no listener. */
const DEAF = { PATCHCORD_LISTEN: '0' }

describe('Claude Code with the plugin, while a turn runs', () => {
  let scene: Scene

  before(async () => {
    scene = await Scene.open(['alice', 'heard', 'deaf', 'ending'])
  })
  afterEach(() => scene.closeSessions())
  after(() => scene.close())

  test('a message that comes during a tool call reaches the model with its result', async (t) => {
    const { model, session } = await scene.start(await scene.world.createProject('heard'), { allow: ALLOW })
    model.script = async ({ index, news }) => {
      if (index === 0) return callTool('Bash', { command: 'sleep 6' })
      if (/1 new/.test(news)) await scene.world.fetchInbox('heard')
      return { text: 'done' }
    }
    await scene.world.waitForWakeable('heard')
    await session.terminal.send('work')
    await model.waitForRequest(({ index }) => index === 0)
    await scene.world.send('alice', 'heard', 'stop, the plan has changed')
    const { news } = await model.waitForRequest(({ index }) => index === 1, { what: 'the result of the tool' })
    const [event, hook] = [/PATCHCORD: 1 new from alice/, /Patchcord: 1 new message for heard@acme, from alice/]
    assert.ok(event.test(news) || hook.test(news), news)
    assert.ok(!news.includes('the plan has changed'), 'only the tools show the text of a message')
    t.diagnostic(`told with the tool's result: by the monitor ${event.test(news)}, by the hook ${hook.test(news)}`)
    await sleep(SILENCE_MS)
    assert.equal(model.requests.length, 2, model.describe())
  })

  test('without a listener the hook tells of it, once', async () => {
    const options = { allow: ALLOW, env: DEAF }
    const { model, session } = await scene.start(await scene.world.createProject('deaf'), options)
    model.script = async ({ index }) => {
      if (index < 2) return callTool('Bash', { command: `sleep ${6 - index * 4}` })
      await scene.world.fetchInbox('deaf')
      return { text: 'done' }
    }
    await session.terminal.send('work')
    await model.waitForRequest(({ index }) => index === 0)
    await scene.world.send('alice', 'deaf', 'stop, the plan has changed')
    const first = await model.waitForRequest(({ index }) => index === 1)
    assert.match(
      first.news,
      /PostToolUse:Bash hook additional context: Patchcord: 1 new message for deaf@acme, from alice/,
    )
    const second = await model.waitForRequest(({ index }) => index === 2)
    assert.doesNotMatch(second.news, /Patchcord: /, 'the same message is not told of again')
  })

  test('a message that comes at the end of a turn blocks the end once', async () => {
    const { model, session } = await scene.start(await scene.world.createProject('ending'), { env: DEAF })
    model.script = ({ index }) => ({ text: `answer ${index}`, ...(index === 0 ? { delayMs: 5_000 } : {}) })
    await session.terminal.send('work')
    await model.waitForRequest(({ index }) => index === 0)
    await scene.world.send('alice', 'ending', 'one more thing')
    const blocked = await model.waitForRequest(({ index }) => index === 1, { what: 'the turn that goes on' })
    assert.match(blocked.news, /Stop hook feedback:\n?Patchcord: 1 new message for ending@acme, from alice/)
    assert.ok(!blocked.news.includes('one more thing'))
    await sleep(SILENCE_MS)
    assert.equal(model.requests.length, 2, model.describe())
    await session.waitForIdle()
    await session.terminal.send('go on')
    const next = await model.waitForRequest(({ index }) => index === 2)
    assert.match(next.news, /go on/)
    await sleep(SILENCE_MS)
    assert.equal(model.requests.length, 3, 'a message that was ignored does not block the next end')
  })
})

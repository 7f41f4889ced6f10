import assert from 'node:assert/strict'
import { after, afterEach, before, describe, test } from 'node:test'
import { callTool, type ModelReply, type ModelRequest } from './helpers/model.ts'
import { isEvent, nameTool, type Running, readMessageId, Scene, withTools } from './helpers/scene.ts'

/** A model that has read the question. */
function answerDoor(request: ModelRequest): ModelReply {
  const content = `seen: ${/the door (\w+)/.exec(request.news)?.[1]}`
  return callTool(nameTool('reply'), { message_id: readMessageId(request), content })
}

describe('Claude Code, interactive, with the plugin', () => {
  let scene: Scene

  before(async () => {
    scene = await Scene.open(['alice', 'backend', 'long', 'resumed'])
  })
  afterEach(() => scene.closeSessions())
  after(() => scene.close())

  /** Sends from alice; the request that brings the event. */
  async function wake({ model, session }: Running, agent: string, content = 'hello'): Promise<ModelRequest> {
    await scene.world.waitForWakeable(agent)
    await session.waitForIdle()
    const from = model.requests.length
    await scene.world.send('alice', agent, content, { kind: 'report' })
    const request = await model.waitForRequest((one) => isEvent(one, 'PATCHCORD: 1 new from alice'), {
      from,
      what: `the wake of ${agent}`,
    })
    assert.equal(request.index, from, 'nothing else was asked of the model')
    return request
  }

  test('a message wakes an idle session in which nobody typed; the model reads the inbox and its reply arrives', async () => {
    const running = await scene.start(await scene.world.createProject('backend'), { servers: [] })
    const { model } = running
    await scene.world.waitForWakeable('backend')
    assert.equal(model.requests.length, 0, model.describe())
    model.script = withTools(['inbox', 'reply'], [callTool(nameTool('inbox')), answerDoor, { text: 'answered' }])
    await scene.world.send('alice', 'backend', 'Is the door blue or red?')
    const event = await model.waitForRequest((one) => isEvent(one, 'PATCHCORD: 1 new from alice'))
    assert.equal(event.index, 0, 'the event is the first thing that the model hears')
    assert.ok(!event.text.includes('door'), 'the event holds no text of the message')
    assert.match(event.news, /NOT USER INPUT/)
    assert.match(
      event.news,
      /Patchcord: this session is the agent backend@acme/,
      'the session start has told who it is',
    )
    const isInbox = ({ news }: ModelRequest) => /backend@acme \| 1 new, 0 open, 0 deferred \| you: wakeable/.test(news)
    const inbox = await model.waitForRequest(isInbox, { what: 'the result of inbox' })
    assert.match(inbox.news, /Is the door blue or red\?/)
    const reply = await scene.world.waitForMessage('alice', /^seen: blue$/)
    assert.equal(reply.from, 'backend')
    await running.session.waitForIdle()
    assert.equal(model.requests.length, inbox.index + 2, model.describe())
  })

  test('it goes on through /clear and /compact', async () => {
    const running = await scene.start(await scene.world.createProject('long'), { reader: 'long' })
    await wake(running, 'long')
    await running.session.waitForIdle()
    await running.session.terminal.waitFor('noted 1')
    await running.session.terminal.send('/clear')
    await running.session.terminal.waitFor(/^(?![\s\S]*noted 1)/)
    await running.session.waitForIdle()
    const cleared = await wake(running, 'long')
    assert.ok(!cleared.text.includes('noted 1'), 'the conversation is a new one')
    await running.session.waitForIdle()
    await running.session.terminal.send('/compact')
    await running.session.terminal.waitFor(/Compacted|compacted/)
    const compacted = await wake(running, 'long')
    assert.match(compacted.text, /continued from a previous conversation/)
  })

  test('a resumed session listens again', async () => {
    const project = await scene.world.createProject('resumed')
    const running = await scene.start(project, { reader: 'resumed' })
    await wake(running, 'resumed')
    await running.session.waitForIdle()
    await running.session.exit()
    await scene.world.waitForWakeable('resumed', false)
    const resumed = await scene.start(project, { args: ['--continue'], reader: 'resumed' })
    const request = await wake(resumed, 'resumed')
    assert.match(request.text, /noted 1/, 'the conversation is the one of before')
  })
})

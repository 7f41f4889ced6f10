import assert from 'node:assert/strict'
import { after, afterEach, before, describe, test } from 'node:test'
import { callTool } from './helpers/model.ts'
import { startRecorder } from './helpers/recorder.ts'
import { nameTool, Scene, withTools } from './helpers/scene.ts'

const ERA = '2026-07-28'

describe('Claude Code and our MCP endpoint', () => {
  let scene: Scene

  before(async () => {
    scene = await Scene.open(['alice', 'era'])
  })
  afterEach(() => scene.closeSessions())
  after(() => scene.close())

  test(`speaks ${ERA} throughout, and finds every tool of ours`, async (t) => {
    const recorder = await startRecorder(scene.world.url)
    t.after(() => recorder.close())
    const project = await scene.world.createProject(null)
    await scene.world.connectProject(project, 'era', recorder.url)
    const script = withTools(['list_agents'], [callTool(nameTool('list_agents')), { text: 'done' }])
    const { model, run } = await scene.print(project, 'who is here?', { script })
    assert.equal((await run.ended).code, 0)
    assert.match(model.requests.at(-1)?.news ?? '', /"agent":"era"[^}]*"is_you":true/)
    const calls = recorder.calls.filter(({ what }) => what !== 'GET')
    assert.deepEqual([...new Set(calls.map(({ era }) => era))], [ERA], JSON.stringify(calls))
    const methods = calls.map(({ what }) => what)
    for (const method of ['server/discover', 'tools/list', 'tools/call list_agents']) {
      assert.ok(methods.includes(method), `${method} in ${methods}`)
    }
    t.diagnostic(`era ${ERA}, ${calls[0]?.client}: ${methods.join(', ')}`)
    const told = JSON.stringify(model.requests[0]?.body)
    for (const tool of ['inbox', 'send_message', 'reply', 'wait_for_message']) {
      assert.ok(told.includes(nameTool(tool)), `${tool} is offered`)
    }
  })
})

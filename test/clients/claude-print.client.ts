import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, afterEach, before, describe, test } from 'node:test'
import { callTool, type ModelRequest, react } from './helpers/model.ts'
import { isEvent, nameTool, readMessageId, Scene, searchTools } from './helpers/scene.ts'
import { armListener, SUBSCRIBE_SKILL } from './helpers/subscribe.ts'

/** Short, so that the watch expires while we look; longer than the turn of the first wake, which would not hear of it. */
const EXPIRES_MS = 25_000
const EXPIRED = /\[Monitor expired after /

describe('claude -p with the plugin', () => {
  let scene: Scene

  before(async () => {
    scene = await Scene.open(['alice', 'printed', 'asked'])
  })
  afterEach(() => scene.closeSessions())
  after(() => scene.close())

  test('/patchcord:subscribe arms, wakes, arms again after expiry, and the turns of events may use our tools', async (t) => {
    const project = await scene.world.createProject(null)
    await scene.connect(project, 'printed', ['--allow'])
    let turns = 0
    const answer = [
      searchTools('inbox', 'reply'),
      callTool(nameTool('inbox')),
      (request: ModelRequest) =>
        callTool(nameTool('reply'), { message_id: readMessageId(request), content: `from turn ${++turns}` }),
      { text: 'answered' },
    ]
    const { model, run } = await scene.print(project, '/patchcord:subscribe', {
      isConnected: true,
      script: react([
        [
          SUBSCRIBE_SKILL,
          [
            callTool('ToolSearch', { query: 'select:Monitor' }),
            (request) => armListener(request, EXPIRES_MS),
            { text: 'armed' },
          ],
        ],
        [/<event>PATCHCORD: 1 new from alice/, answer],
        [EXPIRED, [(request) => armListener(request, 600_000), { text: 'armed again' }]],
      ]),
    })
    // From the second on: the skill, which comes with the first, speaks of approvals too.
    const started = await model.waitForRequest(({ news }) => /Monitor started|requires approval/.test(news), {
      from: 1,
    })
    assert.match(started.news, /Monitor started/)
    await scene.world.waitForWakeable('printed')
    await scene.world.send('alice', 'printed', 'first')
    await model.waitForRequest((one) => isEvent(one, 'PATCHCORD: 1 new from alice'), { what: 'the first wake' })
    await scene.world.waitForMessage('alice', /^from turn 1$/)
    const expired = await model.waitForRequest(({ news }) => EXPIRED.test(news), { what: 'the expiry' })
    const from = expired.index + 1
    await model.waitForRequest(({ news }) => /Monitor started/.test(news), { from, what: 'the second start' })
    await scene.world.waitForWakeable('printed')
    await scene.world.send('alice', 'printed', 'second')
    await model.waitForRequest((one) => isEvent(one, 'PATCHCORD: 1 new from alice'), { from, what: 'the second wake' })
    await scene.world.waitForMessage('alice', /^from turn 2$/)
    const { permissions } = JSON.parse(await readFile(join(project, '.claude/settings.local.json'), 'utf8'))
    t.diagnostic(`allow rules: ${JSON.stringify(permissions.allow).replaceAll(scene.world.folder, '…')}`)
    assert.ok(run.lines.some((line) => line.type === 'result'))
  })

  test('without the allow rules the client refuses the watch and our tools', async () => {
    const project = await scene.world.createProject('asked')
    const { model, run } = await scene.print(project, '/patchcord:subscribe', {
      allow: [],
      script: react([
        [
          SUBSCRIBE_SKILL,
          [
            callTool('ToolSearch', { query: 'select:Monitor' }),
            (request) => armListener(request, EXPIRES_MS),
            searchTools('inbox'),
            callTool(nameTool('inbox')),
            { text: 'refused' },
          ],
        ],
      ]),
    })
    const refused = await model.waitForRequest(({ index }) => index === 2)
    assert.match(refused.news, /requires approval/)
    const tool = await model.waitForRequest(({ index }) => index === 4)
    assert.match(tool.news, /mcp__patchcord__inbox.*(?:permission|approval)|haven't granted/)
    assert.equal((await run.ended).code, 0)
  })
})

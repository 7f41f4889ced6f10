import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, afterEach, before, describe, test } from 'node:test'
import { callTool, type ModelRequest, react } from './helpers/model.ts'
import { installFromFolder, installFromHost, listListeners, listMarks, type Source } from './helpers/plugin-versions.ts'
import { isEvent, type Running, Scene } from './helpers/scene.ts'
import { armListener, SUBSCRIBE_SKILL } from './helpers/subscribe.ts'
import { waitUntil } from './helpers/wait.ts'

const INTRODUCTION = 'Patchcord: this session is the agent updated@acme'

describe('Claude Code whose plugin is updated twice', () => {
  let scene: Scene

  before(async () => {
    scene = await Scene.open(['alice', 'updated'])
  })
  afterEach(() => scene.closeSessions())
  after(() => scene.close())

  /** Sends, and waits for the event; one turn, and nothing else was asked of the model. */
  async function wake({ model, session }: Running): Promise<ModelRequest> {
    await scene.world.waitForWakeable('updated')
    await session.waitForIdle()
    const from = model.requests.length
    await scene.world.send('alice', 'updated', 'hello', { kind: 'report' })
    const request = await model.waitForRequest((one) => isEvent(one, 'PATCHCORD: 1 new from alice'), { from })
    await session.waitForIdle()
    assert.equal(model.requests.length, from + 1, model.describe(from))
    return request
  }

  async function waitForListeners(roots: string[]): Promise<void> {
    const wanted = roots.map((root) => join(root, 'scripts/subscribe.mjs')).sort()
    await waitUntil(
      async () => String(await listListeners()) === String(wanted),
      async () => `the listeners are ${await listListeners()}, not ${wanted}`,
    )
  }

  const places: [string, (scene: Scene) => Promise<Source>, string[]][] = [
    ['a folder', installFromFolder, ['0.2.0', '0.3.0']],
    ['a host of git repositories', installFromHost, ['0.4.0', '0.5.0']],
  ]
  for (const [place, install, versions] of places) {
    test(`from ${place}: the open session goes on, and the next has one listener and the hooks and skills of one version`, async () => {
      const { update, findRoot } = await install(scene)
      const project = await scene.world.createProject('updated')
      const before = await scene.start(project, { reader: 'updated' })
      await wake(before)
      const [oldListener = ''] = await listListeners()
      for (const version of versions) await update(version)
      await wake(before)
      const after = await scene.start(project, { reader: 'updated' })
      const root = findRoot(versions.at(-1) ?? '')
      await waitForListeners([join(oldListener, '../..'), root])
      await wake(before)
      assert.equal(after.model.requests.length, 0, 'the old one has told of it')
      await before.session.exit()
      await waitForListeners([root])
      const { index } = await wake(after)
      // The skills are listed at a prompt, and not in the turn of an event.
      await after.session.terminal.send('what can you do?')
      const isPrompt = ({ news }: ModelRequest) => news.includes('what can you do?')
      const { text, body } = await after.model.waitForRequest(isPrompt, { from: index + 1 })
      const version = versions.at(-1)
      assert.deepEqual(listMarks(JSON.stringify(body)), [`hooks-of-${version}`, `skill-of-${version}`])
      assert.equal(text.split(INTRODUCTION).length - 1, 1, 'one hook has introduced the agent')
    })
  }

  /** What `/patchcord:subscribe` is answered with when a model does what it says. */
  async function subscribe(project: string): Promise<string> {
    const find = callTool('ToolSearch', { query: 'select:Monitor' })
    const script = react([[SUBSCRIBE_SKILL, [find, (request) => armListener(request, 2_000), { text: 'done' }]]])
    const { model, run } = await scene.print(project, '/patchcord:subscribe', { isConnected: true, script })
    const { news } = await model.waitForRequest(({ index }) => index === 2, { what: 'the answer of Monitor' })
    run.kill()
    await run.ended
    return news
  }

  test('what connect --allow allows is one version of the listener: it is asked for after an update, until it is run again', async (t) => {
    const { update } = await installFromHost(scene)
    const project = await scene.world.createProject(null)
    await scene.connect(project, 'updated', ['--allow'])
    assert.match(await subscribe(project), /Monitor started/)
    await update('0.6.0')
    assert.match(await subscribe(project), /requires approval/)
    await scene.connect(project, 'updated', ['--allow'])
    assert.match(await subscribe(project), /Monitor started/)
    const { permissions } = JSON.parse(await readFile(join(project, '.claude/settings.local.json'), 'utf8'))
    t.diagnostic(`allow rules: ${JSON.stringify(permissions.allow).replaceAll(scene.world.folder, '…')}`)
  })
})

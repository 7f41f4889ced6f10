import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, afterEach, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { isEvent, Scene } from './helpers/scene.ts'

/** An exiting monitor starts a turn at once; a slip of ours would show well within this. */
const SILENCE_MS = 20_000

describe('Claude Code with the plugin in a project that is not connected', () => {
  let scene: Scene

  before(async () => {
    scene = await Scene.open(['alice', 'late', 'distrusted'])
  })
  afterEach(() => scene.closeSessions())
  after(() => scene.close())

  test('asks the model nothing, with no .mcp.json or other servers only, and listens when an entry appears', async () => {
    const bare = await scene.world.createProject(null)
    const other = await scene.world.createProject(null)
    const entry = { type: 'http', url: 'http://127.0.0.1:9/mcp', headers: { Authorization: 'Bearer something-else' } }
    await writeFile(join(other, '.mcp.json'), JSON.stringify({ mcpServers: { other: entry } }))
    const sessions = [await scene.start(bare, { reader: 'late' }), await scene.start(other)]
    for (const { session } of sessions) await session.terminal.waitFor('1 monitor')
    await sleep(SILENCE_MS)
    for (const { session, model } of sessions) {
      assert.deepEqual([model.requests.length, model.others], [0, []], model.describe())
      assert.match(await session.terminal.screen(), /1 monitor/, 'the monitor still runs')
    }
    await scene.world.connectProject(bare, 'late')
    await scene.world.waitForWakeable('late')
    assert.equal(sessions[0]?.model.requests.length, 0)
    await scene.world.send('alice', 'late', 'hello')
    await sessions[0]?.model.waitForRequest((one) => isEvent(one, 'PATCHCORD: 1 new from alice'))
    assert.equal(sessions[1]?.model.requests.length, 0)
  })

  test('does not listen to a server that the user has not trusted, and says at the first prompt how to', async () => {
    const stranger = await Scene.open(['alice', 'distrusted'])
    try {
      // A server of another origin than the one that this home folder trusts, and a token that it would accept.
      const project = await scene.world.createProject(null)
      await stranger.world.connectProject(project, 'distrusted')
      const { session, model } = await scene.start(project)
      await session.terminal.waitFor('1 monitor')
      await sleep(SILENCE_MS)
      assert.equal(model.requests.length, 0, model.describe())
      await stranger.world.waitForWakeable('distrusted', false)
      await session.terminal.send('hello')
      const { news } = await model.waitForRequest(({ index }) => index === 0)
      assert.match(news, /Patchcord: server not trusted yet: the user can run patchcord connect in a terminal/)
    } finally {
      await stranger.close()
    }
  })
})

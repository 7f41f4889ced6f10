import assert from 'node:assert/strict'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { after, afterEach, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { CodexScene, callOurs, codexSteps, isTitle, isWake } from './helpers/codex.ts'
import { waitUntil } from './helpers/wait.ts'

let scene: CodexScene
let project: string
before(async () => {
  scene = await CodexScene.open()
  project = await scene.createProject()
})
afterEach(async () => {
  await scene.closeSessions()
  await hasNoListener()
  for (const agent of ['backend', 'alice']) await scene.world.fetchInbox(agent)
})
after(() => scene.close())

/** Waits until nothing of a thread's listener is left in the runtime folder. */
async function hasNoListener(): Promise<void> {
  const list = async () => {
    const names = await readdir(join(scene.world.runtime, 'patchcord')).catch(() => [])
    return names.filter((name) => /^codex_|\.pid$/.test(name))
  }
  await waitUntil(
    async () => (await list()).length === 0,
    async () => `${await list()} is still there`,
  )
}

describe('an idle Codex with the plugin', () => {
  test('is woken by a message, reads it and replies, and the reply reaches the other agent', async () => {
    const { world, model } = scene
    const session = await scene.start(project)
    model.script = codexSteps()
    await scene.startThread(session)
    await world.waitForWakeable('backend')
    const from = model.requests.length
    let asked = ''
    const turns = [() => callOurs('inbox'), () => callOurs('reply', { message_id: asked, content: 'On 8787.' })]
    model.script = (request) => (isTitle(request) ? undefined : turns.shift()?.()) ?? { text: 'done' }
    asked = await world.send('alice', 'backend', 'Which port does the API listen on?')
    const woken = await model.waitForRequest(isWake, { from, what: 'the wake' })
    assert.match(woken.news, /^PATCHCORD: 1 new from alice$/m)
    assert.doesNotMatch(woken.news, /Which port/)
    assert.equal((await world.waitForMessage('alice', /8787/)).from, 'backend')
    await session.terminal.waitFor('PATCHCORD: 1 new from alice')
  })

  test('is not woken by what the hooks told it in mid-turn', async () => {
    const { world, model } = scene
    const session = await scene.start(project)
    model.script = codexSteps()
    await scene.startThread(session)
    await world.waitForWakeable('backend')
    const from = model.requests.length
    model.script = codexSteps({ ...callOurs('list_agents'), delayMs: 5_000 }, callOurs('inbox'))
    await session.terminal.send('some work')
    await model.waitForRequest(({ news }) => news.includes('some work'), { from })
    await world.send('alice', 'backend', 'Meanwhile')
    const told = await model.waitForRequest(({ news }) => news.includes('1 new message for backend@acme'), { from })
    assert.doesNotMatch(told.news, /Meanwhile/)
    await model.waitForRequest(({ text }) => text.includes('Meanwhile'), { from })
    // Longer than an unneeded wake would take.
    await sleep(13_000)
    assert.deepEqual(
      model.requests.slice(from).filter((one) => isWake(one) && !isTitle(one)),
      [],
    )
  })

  test('has a listener that ends with it, however it ends', async () => {
    for (const end of ['quit', 'kill'] as const) {
      const session = await scene.start(project)
      scene.model.script = codexSteps()
      await scene.startThread(session)
      await scene.world.waitForWakeable('backend')
      if (end === 'quit') await session.quit()
      else await session.close()
      await hasNoListener()
      await scene.world.waitForWakeable('backend', false)
    }
  })
})

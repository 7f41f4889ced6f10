import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { CodexScene, measureCodexWakes, stopCodexDaemon, WAKES_PER_THREAD } from './helpers/codex.ts'

/** Without the daemon, Codex looks for wakes every 10 s or so. */
const LATE_MS = 5_000
const WAIT_MS = 20_000

let scene: CodexScene
before(async () => {
  scene = await CodexScene.open()
})
after(async () => {
  await scene.closeSessions()
  await stopCodexDaemon(scene.home)
  await scene.close()
})

async function listFiles(): Promise<string[]> {
  return (await readdir(join(scene.world.runtime, 'patchcord'))).filter((name) => /^codex_|\.pid$/.test(name))
}

/** As users have it: no flags, hooks reviewed by hand, and the daemon that Codex starts by itself and that runs the hooks. */
describe('Codex with its shared daemon', () => {
  test('is woken at once, ten times in a row; then wakes are held back, and nothing is lost', async () => {
    const { world, model } = scene
    const times = await measureCodexWakes(scene, WAKES_PER_THREAD, [])
    console.log(`from the answer to a send to the model, in ms: ${times.map(Math.round).join(', ')}`)
    assert.ok(Math.max(...times) < LATE_MS, `${times}`)
    const from = model.requests.length
    await world.send('alice', 'backend', 'One too many')
    await sleep(5_000)
    assert.deepEqual(model.requests.slice(from), [])
    assert.equal(await world.countNew('backend'), 1)
    const [log = ''] = (await listFiles()).filter((name) => name.endsWith('.log'))
    const text = await readFile(join(world.runtime, 'patchcord', log), 'utf8')
    assert.match(text, /held back for \d+ s: at most 20 wakes an hour/)
  })

  test('has a listener that ends when the window is closed, although the daemon keeps the thread', async () => {
    await scene.closeSessions()
    await waitUntil('the listener ends', async () => (await listFiles()).length === 0)
    await scene.world.waitForWakeable('backend', false)
  })
})

async function waitUntil(what: string, isSo: () => Promise<boolean>): Promise<void> {
  const until = performance.now() + WAIT_MS
  while (!(await isSo())) {
    if (performance.now() > until) throw new Error(`not within ${WAIT_MS} ms: ${what}`)
    await sleep(50)
  }
}

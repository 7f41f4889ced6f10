import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { CodexScene, measureCodexWakes, stopCodexDaemon, WAKES_PER_THREAD } from './helpers/codex.ts'
import { waitUntil } from './helpers/wait.ts'

/** Without the daemon, Codex looks for wakes every 10 s or so: one may be late on a busy machine, most are not. */
const MEDIAN_MS_MAX = 2_500
/** A wake that is not held back comes within this. */
const SILENCE_MS = 5_000

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

async function readLogs(): Promise<string> {
  const logs = (await listFiles()).filter((name) => name.endsWith('.log'))
  return (await Promise.all(logs.map((name) => readFile(join(scene.world.runtime, 'patchcord', name), 'utf8')))).join(
    '',
  )
}

/** As users have it: no flags, hooks reviewed by hand, and the daemon that Codex starts by itself and that runs the hooks. */
describe('Codex with its shared daemon', () => {
  test('is woken at once, ten times in a row; then wakes are held back, and nothing is lost', async () => {
    const { world, model } = scene
    const times = await measureCodexWakes(scene, WAKES_PER_THREAD, [])
    console.log(`from the answer to a send to the model, in ms: ${times.map(Math.round).join(', ')}`)
    const median = times.toSorted((a, b) => a - b)[times.length / 2] ?? Number.POSITIVE_INFINITY
    assert.ok(median < MEDIAN_MS_MAX, `${times}`)
    const from = model.requests.length
    await world.send('alice', 'backend', 'One too many')
    await waitUntil(
      async () => /held back for \d+ s: at most 20 wakes an hour/.test(await readLogs()),
      async () => `the log says: ${await readLogs()}`,
    )
    await sleep(SILENCE_MS)
    assert.deepEqual(model.requests.slice(from), [])
    assert.equal(await world.countNew('backend'), 1)
  })

  test('has a listener that ends when the window is closed, although the daemon keeps the thread', async () => {
    await scene.closeSessions()
    await waitUntil(
      async () => (await listFiles()).length === 0,
      async () => `there still is ${await listFiles()}`,
    )
    await scene.world.waitForWakeable('backend', false)
  })
})

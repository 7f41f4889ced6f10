import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, afterEach, before, describe, test } from 'node:test'
import {
  CodexScene,
  codexSteps,
  installCodexPlugin,
  NO_DAEMON,
  runCodex,
  TRUST_HOOKS,
  writeCodexConfig,
} from './helpers/codex.ts'

const INTRODUCTION = 'Patchcord: this session is the agent backend@acme'
const EXEC = ['exec', '--skip-git-repo-check']

let scene: CodexScene
before(async () => {
  scene = await CodexScene.open()
})
afterEach(() => scene.closeSessions())
after(() => scene.close())

/** Files below a folder that hold one of these texts. */
async function findFilesWith(folder: string, texts: string[]): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const found: string[] = []
  for (const entry of entries.filter((one) => one.isFile())) {
    const file = join(entry.parentPath, entry.name)
    const content = await readFile(file, 'latin1')
    if (texts.some((text) => content.includes(text))) found.push(file)
  }
  return found
}

describe('the Codex plugin', () => {
  test('is installed from a folder that is its own marketplace, brings skills and hooks, and leaves nothing when removed', async () => {
    const { world, model, home, copy } = scene
    model.script = codexSteps()
    const project = await world.createProject('backend')
    await writeCodexConfig(home, model.url, [project])
    const before = await scene.readConfig()
    await installCodexPlugin(scene.options(project), copy)
    await runCodex(scene.options(project, [...EXEC, TRUST_HOOKS, 'hello']))
    const { text } = model.requests.at(-1) as { text: string }
    assert.ok(text.includes(INTRODUCTION), 'the hook has spoken')
    assert.match(text, /- patchcord:messaging: /)
    assert.doesNotMatch(text, /- patchcord:subscribe: /, 'the skill for a tool that Codex lacks')
    await runCodex(scene.options(project, ['plugin', 'remove', 'patchcord@patchcord']))
    await runCodex(scene.options(project, ['plugin', 'marketplace', 'remove', 'patchcord']))
    assert.equal((await scene.readConfig()).trim(), before.trim())
    const { host } = new URL(world.url)
    assert.deepEqual(await findFilesWith(join(home, '.codex'), [world.token('backend'), host]), [])
  })

  test('is skipped in silence, hooks and wakes, until a person has reviewed its hooks', async () => {
    const { model, world } = scene
    model.script = codexSteps()
    const project = await scene.createProject()
    const { stderr } = await runCodex(scene.options(project, [...EXEC, 'unreviewed']))
    assert.ok(!model.requests.at(-1)?.text.includes(INTRODUCTION))
    assert.doesNotMatch(stderr, /hook.*(?:skip|trust|review)/i, 'if Codex says it now, the README need not')
    const unreviewed = await scene.start(project, [NO_DAEMON], 'skip')
    await scene.startThread(unreviewed, 'still unreviewed')
    assert.ok(!model.requests.at(-1)?.text.includes(INTRODUCTION))
    await unreviewed.quit()
    const reviewed = await scene.start(project, [NO_DAEMON], 'trust')
    await scene.startThread(reviewed, 'reviewed')
    assert.ok(model.requests.some(({ text }) => text.includes('\nreviewed') && text.includes(INTRODUCTION)))
    await world.waitForWakeable('backend')
  })
})

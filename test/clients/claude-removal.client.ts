import assert from 'node:assert/strict'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, afterEach, before, describe, test } from 'node:test'
import { installPlugin, removePlugin, runClaudeCommand } from './helpers/claude.ts'
import { callTool } from './helpers/model.ts'
import { nameTool, Scene, withTools } from './helpers/scene.ts'

/** As a project may look before; comments and an odd indent are to be kept. */
const BEFORE: Record<string, string> = {
  '.mcp.json': '{\n   "mcpServers": { "other": { "type": "http", "url": "http://127.0.0.1:9/mcp" } }\n}',
  '.claude/settings.local.json': '{ "permissions": { "allow": ["Bash(ls *)"] } }\n',
}

describe('the plugin in Claude Code', () => {
  let scene: Scene

  before(async () => {
    scene = await Scene.open(['alice', 'leaving'], { isTrusting: false })
  })
  afterEach(() => scene.closeSessions())
  after(() => scene.close())

  /** Every file below a folder, with its text; links are not followed. */
  async function readFolder(folder: string): Promise<Map<string, string>> {
    const entries = await readdir(folder, { recursive: true, withFileTypes: true })
    const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
    return new Map(await Promise.all(files.map(async (file) => [file, await readFile(file, 'latin1')] as const)))
  }

  test('passes the strict validation of the client', async () => {
    const said = await runClaudeCommand(scene.home, ['plugin', 'validate', scene.copy.folder, '--strict'])
    assert.match(said, /Validation passed/)
  })

  test('leaves nothing behind: after disconnect and removal every file of the project is as it was, and none of the client names us', async () => {
    const project = await scene.world.createProject(null)
    await mkdir(join(project, '.claude'))
    for (const [name, text] of Object.entries(BEFORE)) await writeFile(join(project, name), text)
    await scene.connect(project, 'leaving', ['--allow'])
    const script = withTools(['list_agents'], [callTool(nameTool('list_agents')), { text: 'done' }])
    const { run, model } = await scene.print(project, 'who is here?', { isConnected: true, script })
    assert.equal((await run.ended).code, 0)
    assert.match(model.requests.at(-1)?.news ?? '', /leaving/, 'our tool has been used')
    await scene.runPatchcord(project, ['disconnect', '--logs'])
    await removePlugin(scene.home, scene.copy)
    try {
      for (const [name, text] of Object.entries(BEFORE)) assert.equal(await readFile(join(project, name), 'utf8'), text)
      const left = await readFolder(scene.home)
      const naming = (text: string) => [...left].filter(([, content]) => content.includes(text)).map(([file]) => file)
      assert.deepEqual(naming(scene.world.token('leaving')), [])
      assert.deepEqual(naming(new URL(scene.world.url).host), [])
    } finally {
      await installPlugin(scene.home, scene.copy)
    }
  })
})

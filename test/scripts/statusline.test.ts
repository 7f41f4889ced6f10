import assert from 'node:assert/strict'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { HookServer, runHook, runStatusline } from './hook-process.ts'
import { entry, Home, OTHER_TOKEN, TOKEN } from './listener-process.ts'

async function setUp(context: TestContext) {
  const server = await HookServer.open()
  const home = await Home.create()
  context.after(async () => {
    await home.remove()
    await server.close()
  })
  return { server, home }
}

test('a project without an agent has no status line, whatever is asked', async (context) => {
  const { server, home } = await setUp(context)
  for (const input of ['', 'null', '{', {}, { session_id: 7, workspace: 7 }, { workspace: { project_dir: '/' } }]) {
    const { code, stdout, stderr } = await runStatusline(home, input)
    assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: '', stderr: '' })
  }
  await home.writeMcpJson({ mcpServers: { other: { type: 'http', url: server.origin } } })
  assert.equal((await runStatusline(home, {})).stdout, '')
})

test('the line is that of the project of the session, also when it works elsewhere, and costs no request', async (context) => {
  const { server, home } = await setUp(context)
  await home.connect(server.origin)
  await home.trust(server.origin)
  const elsewhere = join(home.root, 'elsewhere')
  await mkdir(elsewhere)
  const line = 'patchcord · not wakeable\n'
  assert.equal((await runStatusline(home, {})).stdout, line)
  const input = { cwd: elsewhere, workspace: { current_dir: elsewhere, project_dir: home.project } }
  assert.equal((await runStatusline(home, input, { cwd: elsewhere })).stdout, line)
  assert.equal((await runStatusline(home, { cwd: elsewhere }, { cwd: elsewhere })).stdout, '')
  assert.equal(server.connectionCount, 0)
})

test('several identities stand in one line, each with what its session knows', async (context) => {
  const { server, home } = await setUp(context)
  const mcpServers = {
    patchcord: entry(server.origin, TOKEN),
    'patchcord-two': entry('https://two.example', OTHER_TOKEN),
  }
  await home.writeMcpJson({ mcpServers })
  await home.trust(server.origin)
  server.deliver('alice')
  await runHook(home, { hook_event_name: 'PostToolUse', session_id: 'session-1' })
  const { stdout } = await runStatusline(home, { session_id: 'session-1' })
  assert.equal(stdout, 'bob@acme · 1 new · not wakeable | patchcord · not wakeable\n')
  const other = await runStatusline(home, { session_id: 'session-2' })
  assert.equal(other.stdout, 'patchcord · not wakeable | patchcord · not wakeable\n')
})

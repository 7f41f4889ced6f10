import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { CodexScene, callOurs, isTitle, runCodex, writeCodexConfig, writeProjectServer } from './helpers/codex.ts'
import type { ModelReply, ModelRequest } from './helpers/model.ts'

const TOOLS = [
  'inbox',
  'send_message',
  'reply',
  'wait_for_message',
  'recall',
  'unsend',
  'message_status',
  'list_agents',
]
const EXEC = ['exec', '--skip-git-repo-check', '--json', 'go']
const LIST = `text(JSON.stringify(ALL_TOOLS.map(({ name }) => name).filter((name) => name.startsWith('mcp__patchcord__'))))`
/** What Codex says of a tool that it may not call when there is nobody to ask. */
const REFUSED = /requires approval/

let scene: CodexScene
before(async () => {
  scene = await CodexScene.open()
})
after(() => scene.close())

/** The events that `exec --json` prints for our calls. */
function listCalls(stdout: string): { tool: string; status: string }[] {
  const events = stdout
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line))
  const calls = events.filter(({ type, item }) => type === 'item.completed' && item.type === 'mcp_tool_call')
  return calls.map(({ item }) => ({ tool: item.tool, status: item.status }))
}

describe('codex exec, where nobody can be asked for approval', () => {
  test('finds and calls every tool with the token of its environment', async () => {
    const { world, model } = scene
    const project = await world.createProject(null)
    const server = `[mcp_servers.patchcord]\nurl = "${world.url}/mcp/bearer"\nbearer_token_env_var = "PATCHCORD_TOKEN"\n`
    await writeCodexConfig(scene.home, model.url, [], server)
    const first = await world.send('alice', 'backend', 'Which port does the API listen on?')
    const last = ({ news }: ModelRequest) => /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/.exec(news)?.[0] ?? ''
    let sent = ''
    const turns: ((request: ModelRequest) => ModelReply)[] = [
      () => ({ custom: { name: 'exec', input: LIST } }),
      () => callOurs('list_agents'),
      () => callOurs('inbox'),
      () => callOurs('reply', { message_id: first, content: 'On 8787.' }),
      () => callOurs('send_message', { to: 'alice', content: 'One more thing.' }),
      (request) => {
        sent = last(request)
        return callOurs('message_status', { message_id: sent })
      },
      () => callOurs('unsend', { message_id: sent }),
      () => callOurs('recall', { limit: 5 }),
      () => callOurs('wait_for_message', { timeout_seconds: 1 }),
    ]
    const from = model.requests.length
    model.script = (request) => (isTitle(request) ? undefined : turns.shift()?.(request)) ?? { text: 'done' }
    const env = { PATCHCORD_TOKEN: world.token('backend') }
    const { stdout } = await runCodex({ ...scene.options(project, EXEC), env })
    const text = model.requests.at(-1)?.text ?? ''
    for (const tool of TOOLS) assert.ok(text.includes(`mcp__patchcord__${tool}`), `${tool} is listed`)
    const calls = listCalls(stdout)
    assert.deepEqual(calls.map(({ tool }) => tool).sort(), [...TOOLS].sort())
    for (const { tool, status } of calls) assert.equal(status, 'completed', tool)
    assert.doesNotMatch(text, REFUSED)
    assert.match((await world.waitForMessage('alice', /8787/)).content, /^On 8787\.$/)
    assert.ok(model.requests.length - from >= 10, 'each call was answered to the model')
  })

  test("finds its tools in a trusted project's own .codex/config.toml", async () => {
    const { world, model } = scene
    const project = await world.createProject(null)
    await writeCodexConfig(scene.home, model.url, [project])
    await writeProjectServer(project, world.url, world.token('backend'))
    const turns = [callOurs('inbox')]
    model.script = () => turns.shift() ?? { text: 'done' }
    const { stdout } = await runCodex(scene.options(project, EXEC))
    assert.deepEqual(listCalls(stdout), [{ tool: 'inbox', status: 'completed' }])
    const hint = "you: not wakeable: review the plugin's hooks in /hooks"
    assert.ok(model.requests.at(-1)?.text.includes(hint), 'says what helps in Codex')
  })
})

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { inspect } from './helpers/inspector.ts'
import { World } from './helpers/world.ts'

const TOOLS = 8
const ERAS = ['legacy', 'modern', 'auto']

let world: World
let home: string
before(async () => {
  world = await World.start(['backend', 'alice'])
  home = await world.createHome()
})
after(() => world.close())

function run(path: string, ...args: string[]) {
  return inspect(home, `${world.url}${path}`, world.token('backend'), args)
}

describe('the MCP Inspector', () => {
  for (const era of ERAS) {
    test(`lists every tool without a complaint about its schema, and calls one (protocol era ${era})`, async () => {
      for (const path of ['/mcp', '/mcp/bearer']) {
        const list = await run(path, '--protocol-era', era, '--method', 'tools/list', '--strict', '--format', 'json')
        assert.equal(list.code, 0, list.stderr)
        assert.doesNotMatch(list.stderr, /warn|portab/i)
        const { tools } = readResult(list.stdout) as { tools: { name: string }[] }
        assert.equal(tools.length, TOOLS)
      }
      const call = ['--method', 'tools/call', '--tool-name', 'send_message', '--format', 'json']
      const input = JSON.stringify({ to: 'alice', content: `Seen in era ${era}`, kind: 'report' })
      const sent = await run('/mcp', '--protocol-era', era, ...call, '--tool-args-json', input)
      assert.equal(sent.code, 0, sent.stderr)
      assert.match(sent.stdout, /Sent to alice/)
      assert.equal((await world.waitForMessage('alice', new RegExp(`era ${era}$`))).from, 'backend')
    })
  }

  test('is told that a wrong argument is wrong', async () => {
    const args = ['--method', 'tools/call', '--tool-name', 'send_message', '--tool-args-json', '{"to":"nobody-here"}']
    const { code, stdout, stderr } = await run('/mcp', ...args)
    assert.equal(code, 5, stdout + stderr)
  })
})

/** With `--format json` the result comes bare, or inside an envelope. */
function readResult(stdout: string): unknown {
  const json = JSON.parse(stdout) as { result?: unknown }
  return json.result ?? json
}

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { discoverIdentities } from '../../../scripts/lib/mcp-json.cjs'
import {
  connectCommand,
  listSnippets,
  type SnippetStep,
  TOKEN_PLACEHOLDER,
} from '../../../server/dashboard/pages/token-snippets.ts'
import { createTokenText } from '../../../server/domain/tokens.ts'

const url = 'https://patchcord.example.com/team'
const token = createTokenText()

describe('the snippets of a token', () => {
  let folder = ''
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'snippets-'))
  })
  after(() => rm(folder, { recursive: true, force: true }))

  test('name every client once', () => {
    const names = listSnippets({ url, token }).map(({ client }) => client)
    assert.deepEqual(names, ['Claude Code', 'Codex', 'Cursor', 'Gemini CLI', 'VS Code', 'OpenCode'])
  })

  test('an .mcp.json made of them is an identity for the listener', async () => {
    const { text } = find('claude-code', '.mcp.json')
    await writeFile(join(folder, '.mcp.json'), text)
    const { identities } = discoverIdentities({ folder, pair: null, lookup: () => undefined })
    assert.deepEqual(identities, [{ base: url, origin: 'https://patchcord.example.com', token }])
    assert.equal(JSON.parse(text).mcpServers.patchcord.type, 'http')
  })

  test('the command for Claude Code asks for the token and exports it, and the shell leaves the variable to Claude Code', async () => {
    const command = find('claude-code', null, 'mcp add').text
    assert.ok(!command.includes(token))
    const running = promisify(execFile)('bash', [
      '-c',
      `claude() { printenv PATCHCORD_TOKEN; printf '%s\\n' "$@"; }\n${command}`,
    ])
    running.child.stdin?.end(`${token}\n`)
    const { stdout } = await running
    assert.deepEqual(stdout.trimEnd().split('\n'), [
      token,
      'mcp',
      'add',
      '--scope',
      'project',
      '--transport',
      'http',
      'patchcord',
      `${url}/mcp/bearer`,
      '--header',
      `Authorization: Bearer \${PATCHCORD_TOKEN}`,
    ])
  })

  test('the lines for Claude Code and Codex begin with the plugin, which wakes them, and have no token in them', () => {
    const lines = (id: string) => {
      const { note, steps } = listSnippets({ url, token }).find((snippet) => snippet.id === id) ?? { steps: [] }
      assert.match(note ?? '', /npm link in a clone.*Without the plugin.*online, but nothing wakes it/)
      return steps.filter((step) => !step.isInstead && !step.isSecret).map(({ text }) => text)
    }
    assert.deepEqual(lines('claude-code'), [
      'claude plugin marketplace add /path/to/patchcord && claude plugin install patchcord@patchcord',
      `patchcord connect --server ${url} --allow`,
      'claude',
    ])
    assert.deepEqual(lines('codex'), [
      'codex plugin marketplace add /path/to/patchcord && codex plugin add patchcord@patchcord',
      `patchcord connect --server ${url}`,
      '/hooks',
    ])
    assert.equal(connectCommand({ url: "https://h/it's" }), String.raw`patchcord connect --server 'https://h/it'\''s'`)
  })

  test('Codex gets http_headers, since it ignores headers in silence', () => {
    assert.equal(
      find('codex', '.codex/config.toml').text,
      `[mcp_servers.patchcord]\nurl = "${url}/mcp/bearer"\nhttp_headers = { "Authorization" = "Bearer ${token}" }`,
    )
  })

  test('each of the others gets the names that it reads', () => {
    const headers = { Authorization: `Bearer ${token}` }
    const endpoint = `${url}/mcp/bearer`
    assert.deepEqual(json('cursor', '.cursor/mcp.json'), { mcpServers: { patchcord: { url: endpoint, headers } } })
    assert.deepEqual(json('gemini', '.gemini/settings.json'), {
      mcpServers: { patchcord: { httpUrl: endpoint, headers } },
    })
    assert.deepEqual(json('opencode', 'opencode.json'), {
      mcp: { patchcord: { type: 'remote', url: endpoint, enabled: true, oauth: false, headers } },
    })
    assert.deepEqual(json('vs-code', '.vscode/mcp.json'), {
      inputs: [{ type: 'promptString', id: 'patchcord-token', description: 'Patchcord token', password: true }],
      servers: {
        patchcord: { type: 'http', url: endpoint, headers: { Authorization: `Bearer \${input:patchcord-token}` } },
      },
    })
  })

  test('exactly the texts with the token in them are marked as secret', () => {
    const steps = listSnippets({ url, token }).flatMap((snippet) => snippet.steps)
    for (const step of steps) assert.equal(step.isSecret, step.text.includes(token), step.text)
    assert.ok(steps.some((step) => step.isSecret))
  })

  test('without a token a word stands in its place that nobody takes for one', () => {
    const steps = listSnippets({ url, token: null }).flatMap((snippet) => snippet.steps)
    assert.ok(steps.some((step) => step.text.includes(`Bearer ${TOKEN_PLACEHOLDER}`)))
    assert.ok(steps.every((step) => !step.isSecret && !step.text.includes('null')))
  })

  test('an address with a slash at its end has one slash before the path', () => {
    const texts = listSnippets({ url: 'http://127.0.0.1:8787/', token }).flatMap(({ steps }) => steps)
    assert.ok(texts.every(({ text }) => !text.includes('//mcp')))
  })
})

function find(id: string, file: string | null, words = ''): SnippetStep {
  const steps = listSnippets({ url, token }).find((snippet) => snippet.id === id)?.steps ?? []
  const step = steps.find((each) => each.file === file && each.text.includes(words))
  assert.ok(step, `${id} ${file}`)
  return step
}

function json(id: string, file: string): unknown {
  return JSON.parse(find(id, file).text)
}

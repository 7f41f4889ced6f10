import assert from 'node:assert/strict'
import { mkdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import type { Machine } from './command.ts'
import { useServer } from './connect-server.ts'

const FILES = ['.gitignore', '.claude/settings.local.json', '.mcp.json'] as const

/** The lines about the files, without the folder. */
async function disconnect(machine: Machine): Promise<string[]> {
  const { code, stdout, stderr } = await machine.run(['disconnect'])
  assert.equal(code, 0, stderr)
  const [first = '', ...lines] = stdout.trimEnd().split('\n')
  assert.match(first, /^Disconnected from backend@acme at http:/)
  return lines.map((line) => line.replace(`${machine.project}/`, ''))
}

describe('what disconnect says of each file is what it did', () => {
  const { withMachine } = useServer()

  const setUp = async (machine: Machine) => {
    await mkdir(join(machine.project, '.git'))
  }

  test(
    'removed where there was none before, put back where there was one',
    withMachine(async ({ machine, connect }) => {
      await setUp(machine)
      await connect({}, '--allow')
      assert.deepEqual(
        await disconnect(machine),
        FILES.map((file) => `  removed ${file}`),
      )
      await machine.write('.gitignore', 'dist\n')
      await machine.write('.claude/settings.local.json', '{}')
      await machine.write('.mcp.json', '{ "mcpServers": { "other": { "type": "http", "url": "https://x.example" } } }')
      await connect({}, '--allow')
      assert.deepEqual(
        await disconnect(machine),
        FILES.map((file) => `  put back ${file}`),
      )
    }),
  )

  test(
    'where a file was edited since, our part was taken out of it',
    withMachine(async ({ machine, connect }) => {
      await setUp(machine)
      await machine.write('.mcp.json', '{ "mcpServers": {} }\n')
      await connect({}, '--allow')
      for (const file of FILES) {
        const text = await machine.read(file)
        await machine.write(file, file === '.gitignore' ? `dist\n${text}` : text.replace('{', '{ "mine": 1,'))
      }
      assert.deepEqual(await disconnect(machine), [
        '  took our line out of .gitignore, which was edited since',
        '  took our rules out of .claude/settings.local.json, which was edited since',
        '  took our entry out of .mcp.json, which was edited since',
      ])
      assert.equal(JSON.parse(await machine.read('.mcp.json')).mine, 1)
    }),
  )

  test(
    'where another entry was replaced and the file was edited since, that entry is back in it',
    withMachine(async ({ machine, connect }) => {
      await machine.write(
        '.mcp.json',
        '{ "mcpServers": { "patchcord": { "type": "http", "url": "https://x.example" } } }',
      )
      await connect({}, '--replace')
      const text = await machine.read('.mcp.json')
      await machine.write('.mcp.json', text.replace('{', '{ "mine": 1,'))
      const lines = await disconnect(machine)
      assert.deepEqual(lines, ['  put the entry of before back into .mcp.json, which was edited since'])
      const json = JSON.parse(await machine.read('.mcp.json'))
      assert.deepEqual([json.mine, json.mcpServers.patchcord.url], [1, 'https://x.example'])
    }),
  )

  test(
    'what is gone, or holds nothing of ours any more, was not touched',
    withMachine(async ({ machine, connect }) => {
      await setUp(machine)
      await connect({}, '--allow')
      await rm(join(machine.project, '.gitignore'))
      await machine.write('.claude/settings.local.json', '{ "permissions": { "allow": ["Bash(ls)"] } }')
      await machine.write('.mcp.json', `${await machine.read('.mcp.json')}\n`)
      assert.deepEqual(await disconnect(machine), [
        '  .gitignore was gone already',
        '  left .claude/settings.local.json alone: nothing of ours is in it any more',
        '  removed .mcp.json, in which nothing else was left',
      ])
      assert.equal(await machine.read('.claude/settings.local.json'), '{ "permissions": { "allow": ["Bash(ls)"] } }')
    }),
  )
})

describe('disconnect in a folder that connect does not know', () => {
  const { withMachine } = useServer()

  test(
    'names the folder that it knows where this one was renamed, and works once it has that name again',
    withMachine(async ({ machine, connect }) => {
      const [one, other] = ['one', 'other'].map((name) => join(machine.root, name)) as [string, string]
      await mkdir(other)
      assert.equal((await connect({ folder: other })).code, 0)
      assert.equal((await connect()).code, 0)
      await rename(machine.project, one)
      const before = await machine.listFiles()
      const { code, json } = await machine.run(['disconnect', '--json'], { folder: one })
      assert.deepEqual([code, json.error.code], [1, 'not_connected'])
      assert.match(
        json.error.message,
        /in \S+\/one under this name, but \.mcp\.json holds the entry of a folder that is gone/,
      )
      assert.ok(json.error.message.endsWith(`gone: ${machine.project}.`), json.error.message)
      assert.deepEqual(await machine.listFiles(), before)
      await rename(one, machine.project)
      assert.equal((await machine.run(['disconnect'])).code, 0)
      assert.equal((await machine.run(['disconnect'], { folder: other })).code, 0)
      assert.deepEqual(await machine.listFiles(), {})
    }),
  )

  test(
    'says of an entry that was written by hand, or cannot be read, that connect has not written it',
    withMachine(async ({ machine }) => {
      for (const text of ['{ "mcpServers": { "patchcord": { "url": "https://x.example" } } }', '{', '[]']) {
        await machine.write('.mcp.json', text)
        const { code, stderr } = await machine.run(['disconnect'])
        assert.equal(code, 1)
        assert.match(stderr, /^patchcord: patchcord connect has written nothing in \S+\/project\. An entry .* by hand/)
      }
    }),
  )
})

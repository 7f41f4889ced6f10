import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { removeClientLogs } from '../../plugin/lib/client-logs.ts'
import type { Machine } from './command.ts'
import { useServer } from './connect-server.ts'

const STAYS = "Claude Code's own log of this server stays, delete it if you like"

describe('what the client has logged of the server', { skip: process.platform !== 'linux' }, () => {
  const { app, withMachine } = useServer()

  const placeOf = (machine: Machine, cache = '.cache') => {
    const caches = join(machine.root, cache, 'claude-cli-nodejs')
    return { caches, logs: join(caches, machine.project.replace(/[^A-Za-z0-9]/g, '-')) }
  }
  const log = async (folder: string, address: string, cwd?: string) => {
    await mkdir(folder, { recursive: true })
    const debug = `HTTP transport options: ${JSON.stringify({ url: address })}`
    await writeFile(join(folder, '2026-11-29.jsonl'), `${JSON.stringify({ debug, cwd })}\n`)
  }

  test(
    'is named, and with --logs deleted; other logs and what a link leads to stay',
    withMachine(async ({ machine, connect }) => {
      const { caches, logs } = placeOf(machine)
      const elsewhere = join(machine.root, 'elsewhere')
      for (const name of ['patchcord', 'other', 'patchcord-notes'])
        await log(join(logs, `mcp-logs-${name}`), `${app.url}/mcp/bearer`, join(machine.project, 'sub "x"'))
      await log(join(caches, '-another-project/mcp-logs-patchcord'), `${app.url}/mcp/bearer`)
      await mkdir(elsewhere)
      await symlink(elsewhere, join(logs, 'mcp-logs-patchcord-2'))
      await connect()
      const { code, stdout } = await machine.run(['disconnect'])
      const ours = join(logs, 'mcp-logs-patchcord')
      assert.equal(code, 0)
      assert.equal(stdout.trimEnd().split('\n').at(-1), `  ${STAYS}: ${ours}`)
      assert.equal((await readdir(logs)).length, 4)
      await connect()
      const { json } = await machine.run(['disconnect', '--logs', '--json'])
      assert.deepEqual([json.client_logs, json.client_logs_left], [[ours], []])
      assert.deepEqual((await readdir(logs)).sort(), [
        'mcp-logs-other',
        'mcp-logs-patchcord-2',
        'mcp-logs-patchcord-notes',
      ])
      assert.deepEqual(await readdir(join(caches, '-another-project')), ['mcp-logs-patchcord'])
    }),
  )

  test(
    'stays with --logs where it is of another server or another project, whose folder has the same name there',
    withMachine(async ({ machine, connect }) => {
      const ours = join(placeOf(machine).logs, 'mcp-logs-patchcord')
      const sibling = machine.project.replace('/project', '-project')
      for (const [address, cwd] of [
        ['https://pc.example/mcp/bearer', machine.project],
        [`${app.url}0/mcp`, machine.project],
        [`${app.url}/other/mcp`, machine.project],
        [`${app.url}/mcp/bearer`, sibling],
      ] as const) {
        await log(ours, address, cwd)
        await connect()
        const { code, stdout } = await machine.run(['disconnect', '--logs'])
        assert.equal(code, 0)
        assert.ok(
          stdout.endsWith(
            `  ${ours} is not told by its content to be of this project and server, and was left alone\n`,
          ),
          stdout,
        )
        assert.equal((await readdir(ours)).length, 1)
      }
    }),
  )

  test(
    'is found by the beginning of its name where the path is long',
    withMachine(async ({ machine, connect }) => {
      const folder = join(machine.root, 'a'.repeat(150), 'b'.repeat(150))
      await mkdir(folder, { recursive: true })
      const { caches } = placeOf(machine)
      const start = folder.replace(/[^A-Za-z0-9]/g, '-').slice(0, 200)
      const names = [`${start}-x1y2z3`, `${start}-other`]
      await log(join(caches, names[0] ?? '', 'mcp-logs-patchcord'), `${app.url}/mcp/bearer`)
      await log(join(caches, names[1] ?? '', 'mcp-logs-patchcord'), 'https://pc.example/mcp')
      await connect({ folder })
      const { code, json } = await machine.run(['disconnect', '--logs', '--json'], { folder })
      assert.deepEqual([code, json.client_logs.length, json.client_logs_left.length], [0, 1, 1])
      assert.deepEqual(await readdir(join(caches, names[0] ?? '')), [])
      assert.deepEqual(await readdir(join(caches, names[1] ?? '')), ['mcp-logs-patchcord'])
    }),
  )

  test(
    'is no matter where it cannot be read: disconnect has done its work, and only with --logs is that 1',
    withMachine(async ({ machine, connect }) => {
      const { caches } = placeOf(machine)
      await mkdir(join(machine.root, '.cache'))
      // A link to itself: nobody's rights help to read it.
      await symlink('claude-cli-nodejs', caches)
      for (const [args, expected] of [
        [[], 0],
        [['--logs'], 1],
      ] as const) {
        await connect()
        const { code, stdout, stderr } = await machine.run(['disconnect', ...args])
        assert.deepEqual([code, stderr], [expected, ''])
        assert.match(
          stdout,
          /^Disconnected from backend@acme .*\n {2}removed .*\n {2}Claude Code's log could not be read: /,
        )
        assert.equal((await machine.run(['disconnect', '--json'])).json.error.code, 'not_connected')
      }
    }),
  )

  test('is told of where it cannot be deleted, and the next is deleted all the same', async () => {
    const root = await mkdtemp(join(tmpdir(), 'patchcord-logs-'))
    const folders = [join(root, 'x'.repeat(300)), join(root, 'mcp-logs-patchcord')]
    await mkdir(folders[1] ?? '')
    const problems = await removeClientLogs(folders.map((folder) => ({ folder, isOurs: true })))
    assert.deepEqual(problems, [`could not be deleted: ${folders[0]}`])
    assert.deepEqual(await readdir(root), [])
    await rm(root, { recursive: true })
  })

  test(
    'is not looked for below a relative XDG_CACHE_HOME, which no program takes for one',
    withMachine(async ({ machine, connect }) => {
      const { logs } = placeOf(machine, 'project/cache')
      await log(join(logs, 'mcp-logs-patchcord'), `${app.url}/mcp/bearer`)
      await connect()
      const { json } = await machine.run(['disconnect', '--logs', '--json'], { env: { XDG_CACHE_HOME: 'cache' } })
      assert.deepEqual([json.client_logs, await readdir(logs)], [[], ['mcp-logs-patchcord']])
      await rm(logs, { recursive: true })
    }),
  )
})

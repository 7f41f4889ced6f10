import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile, rm, truncate, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { checkPlainFile, readBytes } from '../../plugin/lib/files.ts'
import { Machine } from './command.ts'
import { useServer } from './connect-server.ts'

test('a named pipe, a socket, a folder and a file of more than 1 MiB are no configuration, and nothing waits for them', async (context) => {
  const machine = await Machine.create()
  context.after(() => machine.remove())
  const at = (name: string) => join(machine.root, name)
  execFileSync('mkfifo', [at('pipe')])
  const server = createServer().listen(at('socket'))
  context.after(() => void server.close())
  await once(server, 'listening')
  await writeFile(at('large'), '')
  await truncate(at('large'), 1024 * 1024 + 1)
  for (const [name, problem] of [
    ['pipe', 'not a file'],
    ['socket', 'not a file'],
    ['project', 'not a file'],
    ['large', 'larger than 1 MiB'],
  ] as const) {
    const refusal = { code: 'unreadable', message: `${at(name)} is ${problem}. It was left alone.` }
    await assert.rejects(readBytes(at(name)), refusal)
    await assert.rejects(checkPlainFile(at(name)), refusal)
  }
  await truncate(at('large'), 1024 * 1024)
  assert.equal((await readBytes(at('large')))?.length, 1024 * 1024)
  for (const nothing of [at('none'), join(at('large'), 'below')]) assert.equal(await readBytes(nothing), null)
})

describe('connect in a repository whose files git would wait for', () => {
  const { agents, withMachine } = useServer()

  /** A git that says when it was asked. */
  const setUp = async (machine: Machine) => {
    const bin = join(machine.root, 'bin')
    await mkdir(bin)
    await writeFile(join(bin, 'git'), '#!/bin/sh\ntouch "$HOME/asked"\nexit 1\n', { mode: 0o755 })
    await mkdir(join(machine.project, '.git'))
    const app = join(machine.project, 'app')
    await mkdir(app)
    const wasAsked = () =>
      readFile(join(machine.root, 'asked')).then(
        () => true,
        () => false,
      )
    return { app, wasAsked, env: { PATH: `${bin}:${process.env.PATH}` } }
  }

  for (const [name, file, make] of [
    ['.gitignore that is a named pipe', 'app/.gitignore', (path: string) => execFileSync('mkfifo', [path])],
    ['.gitignore above that is a named pipe', '.gitignore', (path: string) => execFileSync('mkfifo', [path])],
    ['index that is a named pipe', '.git/index', (path: string) => execFileSync('mkfifo', [path])],
    ['huge .gitignore', '.gitignore', (path: string) => execFileSync('truncate', ['-s', '2G', path])],
  ] as const) {
    test(
      `refuses at once a ${name}, without asking git or writing a token; with --env it has none to keep`,
      withMachine(async ({ machine, connect }) => {
        const { app, wasAsked, env } = await setUp(machine)
        const path = join(machine.project, file)
        make(path)
        const refused = await connect({ folder: app, env }, '--json')
        assert.deepEqual([refused.code, refused.json.error.code], [1, 'unreadable'])
        const problem = name.startsWith('huge') ? 'larger than 1 MiB' : 'not a file'
        assert.equal(refused.json.error.message, `${path} is ${problem}. It was left alone.`)
        assert.equal(refused.json.error.hint, 'Move it away, then try again.')
        assert.equal(await wasAsked(), false)
        await rm(path)
        assert.deepEqual(Object.keys(await machine.listFiles()), ['/bin/git'])
        make(path)
        const named = await connect({ folder: app, env: { ...env, TOKEN: agents.backend.token } }, '--env', 'TOKEN')
        assert.equal(named.code, 0, named.stderr)
        assert.ok(!(await readFile(join(app, '.mcp.json'), 'utf8')).includes(agents.backend.token))
        await rm(path)
      }),
    )
  }
})

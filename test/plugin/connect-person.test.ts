import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { eventually, ROOT } from './command.ts'
import { useServer } from './connect-server.ts'

const SETTINGS = '.claude/settings.local.json'

describe('what only a person gives', () => {
  const { app, agents, withMachine } = useServer()

  test(
    'connect refuses where a session of a model has started it, with any token, and changes nothing',
    withMachine(async ({ machine, connect }) => {
      for (const name of ['CLAUDECODE', 'CODEX_THREAD_ID', 'CODEX_SANDBOX_NETWORK_DISABLED']) {
        const { code, json } = await connect({ env: { [name]: '1' } }, '--allow', '--json')
        assert.deepEqual([code, json.error.code], [1, 'not_a_person'])
        assert.match(json.error.hint, /^Run it in a terminal of your own/)
        assert.deepEqual(await machine.listFiles(), {})
      }
    }),
  )

  test(
    'watch listens and trusts nobody by that',
    withMachine(async ({ machine }) => {
      const env = { PATCHCORD_URL: app.url, PATCHCORD_TOKEN: agents.backend.token }
      const watching = machine.start(['watch'], { env })
      await eventually(() => watching.output.stderr.includes('subscribe: connected'), 'the listener connects')
      watching.child.kill('SIGTERM')
      assert.equal((await watching.ended).code, 0)
      // What a listener tells the hooks of its machine is no record of trust.
      const left = Object.keys(await machine.listFiles()).filter((file) => !file.startsWith('/run/'))
      assert.deepEqual(left, [])
    }),
  )

  test(
    'rules of --allow are not handed on to another agent or server by --replace',
    withMachine(async ({ machine, connect }) => {
      await connect({}, '--allow')
      assert.equal((await connect({ as: 'frontend' }, '--replace')).code, 0)
      assert.equal(existsSync(join(machine.project, SETTINGS)), false)
      await connect({ as: 'frontend' }, '--allow')
      const other = app.url.replace('127.0.0.1', 'localhost')
      const args = ['connect', '--server', other, '--token-stdin', '--replace']
      const { code, stderr } = await machine.run(args, { stdin: agents.frontend.token })
      assert.equal(code, 0, stderr)
      assert.equal(existsSync(join(machine.project, SETTINGS)), false)
      assert.equal((await machine.run(['disconnect'])).code, 0)
      assert.deepEqual(await machine.listFiles(), {})
    }),
  )

  test(
    'rules that a person has taken back stay away when the folder is connected again without --allow',
    withMachine(async ({ machine, connect }) => {
      await connect({}, '--allow')
      const text = '{ "permissions": { "allow": ["Bash(ls)"] } }'
      await machine.write(SETTINGS, text)
      assert.equal((await connect()).code, 0)
      assert.equal(await machine.read(SETTINGS), text)
      assert.equal((await machine.run(['disconnect'])).code, 0)
      assert.equal(await machine.read(SETTINGS), text)
    }),
  )

  test(
    'rules that git tracks by now are no matter to a connect without --allow, and disconnect takes them out',
    withMachine(async ({ machine, connect }) => {
      const git = (...args: string[]) =>
        execFileSync('git', args, { cwd: machine.project, env: machine.environment(), stdio: 'pipe' })
      git('init', '-q')
      await connect({}, '--allow')
      git('add', '-f', SETTINGS)
      const text = await machine.read(SETTINGS)
      const { code, stderr } = await connect()
      assert.equal(code, 0, stderr)
      assert.equal(await machine.read(SETTINGS), text)
      const { stdout } = await machine.run(['disconnect'])
      assert.ok(stdout.includes(`removed ${join(machine.project, SETTINGS)}`), stdout)
    }),
  )

  test(
    'a token that somebody else has put into .mcp.json is not taken for the one of the folder, also with --replace',
    withMachine(async ({ machine, connect }) => {
      await connect()
      const pulled = (await machine.read('.mcp.json')).replace(agents.backend.token, agents.frontend.token)
      await machine.write('.mcp.json', pulled)
      const before = await machine.listFiles()
      for (const more of [[], ['--replace']]) {
        const { json } = await machine.run(['connect', '--server', app.url, '--json', ...more])
        assert.equal(json.error?.code, 'token_missing')
        assert.deepEqual(await machine.listFiles(), before)
      }
    }),
  )

  test(
    'a folder of Claude Code that a rule could not name, or takes for more, is in no rule',
    withMachine(async ({ machine, connect }) => {
      for (const folder of ['relative', '/any/*', '/a") Bash(rm', '/a$(b)']) {
        assert.equal((await connect({ env: { CLAUDE_CONFIG_DIR: folder } }, '--allow')).code, 0)
        const { allow } = JSON.parse(await machine.read(SETTINGS)).permissions
        assert.deepEqual(allow, ['mcp__patchcord', `Bash(node "${ROOT}scripts/subscribe.mjs")`], folder)
        assert.equal((await machine.run(['disconnect'])).code, 0)
      }
    }),
  )

  test(
    'a folder of Claude Code inside of the project is refused, also where a symlink leads there',
    withMachine(async ({ machine, connect }) => {
      await mkdir(join(machine.project, 'claude'))
      await symlink(join(machine.project, 'claude'), join(machine.root, 'link'))
      for (const folder of [join(machine.project, 'x/y'), join(machine.root, 'link')]) {
        const { code, json } = await connect({ env: { CLAUDE_CONFIG_DIR: folder } }, '--allow', '--json')
        assert.deepEqual([code, json.error.code], [1, 'rules_in_project'])
        assert.deepEqual(await machine.listFiles(), {})
      }
    }),
  )
})

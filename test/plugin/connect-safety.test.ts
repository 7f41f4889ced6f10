import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmod, lstat, mkdir, readdir, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import type { Machine } from './command.ts'
import { useServer } from './connect-server.ts'

const BARE = { HEAD: 'ref: refs/heads/main\n', 'objects/.k': '', 'refs/.k': '' }

describe('connect in a repository that somebody else has made', () => {
  const { app, agents, withMachine } = useServer()

  const git = (machine: Machine, ...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.org', ...args], {
      cwd: machine.project,
      env: machine.environment(),
    }).toString()

  test(
    'runs no program that its configuration names, from a bare repository in a folder or from its own',
    withMachine(async ({ machine, connect }) => {
      const monitor = (name: string) => `\tfsmonitor = "touch ${machine.root}/${name}; false"\n`
      git(machine, 'init', '-q')
      const own = await machine.read('.git/config')
      await machine.write('.git/config', `${own}[core]\n${monitor('OWN')}`)
      await machine.write('app/config', `[core]\n\tbare = false\n\tworktree = .\n${monitor('HIDDEN')}`)
      for (const [name, text] of Object.entries(BARE)) await machine.write(`app/${name}`, text)
      for (const folder of [machine.project, join(machine.project, 'app')]) {
        const { code, json } = await connect({ folder }, '--json')
        assert.deepEqual([code, json.warnings], [0, []])
      }
      const names = Object.keys(await machine.listFiles())
      assert.deepEqual(
        names.filter((name) => /OWN|HIDDEN/.test(name)),
        [],
      )
      // The line beside the file counts, although git started in that folder takes it for a repository of its own.
      assert.ok(names.includes('/project/app/.gitignore') || names.includes('/project/.gitignore'))
      assert.doesNotMatch(git(machine, 'status', '--porcelain', '-uall'), /\.mcp\.json/)
    }),
  )

  test(
    'a line that takes .mcp.json back into git is overruled',
    withMachine(async ({ machine, connect }) => {
      git(machine, 'init', '-q')
      await machine.write('.gitignore', '.mcp.json\n!.mcp.json\n')
      for (let count = 0; count < 2; count++) {
        assert.equal((await connect()).code, 0)
        assert.equal(git(machine, 'status', '--porcelain'), '?? .gitignore\n')
      }
      assert.equal((await machine.run(['disconnect'])).code, 0)
      assert.equal(await machine.read('.gitignore'), '.mcp.json\n!.mcp.json\n')
    }),
  )

  test(
    'refuses to write a token that git would take, into a tracked file or past a .gitignore that is a symlink; not with --env',
    withMachine(async ({ machine, connect }) => {
      git(machine, 'init', '-q')
      const refuse = async (reason: RegExp) => {
        const before = await machine.listFiles()
        const { code, json } = await connect({}, '--json')
        assert.deepEqual([code, json.error.code], [1, 'token_in_git'])
        assert.match(json.error.message, reason)
        assert.match(json.error.hint, /--env NAME/)
        assert.deepEqual(await machine.listFiles(), before)
      }
      await machine.write('ignored', 'dist\n')
      await symlink('ignored', join(machine.project, '.gitignore'))
      await refuse(/\.gitignore is a symlink/)
      execFileSync('rm', [join(machine.project, '.gitignore')])
      await machine.write('shared/mcp.json', '{}\n')
      await symlink('shared/mcp.json', join(machine.project, '.mcp.json'))
      await refuse(/does not ignore .*shared\/mcp\.json/)
      git(machine, 'add', '.')
      await refuse(/git tracks .*shared\/mcp\.json/)
      const env = { TEAM_TOKEN: agents.backend.token }
      const named = await machine.run(['connect', '--server', app.url, '--env', 'TEAM_TOKEN'], { env })
      assert.equal(named.code, 0)
      assert.ok((await lstat(join(machine.project, '.mcp.json'))).isSymbolicLink())
      assert.ok(!(await machine.read('shared/mcp.json')).includes(agents.backend.token))
    }),
  )

  for (const [path, target] of [
    ['.mcp.json', '.claude.json'],
    ['.claude/settings.local.json', '.claude/settings.json'],
  ] as const) {
    test(
      `refuses ${path} that leads to ~/${target}, also where HOME is in a repository`,
      withMachine(async ({ machine, connect }) => {
        await mkdir(join(machine.root, '.claude'))
        await mkdir(join(machine.project, '.claude'))
        await mkdir(join(machine.root, '.git'))
        await writeFile(join(machine.root, target), '{}\n')
        await symlink(join(machine.root, target), join(machine.project, path))
        const before = await machine.listFiles()
        const { code, json } = await connect({}, '--allow', '--json')
        assert.deepEqual([code, json.error.code], [1, 'outside'])
        assert.match(json.error.message, /leads out of this project, to .*Nothing was written/)
        assert.deepEqual(await machine.listFiles(), before)
      }),
    )
  }

  test(
    'a folder .claude that leads to the one of the user is refused before anything is in it',
    withMachine(async ({ machine, connect }) => {
      await mkdir(join(machine.root, '.claude'))
      await symlink('../.claude', join(machine.project, '.claude'))
      assert.equal((await connect({}, '--allow', '--json')).json.error.code, 'outside')
      assert.deepEqual(await machine.listFiles(), {})
    }),
  )

  test(
    'a symlink to another folder of the same repository is followed',
    withMachine(async ({ machine, connect }) => {
      git(machine, 'init', '-q')
      await machine.write('.gitignore', 'mcp.json\n')
      await machine.write('app/x', '')
      await machine.write('shared/mcp.json', '{}\n')
      const folder = join(machine.project, 'app')
      await symlink('../shared/mcp.json', join(folder, '.mcp.json'))
      assert.equal((await connect({ folder })).code, 0)
      assert.match(await machine.read('shared/mcp.json'), /"patchcord"/)
    }),
  )

  test(
    'what somebody else writes to .mcp.json while connect is at work is kept',
    withMachine(async ({ machine, connect }) => {
      await mkdir(join(machine.project, '.git'))
      await machine.write('.mcp.json', '{}')
      const bin = join(machine.root, 'bin')
      await mkdir(bin)
      // connect asks git between reading and writing.
      const script = `#!/bin/sh\ncd "$HOME/project"\n[ -e .git/once ] || { touch .git/once; printf '{"mcpServers":{"mine":{"url":"https://mine.example"}}}' > .mcp.json; }\nexit 1\n`
      await writeFile(join(bin, 'git'), script, { mode: 0o755 })
      assert.equal((await connect({ env: { PATH: `${bin}:${process.env.PATH}` } })).code, 0)
      const { mcpServers } = JSON.parse(await machine.read('.mcp.json'))
      assert.deepEqual(Object.keys(mcpServers), ['mine', 'patchcord'])
      assert.equal(await machine.read('.gitignore'), '.mcp.json\n')
      assert.equal((await machine.run(['disconnect'])).code, 0)
      assert.equal(await machine.read('.mcp.json'), '{"mcpServers":{"mine":{"url":"https://mine.example"}}}')
    }),
  )

  test(
    'where .mcp.json cannot be written, nothing is: no .gitignore, no rules, no record, no trust',
    withMachine(async ({ machine, connect }) => {
      git(machine, 'init', '-q')
      await machine.write('.mcp.json', '{}')
      const bin = join(machine.root, 'bin')
      await mkdir(bin)
      // A folder in the place of the file, once it was read: no right of any user helps to write that.
      const script = '#!/bin/sh\ncd "$HOME/project"\nrm -f .mcp.json\nmkdir -p .mcp.json/x\nexit 1\n'
      await writeFile(join(bin, 'git'), script, { mode: 0o755 })
      const { code, stderr } = await connect({ env: { PATH: `${bin}:${process.env.PATH}` } }, '--allow')
      assert.equal(code, 1)
      assert.match(stderr, /\.mcp\.json is not a file\. It was left alone\./)
      assert.deepEqual(Object.keys(await machine.listFiles()), ['/bin/git'])
      for (const gone of [join(machine.project, '.claude'), machine.configFolder])
        await assert.rejects(stat(gone), { code: 'ENOENT' })
    }),
  )

  test(
    'a failure in the middle puts back what an earlier connect had written',
    withMachine(async ({ machine, connect }) => {
      git(machine, 'init', '-q')
      await machine.write('.gitignore', 'dist\n')
      await machine.write('.claude/settings.local.json', '{"model":"x"}')
      assert.equal((await connect({}, '--allow')).code, 0)
      const before = await machine.listFiles()
      const trust = join(machine.configFolder, 'trusted.json')
      await chmod(trust, 0o666)
      await mkdir(`${trust}.d`)
      // The last file of all that are written cannot be read any more: it is a folder.
      execFileSync('mv', [trust, `${trust}.d/kept`])
      execFileSync('mkdir', [trust])
      const failed = await connect({ as: 'frontend' }, '--replace', '--json')
      assert.equal(failed.code, 1)
      execFileSync('rmdir', [trust])
      execFileSync('mv', [`${trust}.d/kept`, trust])
      assert.deepEqual(await machine.listFiles(), before)
    }),
  )

  /** Node options with which the command gets to the moment when .mcp.json is replaced, and then does this instead. */
  const instead = async (machine: Machine, action: string) => {
    const patch = join(machine.root, 'patch.mjs')
    const text = `import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
const { rename } = fs.promises
fs.promises.rename = async (from, to) => {
  if (!String(to).endsWith('/.mcp.json')) return await rename(from, to)
  ${action}
}
syncBuiltinESMExports()
`
    await writeFile(patch, text)
    return { NODE_OPTIONS: `--import ${pathToFileURL(patch)}` }
  }

  test(
    'a folder that cannot be written to is one sentence, which is true: nothing else was changed',
    withMachine(async ({ machine, connect }) => {
      git(machine, 'init', '-q')
      const env = await instead(
        machine,
        "throw Object.assign(new Error('EACCES: permission denied'), { code: 'EACCES' })",
      )
      const before = await machine.listFiles()
      const { code, stderr } = await connect({ env }, '--allow')
      assert.equal(code, 1)
      assert.match(stderr, /EACCES.*Nothing else was changed\./)
      assert.deepEqual(await machine.listFiles(), before)
      for (const gone of [join(machine.project, '.claude'), machine.configFolder])
        await assert.rejects(stat(gone), { code: 'ENOENT' })
    }),
  )

  test(
    'killed before the last step: git sees no token, disconnect undoes what is there, and the next run leaves nothing behind',
    withMachine(async ({ machine, connect }) => {
      git(machine, 'init', '-q')
      await machine.write('.gitignore', '/.mcp.json\n')
      const env = await instead(machine, "process.kill(process.pid, 'SIGKILL'); await new Promise(() => {})")
      const before = await machine.listFiles()
      assert.equal((await connect({ env })).code, null)
      const left = (await readdir(machine.project)).filter((name) => name.endsWith('.tmp'))
      assert.equal(left.length, 1)
      assert.equal(git(machine, 'status', '--porcelain', '-uall'), '?? .gitignore\n')
      // Its lock is in the way of nobody.
      const { code, stderr } = await machine.run(['disconnect'])
      assert.deepEqual([code, stderr], [0, ''])
      assert.deepEqual(await machine.listFiles(), before)
    }),
  )
})

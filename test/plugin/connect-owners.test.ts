import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmod, chown, mkdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { describe, test } from 'node:test'
import { writeFileSafely } from '../../plugin/lib/files.ts'
import { Machine } from './command.ts'
import { useServer } from './connect-server.ts'

/** Only root can give a file away; for anybody else the files of these tests stay their own. */
const IS_ROOT = process.getuid?.() === 0
const NOBODY = 65_534

const giveAway = async (file: string) => {
  if (IS_ROOT) await chown(file, NOBODY, NOBODY)
}

const put = async (file: string, text: string) => {
  await mkdir(dirname(file), { recursive: true })
  await writeFile(file, text)
  return file
}

describe('connect among files of other users', () => {
  const { agents, withMachine } = useServer()

  test(
    'a repository that another user has made does not say where the project ends: no token goes out of the folder through it',
    withMachine(async ({ machine, connect }) => {
      const outer = join(machine.root, 'outer')
      const folder = join(outer, 'work/app')
      const target = await put(join(outer, 'other/x.json'), '{}\n')
      await mkdir(folder, { recursive: true })
      await put(join(outer, '.gitignore'), 'x.json\n')
      execFileSync('git', ['init', '-q'], { cwd: outer, env: machine.environment() })
      await symlink('../../other/x.json', join(folder, '.mcp.json'))
      await giveAway(join(outer, '.git'))
      const { code, stdout, json } = await connect({ folder }, '--json')
      const text = await readFile(target, 'utf8')
      if (IS_ROOT) assert.deepEqual([code, json.error.code, text], [1, 'outside', '{}\n'])
      else assert.equal(code, 0, stdout)
    }),
  )

  for (const path of ['.mcp.json', 'shared/mcp.json', '.claude/settings.local.json']) {
    test(
      `a file of another user is refused in a sentence, and nothing is written: ${path}`,
      withMachine(async ({ machine, connect }) => {
        const file = await machine.write(path, '{}\n')
        if (path.startsWith('shared')) await symlink(path, join(machine.project, '.mcp.json'))
        await giveAway(file)
        const before = await machine.listFiles()
        const { code, json } = await connect({}, '--allow', '--json')
        if (!IS_ROOT) return assert.equal(code, 0)
        assert.deepEqual([code, json.error.code], [1, 'foreign_file'])
        assert.equal(json.error.message, `${file} belongs to another user. Nothing was written.`)
        assert.match(json.error.hint, /chown/)
        return assert.deepEqual(await machine.listFiles(), before)
      }),
    )
  }

  test('a file that has come to be another user’s gets no secret at the last moment either', async (context) => {
    const machine = await Machine.create()
    context.after(() => machine.remove())
    const file = await machine.write('x.json', 'old')
    await giveAway(file)
    const writing = writeFileSafely(file, Buffer.from('new'), { mode: 0o600, isOwnOnly: true })
    if (IS_ROOT) await assert.rejects(writing, { code: 'foreign_file' })
    else await writing
    assert.equal(await readFile(file, 'utf8'), IS_ROOT ? 'old' : 'new')
  })

  test(
    'a file keeps its group and its mode, also where only the group is another one',
    withMachine(async ({ machine, connect }) => {
      const gid = IS_ROOT ? 1_234 : (process.getgroups?.().find((group) => group !== process.getgid?.()) ?? -1)
      const file = await machine.write('.mcp.json', '{}')
      if (gid !== -1) await chown(file, process.getuid?.() ?? -1, gid)
      await chmod(file, 0o640)
      const before = await stat(file)
      for (const verb of ['connect', 'disconnect']) {
        const { code } = verb === 'connect' ? await connect() : await machine.run([verb])
        assert.equal(code, 0)
        const { uid, gid: group, mode, ino } = await stat(file)
        assert.deepEqual([uid, group, mode], [before.uid, before.gid, before.mode])
        assert.notEqual(ino, before.ino)
      }
      assert.ok(!(await readFile(file, 'utf8')).includes(agents.backend.token))
    }),
  )
})

describe('links that lead elsewhere', () => {
  const { agents, withMachine } = useServer()

  test(
    'disconnect does not follow a symlink that has come since connect, and undoes all once it is gone',
    withMachine(async ({ machine, connect }) => {
      await machine.write('.claude/settings.local.json', '{ "permissions": { "allow": ["Bash(ls)"] } }')
      const before = await machine.listFiles()
      assert.equal((await connect({}, '--allow')).code, 0)
      const folder = join(machine.project, '.claude')
      const users = join(machine.root, '.claude/settings.local.json')
      const text = await machine.read('.claude/settings.local.json')
      await put(users, text)
      await rename(folder, `${folder}.kept`)
      await symlink('../.claude', folder)
      const { code, json } = await machine.run(['disconnect', '--json'])
      assert.deepEqual([code, json.error.code], [1, 'outside'])
      assert.match(json.error.message, /settings\.local\.json leads to .* by now\. Nothing was changed\./)
      assert.equal(await readFile(users, 'utf8'), text)
      assert.ok((await machine.read('.mcp.json')).includes(agents.backend.token))
      await rm(folder)
      await rename(`${folder}.kept`, folder)
      await rm(dirname(users), { recursive: true })
      assert.equal((await machine.run(['disconnect'])).code, 0)
      assert.deepEqual(await machine.listFiles(), before)
    }),
  )

  for (const [what, isTracked, isLinked] of [
    ['a symlink to settings that git tracks', true, true],
    ['a symlink to settings that git would take', false, true],
    ['a file that git tracks', true, false],
  ] as const) {
    test(
      `with --allow writes no rules where the next commit would give them to everyone: ${what}`,
      withMachine(async ({ machine, connect }) => {
        execFileSync('git', ['init', '-q'], { cwd: machine.project, env: machine.environment() })
        const name = isLinked ? 'settings.json' : 'settings.local.json'
        const file = await machine.write(`.claude/${name}`, '{}\n')
        if (isLinked) await symlink(name, join(machine.project, '.claude/settings.local.json'))
        if (isTracked) execFileSync('git', ['add', '.'], { cwd: machine.project, env: machine.environment() })
        const before = await machine.listFiles()
        const { code, json } = await connect({}, '--allow', '--json')
        assert.deepEqual([code, json.error.code], [1, 'rules_in_git'])
        assert.ok(json.error.message.includes(file), json.error.message)
        assert.deepEqual(await machine.listFiles(), before)
        await machine.write('.gitignore', 'settings.json\n')
        const again = await connect({}, '--allow')
        assert.equal(again.code, isTracked ? 1 : 0, again.stderr)
      }),
    )
  }
})

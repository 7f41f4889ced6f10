import assert from 'node:assert/strict'
import { mkdir, stat, writeFile } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { describe, test } from 'node:test'
import { findOnPath, listCandidates } from '../../plugin/lib/find-program.ts'
import { Machine } from './command.ts'
import { useServer } from './connect-server.ts'

describe('a program is looked for', () => {
  test('in the absolute folders of PATH only, on Windows by the endings that run without a shell', () => {
    const list = (path: string, platform: NodeJS.Platform, key = 'PATH') =>
      listCandidates('git', { [key]: path }, platform)
    assert.deepEqual(list(':.:bin:/usr/bin:../x:/opt/a b:', 'linux'), ['/usr/bin/git', '/opt/a b/git'])
    assert.deepEqual(list(';.;bin;C:bin;\\bin;/bin;C:\\Git;"D:\\a b";\\\\host\\share;', 'win32', 'Path'), [
      'C:\\Git\\git.exe',
      'C:\\Git\\git.com',
      'D:\\a b\\git.exe',
      'D:\\a b\\git.com',
      '\\\\host\\share\\git.exe',
      '\\\\host\\share\\git.com',
    ])
    assert.deepEqual(list('/usr/bin', 'linux', 'Path'), [])
    assert.deepEqual(listCandidates('git', {}, 'linux'), [])
  })

  test('as a file that can be run: a folder and a text of its name are passed over', async (context) => {
    const machine = await Machine.create()
    context.after(() => machine.remove())
    const at = (folder: string) => join(machine.root, folder)
    await mkdir(at('folder/tool'), { recursive: true })
    for (const [folder, mode] of [
      ['text', 0o644],
      ['program', 0o755],
    ] as const) {
      await mkdir(at(folder))
      await writeFile(join(at(folder), 'tool'), '', { mode })
    }
    const look = (...folders: string[]) => findOnPath('tool', { PATH: folders.map(at).join(delimiter) })
    assert.equal(await look('none', 'folder', 'text', 'program'), join(at('program'), 'tool'))
    assert.equal(await look('none', 'folder', 'text'), null)
  })
})

describe('connect in a repository that holds a program of the name git', () => {
  const { withMachine } = useServer()

  for (const [what, entry] of [
    ['an empty entry', ''],
    ['the current folder', '.'],
  ] as const) {
    test(
      `does not start it, although PATH names ${what}`,
      withMachine(async ({ machine, connect }) => {
        await mkdir(join(machine.project, '.git'))
        await writeFile(join(machine.project, 'git'), '#!/bin/sh\ntouch "$HOME/started"\nexit 1\n', { mode: 0o755 })
        const { code, stderr } = await connect({ env: { PATH: `${entry}:${process.env.PATH}` } })
        assert.equal(code, 0, stderr)
        await assert.rejects(stat(join(machine.root, 'started')), { code: 'ENOENT' })
      }),
    )
  }

  test(
    'warns that git could not be asked where PATH has none',
    withMachine(async ({ machine, connect }) => {
      await mkdir(join(machine.project, '.git'))
      const { code, json } = await connect({ env: { PATH: '/nonexistent:' } }, '--json')
      assert.equal(code, 0)
      assert.match(json.warnings.join('\n'), /git could not be asked/)
    }),
  )
})

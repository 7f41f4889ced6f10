import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { type Entry, planEntry, planIgnore, planRules, undoEdit } from '../../plugin/lib/edits.ts'
import type { Machine } from './command.ts'
import { useServer } from './connect-server.ts'

const ENTRY: Entry = { type: 'http', url: 'https://x.example/mcp/bearer', headers: { Authorization: 'Bearer $T' } }
const RULES = ['mcp__patchcord', 'Bash(node "/x/scripts/subscribe.mjs")']
const RUNS = 500

const bytes = (text: string) => Buffer.from(text, 'utf8')
const textOf = (undone: Buffer | null) => undone?.toString('utf8') ?? null

describe('an edit that somebody else has undone already', () => {
  const own = fc.constantFrom('dist', '!.mcp.json', 'sub/.mcp.json', '.mcp.json', '/.mcp.json', 'x.mcp.json', '', '#')
  const others = fc.array(fc.constantFrom('dist', '!.mcp.json', 'sub/.mcp.json', 'a.mcp.json', ' .mcp.json'), {
    maxLength: 3,
  })
  const ignored = fc.record({
    lines: fc.array(own, { maxLength: 5 }),
    eol: fc.constantFrom('\n', '\r\n'),
    isEnded: fc.boolean(),
  })
  const join = (lines: string[], eol: string, isEnded: boolean) =>
    lines.join(eol) + (isEnded && lines.length > 0 ? eol : '')

  test('leaves .gitignore as it is, whatever lines it has got: no line and no part of one is taken for ours', () => {
    fc.assert(
      fc.property(ignored, others, others, ({ lines, eol, isEnded }, above, below) => {
        const before = join(lines, eol, isEnded)
        const { edit } = planIgnore('/project/.gitignore', bytes(before))
        const current = join([...above, ...lines, ...below], eol, isEnded)
        assert.equal(textOf(undoEdit(edit, bytes(current), bytes(before))), current)
      }),
      { numRuns: RUNS },
    )
  })

  test('takes our line only out of .gitignore, wherever others have put lines, and also without its end', () => {
    fc.assert(
      fc.property(ignored, others, others, fc.boolean(), ({ lines, eol, isEnded }, above, below, isCut) => {
        const before = join(lines, eol, isEnded)
        const plan = planIgnore('/project/.gitignore', bytes(before))
        const head = above.map((line) => line + eol).join('')
        const tail = below.map((line) => line + eol).join('')
        const next = `${head}${plan.next.toString('utf8')}${tail}`
        const current = isCut && tail === '' ? next.replace(/\r?\n$/, '') : next
        const rest = textOf(undoEdit(plan.edit, bytes(current), bytes(before)))
        const end = before === '' || before.endsWith('\n') || tail === '' ? '' : before.includes('\n') ? eol : '\n'
        assert.equal(rest, `${head}${before}${end}${tail}`)
      }),
      { numRuns: RUNS },
    )
  })

  for (const before of [
    '{"permissions":{"allow":[]}}',
    '{ "permissions": {} }',
    '{}',
    '{"permissions":{"allow":["Bash(ls)"],"deny":[]}}',
  ]) {
    test(`leaves settings alone that hold none of our rules: ${before}`, () => {
      const plan = planRules('/project/settings.json', bytes(before), RULES)
      assert.ok(plan)
      for (const current of [before, `${before}\n`, before.replace('{', '{ "mine": 1,').replace(',}', '}')])
        assert.equal(textOf(undoEdit(plan.edit, bytes(current), bytes(before))), current)
      // Laid out anew, with our rules in it: what was empty before is empty again, and there.
      const anew = JSON.stringify(JSON.parse(plan.next.toString('utf8')), null, 3)
      const rest = textOf(undoEdit(plan.edit, bytes(anew), bytes(before)))
      assert.deepEqual(JSON.parse(rest ?? ''), JSON.parse(before))
    })
  }

  test('takes nothing out of another place that holds the same words', () => {
    const settings = '{"permissions":{"allow":["Read"]}}'
    const plan = planRules('/project/settings.json', bytes(settings), ['mcp__patchcord'])
    assert.ok(plan)
    const denied = '{"permissions":{"allow":["Read"],"deny":["Read","mcp__patchcord"]}}'
    assert.equal(textOf(undoEdit(plan.edit, bytes(denied), bytes(settings))), denied)
    const entry = planEntry('/project/.mcp.json', bytes('{\n}\n'), ENTRY)
    const moved = entry.next.toString('utf8').replace('{', '{\n  "old": {').replace(/\}\n$/, '}}\n')
    assert.equal(textOf(undoEdit(entry.edit, bytes(moved), bytes('{\n}\n'))), moved)
  })

  test('leaves JSON behind where something was put behind our entry', () => {
    const plan = planEntry('/project/.mcp.json', bytes('{\n}\n'), ENTRY)
    const grown = plan.next.toString('utf8').replace(/\n\}\n$/, ',\n  "mine": 1\n}\n')
    const rest = textOf(undoEdit(plan.edit, bytes(grown), bytes('{\n}\n')))
    assert.deepEqual(JSON.parse(rest ?? ''), { mine: 1 })
  })
})

describe('disconnect where git has put files back meanwhile', () => {
  const { withMachine } = useServer()
  const git = (machine: Machine, ...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.org', ...args], {
      cwd: machine.project,
      env: machine.environment(),
    })

  for (const text of ['dist\n!.mcp.json\n', 'sub/.mcp.json\n', '.mcp.json\n!.mcp.json\n']) {
    test(
      `leaves .gitignore as it was committed, also after a second connect: ${JSON.stringify(text)}`,
      withMachine(async ({ machine, connect }) => {
        git(machine, 'init', '-q')
        await machine.write('.gitignore', text)
        git(machine, 'add', '.')
        git(machine, 'commit', '-qm', 'x')
        for (const times of [1, 2]) {
          for (let count = 0; count < times; count++) {
            assert.equal((await connect()).code, 0)
            assert.equal(await machine.read('.gitignore'), `${text}.mcp.json\n`)
            git(machine, 'checkout', '-q', '.gitignore')
          }
          const { code, stdout } = await machine.run(['disconnect'])
          assert.equal(code, 0)
          assert.match(stdout, /left \S+\.gitignore alone: nothing of ours is in it any more/)
          assert.deepEqual(Object.keys(await machine.listFiles()), ['/project/.gitignore'])
          assert.equal(await machine.read('.gitignore'), text)
        }
      }),
    )
  }
})

import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { noteTest, type Tests } from '../../scripts/dev/mutations/check.ts'
import { MUTATIONS, type Mutation, mutate } from '../../scripts/dev/mutations/list.ts'
import { parseArguments, selectFiles } from '../runner/select.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const LET_IN: Mutation = {
  name: 'let everybody in',
  file: 'door.ts',
  edits: [{ from: 'if (isShut) return\n', to: '' }],
  tests: ['door'],
  foundBy: 'nobody gets in',
}

describe('each mutation', () => {
  for (const mutation of MUTATIONS) {
    test(`fits the code and the tests as they are: ${mutation.name}`, async () => {
      const text = await readFile(join(ROOT, mutation.file), 'utf8')
      assert.notEqual(mutate(text, mutation), text)
      const entries = (await readdir(join(ROOT, 'test'), { recursive: true })).map((entry) => `test/${entry}`)
      const files = selectFiles(entries, parseArguments(mutation.tests))
      const texts = await Promise.all(files.map((file) => readFile(join(ROOT, file), 'utf8')))
      const names = mutation.foundBy.split(' › ')
      assert.ok(
        texts.some((each) => names.every((name) => each.includes(`('${name}'`))),
        files.join(' '),
      )
    })
  }

  test('has a name of its own', () => {
    assert.equal(new Set(MUTATIONS.map(({ name }) => name)).size, MUTATIONS.length)
  })
})

describe('a mutation', () => {
  test('changes its text and nothing else, however that reads as a pattern', () => {
    assert.equal(mutate('a\nif (isShut) return\nb', LET_IN), 'a\nb')
    const dollars = { ...LET_IN, edits: [{ from: '(.*)', to: "$& $1 $'" }] }
    assert.equal(mutate('a(.*)b', dollars), "a$& $1 $'b")
  })

  test('whose text is missing, or there twice, is an error that says which', () => {
    for (const [text, count] of [
      ['open()', 0],
      ['if (isShut) return\nif (isShut) return\n', 2],
    ] as const) {
      assert.throws(() => mutate(text, LET_IN), {
        message: `mutation "let everybody in": its text is ${count} times in door.ts, not once: if (isShut) return\n`,
      })
    }
  })
})

test('a test that failed is told from one that passed and from a file that throws at import', () => {
  const tests: Tests = { passed: new Map(), failed: new Map() }
  const run = [
    'test/door.test.ts',
    '  ✔ opens (3 ms)',
    '  ✖ a door › nobody gets in (12 ms)',
    '    AssertionError [ERR_ASSERTION]: 1 !== 0',
    '  ✖ test/window.test.ts (5 ms)',
    '✖ test/door.test.ts › a door › nobody gets in',
  ]
  for (const [index, line] of run.entries()) noteTest(tests, line, index)
  assert.deepEqual([...tests.passed], [['opens', 1]])
  assert.deepEqual(
    [...tests.failed],
    [
      ['a door › nobody gets in', 2],
      ['test/window.test.ts', 4],
    ],
  )
})

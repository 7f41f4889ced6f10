import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { rules } from './tidy/rules.ts'
import { readTree } from './tidy/tree.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

describe('the repository', async () => {
  const tree = await readTree(ROOT)
  for (const rule of rules) {
    test(rule.name, () => {
      assert.deepEqual(
        rule.check(tree).map(({ file, message }) => `${file}: ${message}`),
        [],
      )
    })
  }
  test('is read whole: the rules see more than a handful of files', () => {
    assert.ok(tree.size > 30, `${tree.size} files`)
  })
})

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { INNOCENT, PLANTED, TIDY } from './planted.ts'
import { rules } from './rules.ts'

function treeWith(plant: Record<string, string | null>): Map<string, string> {
  const files = Object.entries({ ...TIDY, ...plant })
  return new Map(files.filter((file): file is [string, string] => file[1] !== null))
}

describe('the rules of the house', () => {
  test('find nothing in a tidy house', () => {
    for (const rule of rules) assert.deepEqual(rule.check(treeWith({})), [], rule.name)
  })
  test('take neither comments, strings nor fixtures for violations', () => {
    for (const rule of rules) assert.deepEqual(rule.check(treeWith(INNOCENT)), [], rule.name)
  })
  test('are each broken by something that is planted below', () => {
    const unproven = rules.filter(({ name }) => !PLANTED.some(({ breaks }) => breaks.test(name)))
    assert.deepEqual(unproven, [])
  })
  for (const { breaks, plant, in: file, expected } of PLANTED) {
    test(`name ${file} when ${JSON.stringify(plant).slice(0, 120)} is planted`, () => {
      const rule = rules.filter(({ name }) => breaks.test(name))
      assert.equal(rule.length, 1, `${breaks} means one rule`)
      const found = rule.flatMap(({ check }) => check(treeWith(plant)))
      assert.ok(
        found.some((violation) => violation.file === file && expected.test(violation.message)),
        JSON.stringify(found),
      )
    })
  }
})

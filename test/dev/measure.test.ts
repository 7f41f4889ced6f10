import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { distribute, measureFile, measureFunctions } from '../../scripts/dev/measure.ts'

const SAMPLE = `
interface Shape { area(): number; name(a: string): { b: string } }
export async function plain<T extends object>(
  a: T,
): Promise<{ b: string }> {
  if (a) { return run(a) ? other(a) : { b: '{' } }
  for (const x of [1]) { while (x) { switch (x) {} } }
}
const short = (a: number) => a + 1
const long = async <T>(a: T): Promise<T> => {
  return a
}
const typed: Plugin<A> = async (app) => {
  app()
}
class Machine {
  state = 1
  constructor(a: string) { this.state = a.length }
  *step(): Generator<number> {
    yield* [1].map((a) => {
      return a
    })
  }
}
test('a sentence', { timeout: 1 }, async () => {
  try { /* } */ } catch (error) { \`\${error} }\` }
})
export default { key: (a) => { return a }, method() {} }
`

describe('the sizes of functions', () => {
  test('are those of functions with a body and of nothing else', () => {
    const sizes = measureFunctions('a.ts', SAMPLE).map(
      ({ name, lines }) => `${name.split(' ').slice(1).join(' ')} ${lines}`,
    )
    assert.deepEqual(sizes.sort(), [
      'a sentence 3',
      'constructor 1',
      'key 1',
      'long 3',
      'map(…) 3',
      'method 1',
      'plain 6',
      'step 5',
      'typed 3',
    ])
  })
  test('name the file and the line', () => {
    assert.deepEqual(measureFunctions('a.ts', '\nfunction b() {\n}'), [{ name: 'a.ts:2 b', lines: 2 }])
  })
})

test('the size of a file leaves out blank lines', () => {
  assert.equal(measureFile('a.ts', 'a\n\n  \nb\n').lines, 2)
})

test('median and p90 are nearest ranks, and the largest is named', () => {
  const sizes = [5, 1, 2, 3, 4, 10, 6, 7, 8, 9].map((lines) => ({ name: `f${lines}`, lines }))
  assert.deepEqual(distribute(sizes), { count: 10, median: 5, p90: 9, max: 10, largest: 'f10' })
  assert.equal(distribute([]), null)
})

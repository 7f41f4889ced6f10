import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { FAILURES } from './listener-failures.ts'

const TESTS = fileURLToPath(new URL('..', import.meta.url))
const NAME = /\btest\(\s*(['"`])((?:\\.|(?!\1)[^\\\n])+)\1/g

/** How many entries there are of each kind. */
const COUNTS = { R: 11, L: 22, P: 6, W: 9, S: 14, E: 14 }

async function listTestNames(): Promise<Set<string>> {
  const files = (await readdir(TESTS, { recursive: true })).filter((file) => file.endsWith('.test.ts'))
  const texts = await Promise.all(files.map((file) => readFile(join(TESTS, file), 'utf8')))
  return new Set(
    texts.flatMap((text) =>
      [...text.matchAll(NAME)].map((match) => (match[2] ?? '').replace(/\$\{[^}]*\}/g, 'N').replace(/\\(.)/g, '$1')),
    ),
  )
}

test('every known failure has a test that exists, or a reason why none is the listener’s', async () => {
  const names = await listTestNames()
  const missing = FAILURES.flatMap(({ id, tests }) =>
    tests.filter((name) => !names.has(name)).map((name) => `${id}: ${name}`),
  )
  assert.deepEqual(missing, [])
  const bare = FAILURES.filter(({ tests, beyond }) => tests.length === 0 && beyond === undefined)
  assert.deepEqual(bare, [])
})

test('every known failure stands in the table once', () => {
  const ids = FAILURES.map(({ id }) => id)
  assert.equal(new Set(ids).size, ids.length)
  const counts = Object.keys(COUNTS).map((kind) => [kind, ids.filter((id) => id.startsWith(kind)).length])
  assert.deepEqual(Object.fromEntries(counts), COUNTS)
})

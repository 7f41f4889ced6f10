import assert from 'node:assert/strict'
import { test } from 'node:test'
import { listBareFailures, listMissingTests } from '../helpers/known-failures.ts'
import { FAILURES } from './listener-failures.ts'

/** How many entries there are of each kind. */
const COUNTS = { R: 11, L: 22, P: 6, W: 9, S: 14, E: 14 }

test('every known failure has a test that exists, or a reason why none is the listener’s', async () => {
  assert.deepEqual(await listMissingTests(FAILURES), [])
  assert.deepEqual(listBareFailures(FAILURES), [])
})

test('every known failure stands in the table once', () => {
  const ids = FAILURES.map(({ id }) => id)
  assert.equal(new Set(ids).size, ids.length)
  const counts = Object.keys(COUNTS).map((kind) => [kind, ids.filter((id) => id.startsWith(kind)).length])
  assert.deepEqual(Object.fromEntries(counts), COUNTS)
})

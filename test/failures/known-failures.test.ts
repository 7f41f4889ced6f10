import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { listBareFailures, listMissingTests } from '../helpers/known-failures.ts'
import { DELIVERY_FAILURES } from './delivery.ts'
import { IDENTITY_FAILURES } from './identity.ts'
import { INSTALLER_FAILURES } from './installer.ts'
import { MCP_FAILURES } from './mcp.ts'

const FAILURES = [...MCP_FAILURES, ...IDENTITY_FAILURES, ...DELIVERY_FAILURES, ...INSTALLER_FAILURES]
/** How many entries there are of each kind. */
const COUNTS = { M: 16, T: 11, X: 4, D: 11, I: 5, H: 2, E: 3 }

/** Public bug reports of other projects, by their numbers; those of a listener stand in scripts/listener-failures.ts. */
describe('every known failure', () => {
  test('has tests that are where the table says, or a reason why none can be', async () => {
    assert.deepEqual(await listMissingTests(FAILURES), [])
    assert.deepEqual(listBareFailures(FAILURES), [])
  })

  test('stands in the table once', () => {
    const ids = FAILURES.map(({ id }) => id)
    assert.equal(new Set(ids).size, ids.length)
    const counts = Object.keys(COUNTS).map((kind) => [kind, ids.filter((id) => id.startsWith(kind)).length])
    assert.deepEqual(Object.fromEntries(counts), COUNTS)
  })

  test('is missed in a table that names a test which is not there, or stands in another file', async () => {
    const [name, wanted] = ['stands in the table once', 'never written']
    const file = 'failures/known-failures.test.ts'
    const cite = (...tests: { file?: string; name: string }[]) => [{ id: 'A1', what: '', tests }]
    assert.deepEqual(await listMissingTests(cite({ name }, { file, name })), [])
    for (const [cited, place] of [
      [{ name: wanted }, 'anywhere'],
      [{ file, name: wanted }, file],
      [{ file: 'app.test.ts', name }, 'app.test.ts'],
      [{ file: 'gone.test.ts', name }, 'gone.test.ts'],
    ] as const) {
      assert.deepEqual(await listMissingTests(cite(cited)), [`A1: ${place}: ${cited.name}`])
    }
    assert.deepEqual(listBareFailures(cite()), ['A1'])
  })
})

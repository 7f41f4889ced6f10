import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { measureLedgerCost } from '../../scripts/dev/ledger-cost.ts'
import { createTemporaryFolder } from '../helpers/processes.ts'

let folder: Awaited<ReturnType<typeof createTemporaryFolder>>
before(async () => {
  folder = await createTemporaryFolder()
})
after(() => folder.remove())

test('a send is measured with its row in the ledger twice and without it twice, alone and eight at once', async () => {
  // How long each takes on a machine that runs tests says nothing; what each has stored does.
  const costs = await measureLedgerCost(2, folder.path, { fsync: 'off' })
  assert.deepEqual(
    costs.map(({ concurrency, messages, rows }) => [concurrency, rows / messages]),
    [1, 8].map((concurrency) => [concurrency, 2 / 4]),
  )
  for (const { messages, medianMs, inboxMs, withoutMs, ratio, withoutRatio, controlRatio } of costs) {
    assert.ok(messages > 0)
    for (const figure of [medianMs, inboxMs, withoutMs, ratio, withoutRatio, controlRatio])
      assert.ok(figure > 0 && Number.isFinite(figure))
  }
})

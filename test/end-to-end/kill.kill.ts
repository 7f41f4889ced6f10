import assert from 'node:assert/strict'
import { test } from 'node:test'
import { runKill } from './kill-run.ts'

test('1,000 sends with the server killed in the middle: every answered one is in its inbox and announced, once', async () => {
  const report = await runKill(1_000)
  console.log(
    `answered ${report.answered}, repeated after a lost answer ${report.repeated}, announced ${report.announced}`,
  )
  assert.deepEqual([report.answered, report.announced], [1_000, 1_000])
})

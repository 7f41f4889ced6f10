import assert from 'node:assert/strict'
import { test } from 'node:test'
import { runKill } from './kill-run.ts'

test('100 sends with the server killed in the middle: every answered one is in its inbox and announced, once', async () => {
  const report = await runKill(100)
  assert.deepEqual([report.answered, report.announced], [100, 100])
})

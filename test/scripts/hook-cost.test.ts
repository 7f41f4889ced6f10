import assert from 'node:assert/strict'
import { test } from 'node:test'
import { describeCost, measureHookCosts } from '../../scripts/dev/hook-cost.ts'

/** The machine of a test is busy; `npm run bench:hook` holds hooks to their limits themselves. */
const ROOM = 5

test('hooks and status line cost a turn little beside the start of Node itself', async (context) => {
  for (const cost of await measureHookCosts(5)) {
    context.diagnostic(describeCost(cost))
    if (cost.limitMs > 0) assert.ok(cost.extraMs <= ROOM * cost.limitMs, describeCost(cost))
  }
})

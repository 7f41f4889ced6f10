import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { type Cost, describeCost, measureHookCosts } from '../../scripts/dev/hook-cost.ts'

/** The machine of a test is busy; `npm run bench:hook` holds hooks to their limits themselves. */
const ROOM = 5
/** A moment in which the machine does something else is not the hook's. */
const TRIES = 3

test('hooks and status line cost a turn little beside the start of Node itself', async (context) => {
  let slow: Cost[] = []
  for (let tries = 0; tries < TRIES; tries++) {
    slow = await findSlow(context)
    if (slow.length === 0) return
  }
  assert.fail(slow.map(describeCost).join('\n'))
})

async function findSlow(context: TestContext): Promise<Cost[]> {
  const costs = await measureHookCosts(5)
  for (const cost of costs) context.diagnostic(describeCost(cost))
  return costs.filter(({ extraMs, limitMs }) => limitMs > 0 && extraMs > ROOM * limitMs)
}

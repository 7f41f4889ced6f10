import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Cost, describeCost, measureHookCosts } from '../../scripts/dev/hook-cost.ts'

const ROUNDS = 15
/** Whatever else the machine does can only add to a cost, so each hook has to stay below its limit in one run of several. */
const RUNS_MAX = 5

test('hooks and status line stay below their share of a turn, over the start of Node itself', async (context) => {
  let tooSlow: Cost[] = []
  for (let run = 0; run < RUNS_MAX; run++) {
    const costs = await measureHookCosts(ROUNDS)
    for (const cost of costs) context.diagnostic(describeCost(cost))
    const slow = costs.filter(({ extraMs, limitMs }) => limitMs > 0 && extraMs > limitMs)
    const names = new Set((run === 0 ? slow : tooSlow).map(({ name }) => name))
    tooSlow = slow.filter(({ name }) => names.has(name))
    if (tooSlow.length === 0) return
  }
  assert.fail(`slower than their limits in ${RUNS_MAX} runs:\n${tooSlow.map(describeCost).join('\n')}`)
})

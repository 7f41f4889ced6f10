import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { createDeadlines } from '../../server/realtime/deadlines.ts'

const STEP_MS = 10

function collect() {
  const looks: { item: string; at: number }[] = []
  const deadlines = createDeadlines<string>(STEP_MS, (item) => looks.push({ item, at: performance.now() }))
  return { looks, deadlines }
}

async function until(isTrue: () => boolean): Promise<void> {
  const end = performance.now() + 10_000
  while (!isTrue()) {
    assert.ok(performance.now() < end, 'not in time')
    await sleep(2)
  }
}

describe('deadlines', () => {
  test('each is looked at once its time has come, never before, and once only', async () => {
    const { looks, deadlines } = collect()
    const steps = Array.from({ length: 50 }, (_, index) => 49 - index + index / 50)
    const dueAt = new Map([80, 0, -100, ...steps].map((ms) => [`in ${ms}`, performance.now() + ms]))
    for (const [item, at] of dueAt) deadlines.set(item, at)
    await until(() => looks.length === dueAt.size)
    await sleep(3 * STEP_MS)
    deadlines.close()
    for (const { item, at } of looks) assert.ok(at >= (dueAt.get(item) ?? Number.NaN), `${item} was looked at early`)
    assert.deepEqual(looks.map(({ item }) => item).sort(), [...dueAt.keys()].sort())
    assert.equal(looks.at(-1)?.item, 'in 80')
  })

  test('an earlier time moves a look forward, a later one does not move it back', async () => {
    const { looks, deadlines } = collect()
    deadlines.set('forward', performance.now() + 60_000)
    deadlines.set('forward', performance.now() + 20)
    deadlines.set('back', performance.now() + 20)
    deadlines.set('back', performance.now() + 60_000)
    await until(() => looks.length === 2)
    deadlines.close()
  })

  test('who is removed is not looked at, also by a look of the same moment; who sets itself again is', async () => {
    const seen: string[] = []
    const deadlines = createDeadlines<string>(STEP_MS, (item) => {
      seen.push(item)
      if (item === 'first') deadlines.remove('second')
      if (item === 'again' && seen.filter((each) => each === item).length < 3) deadlines.set(item, performance.now())
    })
    const at = performance.now() + 2 * STEP_MS
    for (const item of ['first', 'second', 'third', 'again']) deadlines.set(item, at)
    deadlines.remove('third')
    deadlines.remove('nobody')
    await until(() => seen.length === 4)
    await sleep(3 * STEP_MS)
    deadlines.close()
    assert.deepEqual(seen, ['first', 'again', 'again', 'again'])
  })

  test('what was due while the event loop stood still is looked at after it', async () => {
    const { looks, deadlines } = collect()
    for (let index = 0; index < 10; index++) deadlines.set(`${index}`, performance.now() + index * STEP_MS)
    const end = performance.now() + 12 * STEP_MS
    while (performance.now() < end);
    await until(() => looks.length > 0)
    deadlines.close()
    assert.deepEqual(
      looks.map(({ item }) => item),
      Array.from({ length: 10 }, (_, index) => `${index}`),
    )
  })
})

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Kind, Lock } from '../../scripts/dev/faults/kinds.ts'
import { Schedule } from '../../scripts/dev/faults/schedule.ts'
import type { Stage } from '../../scripts/dev/faults/stage.ts'

const STAGE = {} as Stage
const FAULT_MS = 40
const RUN_MS = 6_000

interface Trace {
  /** `name` and what its random stream drew, in the order of their begin. */
  begun: string[]
  /** Things that two faults had at once. */
  shared: Lock[]
  atOnceMax: number
}

async function run(seed: number, hasHappened: (name: string, time: number) => boolean = () => true) {
  const trace: Trace = { begun: [], shared: [], atOnceMax: 0 }
  const held = new Set<Lock>()
  let running = 0
  const createKind = (name: string, locks: Lock[]): Kind => ({
    name,
    draw: (_stage, random) => {
      const drawn = random().toFixed(6)
      return {
        locks,
        async run() {
          trace.begun.push(`${name} ${drawn}`)
          const time = trace.begun.filter((each) => each.startsWith(name)).length
          trace.atOnceMax = Math.max(trace.atOnceMax, ++running)
          trace.shared.push(...locks.filter((lock) => held.has(lock)))
          for (const lock of locks) held.add(lock)
          await sleep(FAULT_MS)
          for (const lock of locks) held.delete(lock)
          running -= 1
          return hasHappened(name, time)
        },
      }
    },
  })
  const kinds = [
    createKind('a', ['server 1']),
    createKind('b', ['server 1', 'server 2']),
    createKind('c', ['server 2']),
    createKind('d', []),
  ]
  const schedule = new Schedule(kinds, STAGE, seed, [0, 20])
  await schedule.run(AbortSignal.timeout(RUN_MS))
  return { trace, counts: schedule.counts }
}

describe('the schedule', { concurrency: true }, () => {
  test('faults of all kinds come equally often, overlap, and never break one thing twice at once', async () => {
    const { trace, counts } = await run(1)
    const numbers = [...counts.values()]
    assert.ok(Math.min(...numbers) >= 20, `${[...counts]}`)
    // Who waits when the time is over keeps its place for the next round, so the difference is what can be under way.
    assert.ok(Math.max(...numbers) - Math.min(...numbers) <= 10, `${[...counts]}`)
    assert.deepEqual(trace.shared, [])
    assert.ok(trace.atOnceMax >= 2)
  })

  test('a seed draws the same faults again, and another one others', async () => {
    const [first, again, other] = await Promise.all([run(7), run(7), run(8)])
    const drawn = ({ trace }: typeof first) => trace.begun.filter((each) => each.startsWith('d')).slice(0, 10)
    assert.equal(drawn(first).length, 10)
    assert.deepEqual(drawn(again), drawn(first))
    assert.notDeepEqual(drawn(other), drawn(first))
  })

  test('what found nothing to break is not counted, and comes again', async () => {
    const { trace, counts } = await run(3, (name, time) => name !== 'd' || time % 2 === 0)
    const begun = trace.begun.filter((each) => each.startsWith('d')).length
    assert.equal(counts.get('d'), Math.floor(begun / 2))
    assert.ok(Math.abs((counts.get('d') as number) - (counts.get('a') as number)) <= 10, `${[...counts]}`)
  })
})

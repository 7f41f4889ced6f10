import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { createPeopleTurns, createTurns } from '../../server/db/turns.ts'

test('two of a key run at once, the rest in the order they came, and other keys beside them', async () => {
  const turns = createTurns()
  const started: string[] = []
  const ends = new Map<string, () => void>()
  const run = (key: string, name: string) =>
    turns(key, () => {
      started.push(name)
      return new Promise<void>((resolve) => ends.set(name, resolve))
    })
  const runs = ['a1', 'a2', 'a3', 'a4'].map((name) => run('a', name))
  runs.push(run('b', 'b1'))
  await sleep(5)
  assert.deepEqual(started, ['a1', 'a2', 'b1'])
  ends.get('a2')?.()
  await sleep(5)
  assert.deepEqual(started, ['a1', 'a2', 'b1', 'a3'])
  for (const name of ['a1', 'a3', 'b1']) ends.get(name)?.()
  await sleep(5)
  ends.get('a4')?.()
  await Promise.all(runs)
})

test('work that fails passes its turn on, and its error out', async () => {
  const turns = createTurns()
  const failing = Array.from({ length: 5 }, (_, index) => turns('a', async () => Promise.reject(new Error(`${index}`))))
  const ends = await Promise.allSettled(failing)
  assert.deepEqual(
    ends.map((end) => end.status === 'rejected' && end.reason.message),
    ['0', '1', '2', '3', '4'],
  )
  assert.equal(await turns('a', async () => 'goes on'), 'goes on')
})

test('who finds 500 waiting is refused with when to come again', async () => {
  const turns = createTurns()
  let end = () => {}
  const held = new Promise<void>((resolve) => {
    end = resolve
  })
  const runs = Array.from({ length: 502 }, () => turns('a', () => held))
  await assert.rejects(
    turns('a', () => held),
    { code: 'rate_limited', retryAfterSeconds: 5 },
  )
  assert.equal(await turns('b', async () => 1), 1)
  end()
  await Promise.all(runs)
})

test('of all sessions together four run at once, and of one session two', async () => {
  const turns = createPeopleTurns()
  let end = () => {}
  const held = new Promise<void>((resolve) => {
    end = resolve
  })
  const started: string[] = []
  const start = (session: string) =>
    turns(session, async () => {
      started.push(session)
      await held
    })
  const runs = ['a', 'a', 'a', 'b', 'c', 'd', 'd'].map(start)
  await sleep(20)
  assert.deepEqual(started, ['a', 'a', 'b', 'c'])
  end()
  await Promise.all(runs)
  assert.equal(started.length, 7)
})

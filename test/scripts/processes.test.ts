import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { test } from 'node:test'
import { isAlive, readStartTime } from '../../scripts/lib/processes.cjs'
import { watchSurroundings } from '../../scripts/lib/surroundings.mjs'
import { eventually, pause } from './listener-process.ts'

test('a process has one start time, and none after its end', { skip: process.platform === 'win32' }, async () => {
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' })
  const pid = child.pid ?? 0
  const startTime = readStartTime(pid)
  assert.ok(startTime)
  assert.equal(readStartTime(pid), startTime)
  assert.notEqual(startTime, readStartTime(process.pid))
  assert.equal(isAlive(pid), true)
  child.kill('SIGKILL')
  await once(child, 'exit')
  assert.equal(isAlive(pid), false)
  assert.equal(readStartTime(pid), null)
})

test('a sleep of the machine is noticed by the wall clock, once', async (context) => {
  let sleptMs = 0
  let sleptCount = 0
  const stop = watchSurroundings({
    clientPid: null,
    everyMs: 10,
    sleptMs: 20_000,
    wallClock: () => Date.now() + sleptMs,
    onGone: () => assert.fail('the parent is here'),
    onSlept: () => sleptCount++,
    onTick: () => {},
  })
  context.after(stop)
  await pause(60)
  assert.equal(sleptCount, 0)
  sleptMs = 3_600_000
  await eventually(() => sleptCount > 0)
  await pause(60)
  assert.equal(sleptCount, 1)
})

test('the end of the client that the listener works for is noticed', async (context) => {
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' })
  let goneCount = 0
  const stop = watchSurroundings({
    clientPid: child.pid ?? null,
    everyMs: 10,
    sleptMs: 20_000,
    onGone: () => goneCount++,
    onSlept: () => {},
    onTick: () => {},
  })
  context.after(stop)
  await pause(60)
  assert.equal(goneCount, 0)
  child.kill('SIGKILL')
  await eventually(() => goneCount > 0)
  await pause(60)
  assert.equal(goneCount, 1)
})

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, openSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { LinePipe } from '../../scripts/dev/faults/pipe.ts'
import { Clock } from '../../scripts/dev/faults/programs.ts'
import { createTemporaryFolder } from '../helpers/processes.ts'

const isPosix = process.platform !== 'win32'
const HOUR_MS = 3_600_000
const NEAR_MS = 60_000

describe('what a faults run does to a program', () => {
  let folder: Awaited<ReturnType<typeof createTemporaryFolder>>
  before(async () => {
    folder = await createTemporaryFolder()
  })
  after(() => folder.remove())

  test('sets its wall clock while it runs, and leaves its steady clock alone', async () => {
    const clock = new Clock(folder.path, 'one')
    const program = `
      const tell = () => console.log(JSON.stringify(
        [Date.now(), new Date().getTime(), +new Date(0), Date.parse(Date()), new Date() instanceof Date, performance.now()]))
      process.stdin.on('data', () => setTimeout(tell, 100))`
    const child = spawn(process.execPath, ['-e', program], {
      env: clock.environment,
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    const lines = createInterface({ input: child.stdout })
    const ask = async () => {
      child.stdin.write('?')
      const [line] = (await once(lines, 'line')) as [string]
      return JSON.parse(line) as [number, number, number, number, boolean, number]
    }
    for (const offMs of [0, HOUR_MS, -HOUR_MS]) {
      clock.set(offMs)
      const [now, made, zero, text, isDate, steady] = await ask()
      for (const time of [now, made, text]) assert.ok(Math.abs(time - (Date.now() + offMs)) < NEAR_MS, `${time}`)
      assert.deepEqual([zero, isDate], [0, true])
      assert.ok(steady < NEAR_MS)
    }
    child.stdin.end()
    await once(child, 'exit')
  })

  test('leaves its stdout unread and full, then reads all of it and knows what stood there before', {
    skip: !isPosix,
  }, async () => {
    const path = join(folder.path, 'pipe')
    const told: { text: string; at: number }[] = []
    const pipe = new LinePipe(path, (text, at) => told.push({ text, at }))
    const writer = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK)
    const write = (text: string) => writeSync(writer, text)
    write('one\ntw')
    await sleep(100)
    write('o\nthree\n')
    pipe.stall()
    const stalledAt = Date.now()
    assert.throws(() => write('four\n'), { code: 'EAGAIN' })
    await sleep(200)
    assert.deepEqual(
      told.map(({ text }) => text),
      ['one', 'two', 'three'],
    )
    assert.throws(() => write('four\n'), { code: 'EAGAIN' })
    pipe.unstall()
    write('four\n')
    closeSync(writer)
    pipe.close()
    closeSync(pipe.writing)
    assert.deepEqual(
      told.map(({ text }) => text),
      ['one', 'two', 'three', 'four'],
    )
    assert.ok(told.slice(0, 3).every(({ at }) => at <= stalledAt) && (told[3]?.at ?? 0) >= stalledAt + 200)
  })
})

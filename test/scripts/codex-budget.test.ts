import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { WakeBudget } from '../../scripts/lib/codex-budget.mjs'

const BURST = 10
const REFILL_MS = 360_000
const HOUR_MS = 3_600_000

function setUp(context: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), 'patchcord-wakes-'))
  context.after(() => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, 'wakes_key.json')
  const time = { now: 1_800_000_000_000 }
  const logs: string[] = []
  const start = (...files: string[]) => {
    const listFiles = () => (files.length === 0 ? [file] : files)
    const log = (text: string) => void logs.push(text)
    return new WakeBudget({ listFiles, burst: BURST, refillMs: REFILL_MS, log, clock: () => time.now })
  }
  return { folder, file, time, logs, start }
}

/** Takes what is there to be taken. */
function drain(budget: WakeBudget): number {
  let count = 0
  for (; budget.msUntilAllowed() <= 0 && count < 100; count++) budget.take()
  return count
}

test('what is left of the wakes outlives the listener', (context) => {
  const { folder, file, time, start } = setUp(context)
  assert.equal(drain(start()), BURST)
  assert.equal(statSync(file).mode & 0o777, process.platform === 'win32' ? 0o666 : 0o600)
  assert.deepEqual(readdirSync(folder), ['wakes_key.json'])
  assert.equal(start().msUntilAllowed(), REFILL_MS)
  time.now += REFILL_MS - 1
  assert.equal(start().msUntilAllowed(), 1)
  time.now += 1
  assert.equal(drain(start()), 1)
  let hour = 0
  for (const end = time.now + HOUR_MS; time.now < end; time.now += 60_000) hour += drain(start())
  assert.ok(hour <= 10, `${hour} in the second hour`)
})

test('a clock that is set back refills nothing, and makes nobody wait until it is where it was', (context) => {
  const { time, start } = setUp(context)
  const budget = start()
  drain(budget)
  for (let count = 0; count < 5; count++) {
    time.now -= 24 * HOUR_MS
    assert.equal(budget.msUntilAllowed(), REFILL_MS)
    assert.equal(start().msUntilAllowed(), REFILL_MS)
  }
  time.now += REFILL_MS
  assert.equal(drain(start()), 1)
  assert.equal(drain(budget), 0)
})

test('a file that is damaged, or not one of ours, counts as full and never as more', { timeout: 20_000 }, (context) => {
  const { folder, file, time, start } = setUp(context)
  const secret = join(folder, 'secret')
  writeFileSync(secret, JSON.stringify({ tokens: 0, at: time.now }))
  const hostile: (() => void)[] = [
    ...['', '{', 'null', '[]', '7', '{"tokens":1e9,"at":0}', '{"tokens":-5,"at":0}', '{"tokens":0.5,"at":1}'],
    ...['{"tokens":"9","at":0}', '{"tokens":3,"at":"x"}', '{"tokens":0,"at":1e999}', '{"tokens":0,"at":-1e300}'],
    ...['{"tokens":0}', `{"tokens":0,"at":${time.now},"more":"${'x'.repeat(2_000)}"}`],
  ].map((text) => () => writeFileSync(file, text))
  hostile.push(() => symlinkSync(secret, file))
  if (process.platform !== 'win32') hostile.push(() => void execFileSync('mkfifo', [file]))
  for (const [index, plant] of hostile.entries()) {
    rmSync(file, { force: true })
    plant()
    assert.equal(drain(start()), BURST, `${index}`)
    assert.equal(drain(start()), 0, `${index}`)
  }
  assert.equal(JSON.parse(readFileSync(secret, 'utf8')).tokens, 0)
})

test('a time that is far away, in either direction, is no more than a full bucket and no longer than one wait', (context) => {
  const { file, time, start } = setUp(context)
  writeFileSync(file, '{"tokens":0,"at":0}')
  assert.equal(drain(start()), BURST)
  writeFileSync(file, '{"tokens":0,"at":1e300}')
  assert.equal(start().msUntilAllowed(), REFILL_MS)
  time.now += REFILL_MS
  assert.equal(drain(start()), 1)
})

test('where the file cannot be written, the process alone keeps to the rate, and complains once', (context) => {
  const { file, logs, start } = setUp(context)
  mkdirSync(join(file, 'in the way'), { recursive: true })
  const budget = start()
  assert.equal(drain(budget), BURST)
  assert.equal(budget.msUntilAllowed(), REFILL_MS)
  assert.equal(logs.length, 1)
  assert.match(logs[0] ?? '', /^cannot keep the number of wakes: /)
})

test('a project of several agents is woken no oftener than the one that has least left', (context) => {
  const { folder, start } = setUp(context)
  const [first, second] = [join(folder, 'wakes_1.json'), join(folder, 'wakes_2.json')]
  const alone = start(first)
  for (let count = 0; count < 7; count++) alone.take()
  assert.equal(drain(start(first, second)), 3)
  assert.equal(drain(start(second)), 7)
})

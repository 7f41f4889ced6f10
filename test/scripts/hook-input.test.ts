import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, type TestContext, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { stopChild } from '../helpers/processes.ts'

const MODULE = new URL('../../scripts/lib/config.cjs', import.meta.url).href
const HOOK = fileURLToPath(new URL('../../scripts/hook.cjs', import.meta.url))
/** Tells what was read, how long that took and how often it was parsed. */
const READER = `
  import { readInput } from ${JSON.stringify(MODULE)}
  const parse = JSON.parse
  let parses = 0
  JSON.parse = (text) => { parses++; return parse(text) }
  const startedAt = performance.now()
  const event = readInput()
  console.log(JSON.stringify({ event, ms: performance.now() - startedAt, parses }))
`

interface Reading {
  event: unknown
  ms: number
  parses: number
}

/** The child has its stdin open until the test ends it. */
function start(context: TestContext, args: string[]) {
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] })
  context.after(() => stopChild(child, 'SIGKILL'))
  child.stdin.on('error', () => {})
  return child
}

async function read(context: TestContext, feed: (stdin: NonNullable<ChildProcess['stdin']>) => void): Promise<Reading> {
  const child = start(context, ['--input-type=module', '-e', READER])
  let stdout = ''
  child.stdout.on('data', (text) => {
    stdout += String(text)
  })
  feed(child.stdin)
  await once(child, 'close')
  return JSON.parse(stdout)
}

describe('the input of a hook', { skip: process.platform === 'win32' }, () => {
  test('is given up when a client keeps stdin open and writes nothing, or only a little at a time', async (context) => {
    const silent = await read(context, () => {})
    assert.equal(silent.event, null)
    assert.ok(silent.ms < 2_000, `${silent.ms}`)
    const dripping = await read(context, (stdin) => {
      const timer = setInterval(() => stdin.write('{'), 200)
      context.after(() => clearInterval(timer))
    })
    assert.equal(dripping.event, null)
    assert.ok(dripping.ms < 2_000, `${dripping.ms}`)
  })

  test('is understood without its end, in parts, and when it comes late; and nothing keeps the process', async (context) => {
    const whole = await read(context, (stdin) => stdin.write('{"a": {}}\n'))
    assert.deepEqual(whole.event, { a: {} })
    const inParts = await read(context, (stdin) => {
      stdin.write('{"a": {}')
      const timer = setTimeout(() => stdin.end(`, "b": "${'}'.repeat(300_000)}"}`), 300)
      context.after(() => clearTimeout(timer))
    })
    assert.deepEqual(inParts.event, { a: {}, b: '}'.repeat(300_000) })
  })

  test('full of braces is parsed a few times, not at every one', async (context) => {
    const { event, parses } = await read(context, (stdin) => {
      let count = 0
      const timer = setInterval(() => {
        if (count++ < 200) stdin.write('}')
        else stdin.end()
      }, 2)
      context.after(() => clearInterval(timer))
    })
    assert.equal(event, null)
    assert.ok(parses <= 10, `${parses}`)
  })

  test('over the limit is not understood', async (context) => {
    const { event } = await read(context, (stdin) => stdin.end(`{"a": "${' '.repeat(33 * 1024 * 1024)}"}`))
    assert.equal(event, null)
  })

  test('that never comes lets the hook end with 0', async (context) => {
    const child = start(context, [HOOK])
    const startedAt = performance.now()
    const [code] = await once(child, 'close')
    assert.equal(code, 0)
    assert.ok(performance.now() - startedAt < 10_000)
  })
})

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync, writeSync } from 'node:fs'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, type TestContext, test } from 'node:test'
import { stopChild } from '../helpers/processes.ts'
import { eventually, Machine, makeToken, ROOT } from './command.ts'

const LONG = 4 * 1024 * 1024
const clientInfo = { name: 'host', version: '1' }
const INITIALIZE = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo }

type Answer = (response: ServerResponse, name: string | undefined) => void

const toResult = (text: string) =>
  JSON.stringify({ jsonrpc: '2.0', id: 1, result: { content: [{ type: 'text', text }] } })

/** A server that answers each call as the test says, and a bridge to it. */
async function setUp(context: TestContext, answer: Answer) {
  const machine = await Machine.create()
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += String(chunk)
    const { method, params } = JSON.parse(body)
    response.setHeader('content-type', 'application/json')
    if (method === 'initialize') response.end(JSON.stringify({ jsonrpc: '2.0', id: 1, result: {} }))
    else answer(response, params?.name)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  context.after(async () => {
    server.closeAllConnections()
    server.close()
    await machine.remove()
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const env = { PATCHCORD_URL: url, PATCHCORD_TOKEN: makeToken('a') }
  return { machine, env }
}

function toLines(...messages: object[]): string {
  return messages.map((message) => `${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`).join('')
}

const callOf = (id: number, name: string) => ({ id, method: 'tools/call', params: { name, arguments: {} } })
const parse = (stdout: string) =>
  stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))

describe('the end of the stdio bridge', () => {
  test('answers every call that the server has not answered with an error', async (context) => {
    const { machine, env } = await setUp(context, (response, name) => {
      if (name === 'quick') response.end(toResult('quick'))
    })
    const stdin = toLines({ id: 1, method: 'initialize', params: INITIALIZE }, callOf(2, 'quick'), callOf(3, 'slow'), {
      id: 4,
      method: 'tools/list',
    })
    const startedAt = Date.now()
    const { code, stdout } = await machine.run(['mcp'], { env, stdin })
    assert.equal(code, 0)
    assert.ok(Date.now() - startedAt < 20_000)
    const answers = parse(stdout).sort((a, b) => a.id - b.id)
    assert.deepEqual(
      answers.map(({ id }) => id),
      [1, 2, 3, 4],
    )
    assert.equal(answers[1].result.content[0].text, 'quick')
    assert.deepEqual([answers[2].result.isError, answers[2].result._meta['patchcord/error'].code], [true, 'cut_off'])
    assert.match(answers[3].error.message, /The host ended the connection before the server had answered/)
  })

  test('comes after the answer to a last line that has no end', async (context) => {
    const { machine, env } = await setUp(context, (response) => response.end(toResult('here')))
    const stdin = toLines({ id: 1, method: 'initialize', params: INITIALIZE }, callOf(2, 'last')).trimEnd()
    const { code, stdout } = await machine.run(['mcp'], { env, stdin })
    assert.deepEqual([code, parse(stdout).map(({ id }) => id)], [0, [1, 2]])
  })

  test('waits for a host that reads a long answer slowly', async (context) => {
    const { machine, env } = await setUp(context, (response) => response.end(toResult('x'.repeat(LONG))))
    const bridge = machine.start(['mcp'], { env })
    const { stdin, stdout } = bridge.child
    stdin?.write(toLines({ id: 1, method: 'initialize', params: INITIALIZE }))
    await eventually(() => bridge.output.stdout.includes('"id":1'), 'initialize is answered')
    stdout?.on('data', () => {
      stdout.pause()
      setTimeout(() => stdout.resume(), 100)
    })
    stdin?.end(toLines(callOf(2, 'long')))
    const { code, stdout: text } = await bridge.ended
    assert.equal(code, 0)
    assert.equal(parse(text)[1]?.result.content[0].text.length, LONG)
  })

  test('comes with that of the host, also where its stdin stays open', {
    skip: process.platform === 'win32',
  }, async (context) => {
    const { machine, env } = await setUp(context, (response) => response.end(toResult('here')))
    const program = join(ROOT, 'dist/plugin/cli/main.js')
    const code = `require('node:child_process').spawn(process.execPath, [${JSON.stringify(program)}, 'mcp'], { stdio: 'inherit' })`
    const times = { PATCHCORD_LISTENER_TIMES: '{"tickMs":100}' }
    // Whoever has it open for both, as the bridge itself, keeps it from ending.
    const fifo = join(machine.root, 'stdin')
    execFileSync('mkfifo', [fifo])
    const stdin = openSync(fifo, 'r+')
    const host = spawn(process.execPath, ['-e', code], {
      cwd: machine.project,
      env: machine.environment({ ...env, ...times }),
      stdio: [stdin, 'pipe', 'ignore'],
    })
    context.after(async () => {
      closeSync(stdin)
      await stopChild(host, 'SIGKILL')
    })
    let stdout = ''
    host.stdout?.setEncoding('utf8').on('data', (text) => {
      stdout += text
    })
    writeSync(stdin, toLines({ id: 1, method: 'initialize', params: INITIALIZE }))
    await eventually(() => stdout.includes('"id":1'), 'initialize is answered')
    host.kill('SIGKILL')
    // The bridge holds the other end of this.
    await once(host.stdout ?? host, 'close', { signal: AbortSignal.timeout(15_000) })
  })
})

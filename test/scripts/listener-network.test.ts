import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import net, { type AddressInfo } from 'node:net'
import { describe, type TestContext, test } from 'node:test'
import { createApi } from '../../scripts/lib/api.mjs'
import { createBackoff, spreadAskedWait } from '../../scripts/lib/backoff.mjs'
import { TIMES } from '../../scripts/lib/config.cjs'
import { type Script, ScriptedServer } from '../helpers/scripted-server.ts'
import { startMany } from './listener-many.ts'
import { eventually, Home, type ListenerProcess, pause, preload, TOKEN } from './listener-process.ts'
import { Wire } from './listener-wire.ts'

const CONNECTED = /^subscribe: connected$/m

async function setUp(context: TestContext, script: Script = {}) {
  const server = await new ScriptedServer(script).listen()
  const home = await Home.create()
  context.after(async () => {
    await home.remove()
    await server.close()
  })
  await home.connect(server.origin)
  return { server, home }
}

async function start(context: TestContext, script: Script = {}, times = {}) {
  const all = await setUp(context, script)
  return { ...all, listener: all.home.start({ times }) }
}

async function startConnected(context: TestContext, script: Script = {}, times = {}) {
  const all = await start(context, script, times)
  await all.listener.logged(CONNECTED)
  return all
}

/** A listener behind a wire; the server tells it the wire's address. */
async function startOnWire(context: TestContext, times = {}) {
  const server = await new ScriptedServer().listen()
  const wire = await Wire.open(server.port)
  const home = await Home.create()
  context.after(async () => {
    await home.remove()
    await wire.close()
    await server.close()
  })
  server.origin = wire.origin
  await home.connect(server.origin)
  const listener = home.start({ times })
  await listener.logged(CONNECTED)
  return { server, wire, listener }
}

describe('a network that', { concurrency: 8 }, () => {
  testSilence()
  testStrangers()
  testTraffic()
})

function testSilence() {
  test('swallows every packet of the connections that are open is noticed by the missing reply to a heartbeat', async (context) => {
    const times = { heartbeatMs: 300, heartbeatReplyMs: 300, httpMs: 600 }
    const { server, wire, listener } = await startOnWire(context, times)
    server.deliver('alice')
    await listener.line('PATCHCORD: 1 new from alice')
    wire.cutSilently()
    server.deliver('missed')
    await listener.logged(/^subscribe: ws error: heartbeat was not answered$/m)
    await listener.line('PATCHCORD: 1 new from missed')
    await listener.logged(CONNECTED, 2)
    server.deliver('carol')
    await listener.line('PATCHCORD: 1 new from carol')
    assert.equal(listener.lines.length, 3)
  })

  test('swallows everything for a while is waited for, handshakes and HTTP alike, without a heap of connections', async (context) => {
    const times = { heartbeatMs: 200, heartbeatReplyMs: 200, httpMs: 300, handshakeMs: 300 }
    const { server, wire, listener } = await startOnWire(context, times)
    wire.cutSilently({ isForAll: true })
    server.deliver('missed', { isWoken: false })
    await listener.logged(/^subscribe: ticket refresh failed: no answer within 300ms$/m, 3)
    await listener.logged(/^subscribe: inbox check failed: no answer within 300ms$/m, 2)
    assert.ok(wire.connectionCount <= 8, `${wire.connectionCount} connections`)
    wire.mend()
    await listener.logged(CONNECTED, 2)
    await listener.line('PATCHCORD: 1 new from missed')
  })

  test('accepts connections and never says a word holds nothing up', async (context) => {
    const sockets: net.Socket[] = []
    const mute = net.createServer((socket) => void sockets.push(socket.on('error', () => {})))
    await new Promise<void>((resolve) => mute.listen(0, '127.0.0.1', resolve))
    const home = await Home.create()
    context.after(async () => {
      await home.remove()
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => mute.close(resolve))
    })
    await home.connect(`http://127.0.0.1:${(mute.address() as AddressInfo).port}`)
    const listener = home.start({ times: { httpMs: 200 } })
    await listener.logged(/^subscribe: ticket refresh failed: no answer within 200ms$/m, 3)
    assert.equal(listener.stdout, '')
    assert.equal(await listener.stop(), 0)
  })

  test('answers byte by byte for ever meets a deadline', async (context) => {
    const drip = net.createServer((socket) => {
      socket.on('error', () => {})
      socket.write('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n')
      const timer = setInterval(() => socket.write(' '), 20)
      socket.on('close', () => clearInterval(timer))
    })
    await new Promise<void>((resolve) => drip.listen(0, '127.0.0.1', resolve))
    context.after(() => new Promise((resolve) => drip.close(resolve)))
    const base = `http://127.0.0.1:${(drip.address() as AddressInfo).port}`
    const api = createApi({ base, token: TOKEN, timeoutMs: 300 })
    await assert.rejects(api.getTicket(), /no answer within 300ms/)
    await assert.rejects(api.listPending(), /no answer within 300ms/)
    api.close()
  })
}

function testStrangers() {
  test('closes each connection cleanly right after the handshake is met with growing pauses, and nothing is missed', async (context) => {
    const { server, listener } = await start(context, { join: () => 'silent' })
    const closing = setInterval(() => {
      for (const { socket } of server.connections) if (socket.readyState === socket.OPEN) socket.close(1000)
    }, 5)
    context.after(() => clearInterval(closing))
    await listener.logged(/^subscribe: ws closed \(code=1000\)$/m, 4)
    assert.equal(server.count('PUT', '/api/lease'), 0)
    server.deliver('alice', { isWoken: false })
    await listener.line('PATCHCORD: 1 new from alice')
    assert.doesNotMatch(listener.stderr, CONNECTED)
    clearInterval(closing)
    server.script.join = () => 'ok'
    await listener.logged(CONNECTED)
  })

  test('brings a message of 3 MB loses none, and one over 16 MiB costs one connection', async (context) => {
    const { server, listener } = await startConnected(context)
    server.connection.wake({ id: randomUUID(), from: 'alice', to: 'bob', padding: 'x'.repeat(3_000_000) })
    await listener.line('PATCHCORD: 1 new from alice')
    server.deliver('missed', { isWoken: false })
    server.connection.send('broadcast', { padding: 'x'.repeat(17 * 1024 * 1024) })
    await listener.logged(/^subscribe: ws closed \(code=1009\)$/m)
    await listener.line('PATCHCORD: 1 new from missed')
    await listener.logged(CONNECTED, 2)
  })

  test('answers a handshake with 2,000 headers and a page, as a strange proxy does, is tried again', async (context) => {
    const names = Array.from({ length: 2_000 }, (_, index) => [`x-${index}`, '1'])
    const page = { status: 200, headers: Object.fromEntries(names), body: '<html>'.repeat(10_000) }
    const { listener } = await start(context, { upgrade: (count) => (count <= 2 ? page : 'accept') })
    await listener.logged(/^subscribe: ws error: /m, 2)
    await listener.logged(CONNECTED)
  })
}

function testTraffic() {
  test('is busy all the time does not move a heartbeat', async (context) => {
    // A timer of the same process is the clock: what a busy machine does to one it does to the other.
    const clock = preload(`setInterval(() => process.stderr.write('tick\\n'), 400)`)
    const { server, home } = await setUp(context)
    const listener = home.start({ times: { heartbeatMs: 400, lineGapMs: 0 }, env: clock })
    await listener.logged(CONNECTED)
    const { connection } = server
    const count = () => [
      connection.frames.filter(({ event }) => event === 'heartbeat').length,
      listener.stderr.split('tick\n').length,
    ]
    const traffic = setInterval(() => connection.wake({ id: randomUUID(), from: 'alice', to: 'bob' }), 30)
    context.after(() => clearInterval(traffic))
    const [beatsBefore = 0, ticksBefore = 0] = count()
    await eventually(() => (count()[1] ?? 0) - ticksBefore >= 10)
    const [beats = 0, ticks = 0] = count()
    const [beaten, ticked] = [beats - beatsBefore, ticks - ticksBefore]
    assert.ok(Math.abs(beaten - ticked) <= 2, `${beaten} heartbeats in ${ticked} of their times`)
    assert.equal(server.connections.length, 1)
    assert.ok(listener.lines.length > 0)
  })
}

describe('many', { concurrency: 2 }, () => {
  testReconnects()
  testStorms()
})

function testReconnects() {
  test('1,000 reconnects leave memory, handles and warnings as they were', async (context) => {
    const { server, home } = await setUp(context)
    // Each way of losing a connection in its turn.
    const losses = [
      () => server.connection.socket.close(1012),
      () => server.connection.socket.terminate(),
      () => server.connection.expire(),
      () => server.connection.send('phx_error', {}, server.connection.joinRef),
    ]
    const lose = (count: number) => setTimeout(() => losses[count % losses.length]?.(), 2)
    let joinCount = 0
    server.script.join = (count) => {
      joinCount = count
      if (!SAMPLED.includes(count)) lose(count)
      return 'ok'
    }
    const times = { backoffMs: [0], compareGapMs: 0 }
    const listener = home.start({ times, env: { NODE_OPTIONS: `--expose-gc --import=${PROBE}` } })
    const usages: Usage[] = []
    for (const sampled of SAMPLED) {
      await eventually(
        () => joinCount === sampled,
        () => listener.stderr.slice(-1_000),
      )
      usages.push(await measure(listener, usages.length + 1))
      server.requests.splice(0)
      lose(sampled)
    }
    const text = usages
      .map(({ heapBytes, handles }) => `${Math.round(heapBytes / 1024)} kB, ${handles} handles`)
      .join('; ')
    context.diagnostic(`heap: ${text}`)
    const [early, middle, late] = usages as [Usage, Usage, Usage]
    assert.ok(late.handles <= early.handles + 3, text)
    // A kept connection, session or timer would be 2 MB and more; compiled code and its statistics still grow a little.
    assert.ok(late.heapBytes - middle.heapBytes < 600_000, text)
    assert.doesNotMatch(listener.stderr, /Warning/)
    await eventually(() => joinCount > 1_001)
  })
}

function testStorms() {
  test('200 listeners that lose their server at once do not come back at once, with no call', async (context) => {
    const server = await new ScriptedServer().listen()
    context.after(() => server.close())
    const many = await startMany(server, 200, { ...TIMES, compareGapMs: 50 })
    context.after(() => many.stop())
    await eventually(() => server.connections.filter(({ joinRef }) => joinRef !== null).length === 200)
    await pause(500)
    const lostAt = performance.now()
    for (const connection of server.connections) {
      connection.send('system', { message: 'Server requested disconnect', status: 'ok', extension: 'system' })
      connection.socket.close(1012)
    }
    const first = { ticket: new Map<string, number>(), inbox: new Map<string, number>() }
    server.onRequest = ({ path, token }) => {
      const seen = path.includes('ticket') ? first.ticket : path.includes('inbox') ? first.inbox : null
      if (seen !== null && !seen.has(token)) seen.set(token, performance.now() - lostAt)
    }
    await eventually(() => first.ticket.size === 200 && first.inbox.size === 200)
    for (const arrivals of [first.ticket, first.inbox]) assertSpread([...arrivals.values()], 1_000, 0.5)
  })

  test('200 back-off draws of each step differ and fill it, also behind a Retry-After', () => {
    for (const [index, stepMs] of TIMES.backoffMs.entries()) {
      const draws = Array.from({ length: 200 }, () => {
        const backoff = createBackoff(TIMES.backoffMs)
        for (let skipped = 0; skipped < index; skipped++) backoff.next()
        return backoff.next()
      })
      assertSpread(draws, stepMs, 0.25)
      assert.ok(new Set(draws).size > 100)
    }
    const asked = Array.from({ length: 200 }, () => spreadAskedWait(10_000))
    assertSpread(asked, 2_000, 0.25)
    assert.ok(Math.min(...asked) >= 10_000 && Math.max(...asked) <= 12_000)
    // No server may silence anybody for a day.
    assert.ok(spreadAskedWait(86_400_000) <= 360_000)
    assert.equal(spreadAskedWait(0), 0)
  })
}

/** No stretch of a tenth of a step holds more than this share of the times. */
function assertSpread(times: number[], stepMs: number, shareMax: number): void {
  const first = Math.min(...times)
  const counts: number[] = []
  for (const ms of times) {
    const tenth = Math.floor(((ms - first) / stepMs) * 10)
    counts[tenth] = (counts[tenth] ?? 0) + 1
  }
  assert.ok(Math.max(...counts.filter(Boolean)) <= shareMax * times.length, `per tenth of ${stepMs} ms: ${counts}`)
}

/** Joins at which the memory is looked at; the first 200 warm everything up. */
const SAMPLED = [200, 600, 1_001]
/** Code for the listener's process: at SIGUSR2 it collects garbage and tells what is left. */
const PROBE = `data:text/javascript,${encodeURIComponent(`
  process.on('SIGUSR2', () => {
    gc(); gc()
    const { heapUsed, external } = process.memoryUsage()
    const handles = process.getActiveResourcesInfo().length
    process.stderr.write('probe ' + (heapUsed + external) + ' ' + handles + '\\n')
  })`)}`

interface Usage {
  heapBytes: number
  handles: number
}

async function measure(listener: ListenerProcess, times: number): Promise<Usage> {
  // What the last reconnect has begun is over then.
  await pause(300)
  listener.child.kill('SIGUSR2')
  await listener.logged(/^probe \d+ \d+$/m, times)
  const [, heapBytes, handles] =
    /^probe (\d+) (\d+)$/m.exec(listener.stderr.slice(listener.stderr.lastIndexOf('probe '))) ?? []
  return { heapBytes: Number(heapBytes), handles: Number(handles) }
}

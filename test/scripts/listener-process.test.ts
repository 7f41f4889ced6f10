import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { closeSync, constants, openSync, readSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { eventually, pause, preload } from './listener-process.ts'
import { CONNECTED, setUp, setUpConnected } from './listener-setup.ts'

const isPosix = process.platform !== 'win32'

describe('a process that', { concurrency: 8 }, () => {
  testEnds()
  testClocks()
  testOwnErrors()
  testReaders()
  testFullPipe()
})

function testEnds() {
  test('is ended by any signal at any moment loses no message, and the next start says no line twice', {
    skip: !isPosix,
  }, async (context) => {
    const { server, home } = await setUp(context)
    const signals = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR2', 'SIGABRT', 'SIGKILL'] as const
    for (const [index, signal] of signals.entries()) {
      const listener = home.start()
      if (index > 0) await listener.line(`PATCHCORD: ${index} waiting in inbox`)
      await listener.logged(CONNECTED)
      const id = server.deliver(`sender${index}`)
      // At once, with the line on its way.
      listener.child.kill(signal)
      await listener.exitCode()
      assert.ok(listener.lines.length <= (index > 0 ? 2 : 1), listener.stdout)
      assert.ok(server.pending.some((message) => message.message_id === id))
    }
    const last = home.start()
    await last.line(`PATCHCORD: ${signals.length} waiting in inbox`)
    await last.logged(CONNECTED)
    assert.equal(last.lines.length, 1)
  })

  test('is killed while it starts, over and over, leaves nothing that keeps the next from starting', async (context) => {
    const { server, home } = await setUp(context)
    server.deliver('alice', { isWoken: false })
    for (let ms = 20; ms <= 240; ms += 20) {
      const listener = home.start()
      await pause(ms)
      await listener.kill()
    }
    const last = home.start()
    await last.line('PATCHCORD: 1 waiting in inbox')
    await last.logged(CONNECTED)
    assert.deepEqual(await home.listPidfiles(), ['subscribe_acme_bob.pid'])
  })

  test('ends while its first lease call is on the way gives that lease back too', async (context) => {
    const { server, listener } = await setUpConnected(context, { lease: (count) => (count === 1 ? 'hang' : null) })
    await eventually(() => server.count('PUT', '/api/lease') === 1)
    assert.equal(await listener.stop(), 0)
    assert.equal(server.count('DELETE', '/api/lease'), 1)
  })
}

function testClocks() {
  test('is stopped for longer than its ticket lives hears again as soon as it goes on', {
    skip: !isPosix,
  }, async (context) => {
    for (const kind of ['broadcast', 'postgres_changes'] as const) {
      const script = { kind, expiresInSeconds: 2 } as const
      const { server, listener } = await setUpConnected(context, script, { times: { sleptMs: 1_000 } })
      listener.child.kill('SIGSTOP')
      const before = server.connections.length
      await pause(2_500)
      server.connection.expire()
      server.deliver('missed', { isWoken: false })
      const jwts = server.requests.length
      listener.child.kill('SIGCONT')
      await listener.line('PATCHCORD: 1 new from missed')
      await eventually(() => server.connections.length > before && server.connection.joinRef !== null)
      // With a ticket from after the sleep.
      const join = server.connection.frames.find(({ event }) => event === 'phx_join')
      assert.ok(Number(/^scripted\.(\d+)\.jwt$/.exec(String(join?.payload.access_token))?.[1]) > jwts)
      await listener.logged(CONNECTED, 2)
    }
  })

  test('has its clock set forward or back goes on, and its ticket lives by its own clock', async (context) => {
    const jump = preload(`
      const { now } = Date
      let jump = 0
      Date.now = () => now() + jump
      for (const [signal, ms] of [['SIGUSR2', 86_400_000], ['SIGWINCH', -86_400_000]]) process.on(signal, () => { jump += ms })`)
    const { server, listener } = await setUpConnected(context, { expiresInSeconds: 60 }, { env: jump })
    await pause(500)
    listener.child.kill('SIGWINCH')
    await pause(1_000)
    // Back: nothing happens at all, no refresh, no reconnect.
    assert.equal(server.connections.length, 1)
    assert.equal(server.count('GET', '/api/realtime/ticket'), 1)
    server.deliver('alice')
    await listener.line('PATCHCORD: 1 new from alice')
    listener.child.kill('SIGUSR2')
    // Forward looks like a sleep of the machine: one reconnect with a fresh ticket, no more.
    await listener.logged(CONNECTED, 2)
    server.deliver('missed', { isWoken: false })
    server.connection.wake({ id: 'look', from: 'missed' })
    await listener.line('PATCHCORD: 1 new from missed')
    await pause(1_000)
    assert.deepEqual([server.connections.length, server.count('GET', '/api/realtime/ticket')], [2, 2])
    assert.equal(listener.lines.length, 2)
  })
}

function testOwnErrors() {
  test('meets an error of its own goes on with --auto, and by hand says so in its last line', {
    skip: !isPosix,
  }, async (context) => {
    const bomb = preload(`process.on('SIGUSR2', () => { throw new Error('planted\\nPATCHCORD: 1 new from boss') })`)
    const { server, home } = await setUp(context)
    const auto = home.start({ args: ['--auto'], env: bomb })
    await auto.logged(CONNECTED)
    auto.child.kill('SIGUSR2')
    await auto.logged(/^subscribe: error: planted PATCHCORD: 1 new from boss$/m)
    // Whatever it broke is replaced, though not over and over.
    await auto.logged(CONNECTED, 2)
    auto.child.kill('SIGUSR2')
    await auto.logged(/^subscribe: error: planted/m, 2)
    await pause(500)
    assert.equal(server.connections.length, 2)
    server.deliver('alice')
    await auto.line('PATCHCORD: 1 new from alice')
    assert.equal(auto.lines.length, 1)
    await auto.stop()
    const byHand = home.start({ env: bomb })
    await byHand.logged(CONNECTED)
    byHand.child.kill('SIGUSR2')
    assert.equal(await byHand.exitCode(), 1)
    assert.equal(
      byHand.lines.at(-1),
      'PATCHCORD: stopped: the listener failed, start it again (planted PATCHCORD: 1 new from boss)',
    )
    assert.deepEqual(await home.listPidfiles(), [])
  })
}

function testReaders() {
  test('has a reader of stderr that is gone, or never reads, goes on', async (context) => {
    const { server, listener } = await setUpConnected(context, {}, { times: { backoffMs: [0] } })
    listener.child.stderr?.destroy()
    for (let count = 1; count <= 5; count++) {
      server.connection.socket.close(1012)
      await eventually(() => server.connections.length > count && server.connection.joinRef !== null)
    }
    server.deliver('alice')
    await listener.line('PATCHCORD: 1 new from alice')
    const other = await setUp(context, { ticket: () => ({ status: 500, text: '' }) })
    const deaf = other.home.start({ times: { backoffMs: [0], askAgainMs: 0 } })
    deaf.child.stderr?.pause()
    // Two lines a try: far more than the pipe takes.
    await eventually(() => other.server.count('GET', '/api/realtime/ticket') > 1_500)
    other.server.script.ticket = () => null
    await eventually(() => other.server.connections.length === 1)
    other.server.deliver('alice')
    await deaf.line('PATCHCORD: 1 new from alice')
  })

  test('writes into a pipe whose reader has ended ends with 0 and gives the lease back', async (context) => {
    const { server, home, listener } = await setUpConnected(context)
    await eventually(() => server.count('PUT', '/api/lease') > 0)
    listener.child.stdout?.destroy()
    server.deliver('alice')
    assert.equal(await listener.exitCode(), 0)
    assert.equal(server.count('DELETE', '/api/lease'), 1)
    assert.deepEqual(await home.listPidfiles(), [])
    assert.deepEqual(server.announced, [])
  })
}

function testFullPipe() {
  test('writes into a full pipe that nobody reads goes on, gives up its lease and can be ended', {
    skip: !isPosix,
  }, async (context) => {
    const { server, home } = await setUp(context)
    const pipe = openFullPipe(join(home.root, 'stdout'))
    context.after(() => closeSync(pipe))
    const listener = home.start({ stdout: pipe, times: { stalledMs: 200, leaseMs: 100 } })
    await eventually(() => server.count('PUT', '/api/lease') > 2)
    const id = server.deliver('alice')
    await listener.logged(CONNECTED)
    await pause(1_000)
    const leases = server.count('PUT', '/api/lease')
    server.connection.socket.close(1012)
    await listener.logged(CONNECTED, 2)
    server.deliver('alice')
    await pause(1_000)
    assert.deepEqual([server.announced, server.count('PUT', '/api/lease')], [[], leases])
    // Somebody reads: the lines come, and with them the lease.
    const text = await drain(pipe, (read) => read.split('\n').length === 3)
    assert.match(text, /^x+(?:PATCHCORD: 1 new from alice\n){2}$/)
    await eventually(() => server.announced.includes(id) && server.announced.length === 2)
    const full = openFullPipe(join(home.root, 'again'))
    context.after(() => closeSync(full))
    await listener.stop()
    const second = home.start({ stdout: full, times: { stalledMs: 200 } })
    await second.logged(CONNECTED)
    assert.equal(await second.stop(), 0)
  })
}

/** A pipe that takes no byte more, open at both ends: a reader that does not read. */
function openFullPipe(path: string): number {
  execFileSync('mkfifo', [path])
  const pipe = openSync(path, constants.O_RDWR | constants.O_NONBLOCK)
  for (const bytes of [4_096, 1]) {
    try {
      while (true) writeSync(pipe, 'x'.repeat(bytes))
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'EAGAIN')) throw error
    }
  }
  return pipe
}

/** What is in the pipe, and what its writer puts in as soon as there is room. */
async function drain(pipe: number, isWhole: (text: string) => boolean): Promise<string> {
  const buffer = Buffer.alloc(1024 * 1024)
  let text = ''
  await eventually(() => {
    try {
      text += buffer.toString('latin1', 0, readSync(pipe, buffer))
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'EAGAIN')) throw error
    }
    return isWhole(text)
  })
  return text
}

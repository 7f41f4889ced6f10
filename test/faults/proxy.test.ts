import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { afterEach, beforeEach, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Network } from '../../scripts/dev/faults/proxy.ts'
import { findFreePort } from '../helpers/loss.ts'

/** Long enough for what should not come. */
const QUIET_MS = 150

describe('the network of a faults run', () => {
  let server: Server
  let network: Network
  let port: number
  let peers: Socket[]

  beforeEach(async () => {
    peers = []
    server = createServer((socket) => {
      peers.push(socket)
      socket.on('error', () => {})
      socket.on('data', (bytes) => socket.write(`you said ${bytes}`))
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const ports = [await findFreePort(), (server.address() as AddressInfo).port]
    const places = ports.map((each) => ({ host: '127.0.0.1', port: each }))
    network = new Network(
      () => [...places],
      () => 0.5,
    )
    port = await network.open()
  })
  afterEach(async () => {
    await network.close()
    for (const peer of peers) peer.destroy()
    server.close()
  })

  async function open() {
    const socket = connect(port, '127.0.0.1')
    let text = ''
    socket.on('error', () => {})
    socket.on('data', (bytes) => {
      text += bytes
    })
    // Whether it ends or is reset.
    const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()))
    await once(socket, 'connect')
    return { socket, closed, text: () => text, until: (length: number) => reach(() => text.length >= length) }
  }

  test('reaches a server that takes connections past one that does not, and passes an end on', async () => {
    const client = await open()
    client.socket.write('hello')
    await client.until(14)
    assert.equal(client.text(), 'you said hello')
    client.socket.end()
    await client.closed
    await reach(() => network.openSockets === 0)
  })

  test('refuses a connection when no server takes it', async () => {
    server.close()
    const { closed } = await open()
    await closed
    assert.equal(peers.length, 0)
  })

  test('keeps silent on what is open, without an end, until it is healed', async () => {
    const client = await open()
    client.socket.write('one')
    await client.until(12)
    assert.equal(network.silence(), 1)
    client.socket.write('two')
    await sleep(QUIET_MS)
    assert.equal(client.text(), 'you said one')
    peers[0]?.destroy()
    await sleep(QUIET_MS)
    assert.equal(client.socket.destroyed, false)
    const fresh = await open()
    fresh.socket.write('three')
    await fresh.until(14)
    network.heal()
    await client.closed
  })

  test('delays pieces and keeps their order', async () => {
    const client = await open()
    const delays = [200, 0, 100, 0]
    network.delay(() => delays.shift() ?? 0)
    const startedAt = performance.now()
    client.socket.write('one')
    await sleep(20)
    client.socket.write('two')
    await reach(() => /one.*two/.test(client.text()))
    assert.ok(performance.now() - startedAt >= 200)
  })

  test('cuts so many answers off, and no more', async () => {
    const spoiled = network.spoil('cut', 1, 5_000)
    const client = await open()
    client.socket.write('hello')
    await client.closed
    assert.ok('you said hello'.startsWith(client.text()) && client.text().length < 14)
    assert.equal(await spoiled, 1)
    const next = await open()
    next.socket.write('again')
    await next.until(14)
  })

  test('loses an answer that the server has given, with an end or in silence', async () => {
    for (const fault of ['lose', 'lose in silence'] as const) {
      const spoiled = network.spoil(fault, 1, 5_000)
      const client = await open()
      client.socket.write('hello')
      assert.equal(await spoiled, 1)
      await sleep(QUIET_MS)
      assert.equal(client.text(), '')
      assert.equal(client.socket.destroyed, fault === 'lose')
    }
  })

  test('counts nothing where no answer came in time', async () => {
    assert.equal(await network.spoil('lose', 2, 50), 0)
  })
})

async function reach(isThere: () => boolean): Promise<void> {
  const deadline = performance.now() + 10_000
  while (!isThere()) {
    assert.ok(performance.now() < deadline, 'it did not come to that')
    await sleep(5)
  }
}

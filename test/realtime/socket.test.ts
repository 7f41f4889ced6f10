import assert from 'node:assert/strict'
import { once } from 'node:events'
import { REALTIME_PATH } from '../../server/realtime/endpoint.ts'
import {
  ALICE,
  BOB,
  endpointTest,
  handshakeText,
  join,
  joinFrame,
  openTcp,
  readAll,
  topicOf,
  wakeFor,
  within,
} from './endpoint-helper.ts'

const HEARTBEAT = { topic: 'phoenix', event: 'heartbeat', payload: {}, ref: '2' }

async function until(what: string, isTrue: () => boolean): Promise<void> {
  const deadline = performance.now() + 10_000
  while (!isTrue()) {
    assert.ok(performance.now() < deadline, `${what} did not come true`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

/** A client frame that is masked with zeros: the mask bit is set and the bytes stay readable. */
function clientFrame(opcode: number, payload: Buffer, isFinal = true): Buffer {
  const first = (isFinal ? 0x80 : 0) | opcode
  const { length } = payload
  const head = length < 126 ? [first, 0x80 | length] : [first, 0xfe, length >> 8, length & 0xff]
  return Buffer.concat([Buffer.from([...head, 0, 0, 0, 0]), payload])
}

endpointTest('revoking a token ends its channels and sockets within a second, and only its own', async (endpoint) => {
  const alice = await endpoint.open(await endpoint.apikey({ token: ALICE.token }))
  const idle = await endpoint.open(await endpoint.apikey({ token: ALICE.token }))
  const bob = await endpoint.open()
  const ticket = await endpoint.ticket(ALICE)
  await join(alice, ALICE, ticket)
  await join(bob, BOB, await endpoint.ticket(BOB))
  const start = performance.now()
  endpoint.hub.closeTokens([ALICE.token])
  assert.match(await alice.next(), /"event":"system".*"message":"Token has been revoked","status":"error"/)
  assert.equal(await alice.next(), `{"ref":"1","event":"phx_close","topic":"${topicOf(ALICE)}","payload":{}}`)
  assert.equal((await alice.closed()).code, 1000)
  assert.equal((await idle.closed()).code, 1000)
  assert.ok(performance.now() - start < 1000)
  endpoint.hub.deliver(wakeFor(ALICE))
  endpoint.hub.deliver(wakeFor(BOB))
  assert.equal(JSON.parse(await bob.next()).event, 'broadcast')
  assert.deepEqual(alice.frames, [])

  bob.send(joinFrame(ALICE, ticket, { ref: '9' }))
  assert.match(await bob.next(), /"ref":"9".*"reason":"InvalidJWTToken: Token has been revoked"/)
  const again = openTcp(endpoint.port)
  again.write(handshakeText(`${REALTIME_PATH}?apikey=${ticket}`))
  assert.match((await readAll(again)).toString(), /^HTTP\/1\.1 401 .*{"error":"Token has been revoked"}$/s)
  bob.close()
})

endpointTest('a revoked client that does not answer the close frame is cut off within a second', async (endpoint) => {
  const socket = openTcp(endpoint.port)
  socket.write(handshakeText(`${REALTIME_PATH}?apikey=${await endpoint.apikey({ token: ALICE.token })}`))
  await within('answer', once(socket, 'data'))
  const start = performance.now()
  endpoint.hub.closeTokens([ALICE.token])
  await readAll(socket)
  assert.ok(performance.now() - start < 1000)
  await until('the hub forgot it', () => endpoint.hub.connectionCount === 0)
  assert.deepEqual([...endpoint.hub.tokenIds()], [])
})

endpointTest(
  'a token has no more joined sockets than its limit',
  async (endpoint) => {
    const first = await endpoint.open()
    const second = await endpoint.open()
    const ticket = await endpoint.ticket(ALICE)
    await join(first, ALICE, ticket)
    assert.match(await join(second, ALICE, ticket), /"reason":"ConnectionRateLimitReached: Too many connected users"/)
    first.socket.close()
    await first.closed()
    await until('the place is free', () => [...endpoint.hub.tokenIds()].length === 0)
    assert.match(await join(second, ALICE, ticket), /"status":"ok"/)
    second.close()
  },
  { connectionsPerTokenMax: 1 },
)

endpointTest(
  'the joins of a token are counted over all of its sockets, and then it is refused at the door',
  async (endpoint) => {
    const key = await endpoint.apikey({ token: ALICE.token })
    const clients = await Promise.all(Array.from({ length: 6 }, () => endpoint.open(key)))
    let answered = ''
    for (const client of clients) {
      for (let index = 0; index < 20; index++) client.send(joinFrame(ALICE, 'abc.def', { ref: `${index}` }))
      for (let index = 0; index < 20 && !answered.includes('Too many joins'); index++) answered = await client.next()
    }
    for (const client of clients) client.close()
    assert.match(answered, /"reason":"ClientJoinRateLimitReached: Too many joins per second"/)
    const again = openTcp(endpoint.port)
    again.write(handshakeText(`${REALTIME_PATH}?apikey=${key}`))
    assert.match((await readAll(again)).toString(), /^HTTP\/1\.1 429 .*{"error":"Too many joins per second"}$/s)
    const other = await endpoint.open(await endpoint.apikey({ token: BOB.token }))
    assert.match(await join(other, BOB, await endpoint.ticket(BOB)), /"status":"ok"/)
    other.close()
  },
)

endpointTest(
  'a socket that sends nothing is closed with 1000, one with heartbeats is not',
  async (endpoint) => {
    const silent = await endpoint.open()
    const lively = await endpoint.open()
    const beat = setInterval(() => lively.send(HEARTBEAT), 50)
    assert.deepEqual(await silent.closed(), { code: 1000, reason: '' })
    assert.equal(lively.socket.readyState, lively.socket.OPEN)
    clearInterval(beat)
    lively.close()
  },
  { times: { idleMs: 400 } },
)

endpointTest(
  'a socket that never joins is cut off in the end',
  async (endpoint) => {
    const stranger = await endpoint.open()
    const listener = await endpoint.open()
    await join(listener, ALICE, await endpoint.ticket(ALICE))
    assert.equal((await stranger.closed()).code, 1006)
    assert.equal(listener.socket.readyState, listener.socket.OPEN)
    listener.close()
  },
  { times: { noChannelMs: 300 } },
)

endpointTest('at shutdown everybody gets 1012 and nobody is left', async (endpoint) => {
  const clients = await Promise.all(Array.from({ length: 20 }, () => endpoint.open()))
  const mute = openTcp(endpoint.port)
  mute.write(handshakeText(`${REALTIME_PATH}?apikey=${await endpoint.apikey()}`))
  await within('answer', once(mute, 'data'))
  const codes = Promise.all(clients.map(async (client) => (await client.closed()).code))
  const bytes = readAll(mute)
  await endpoint.stop()
  assert.deepEqual(new Set(await codes), new Set([1012]))
  assert.deepEqual([...(await bytes)], [0x88, 0x02, 0x03, 0xf4])
  assert.equal(endpoint.hub.connectionCount, 0)
})

endpointTest(
  'a reader that never reads is dropped at the bound',
  async (endpoint) => {
    const client = await endpoint.open()
    const other = await endpoint.open()
    await join(client, ALICE, await endpoint.ticket(ALICE))
    client.socket.pause()
    const wake = { ...wakeFor(ALICE), thread: 'x'.repeat(50_000) }
    for (let sent = 0; endpoint.hub.connectionCount === 2; sent++) {
      assert.ok(sent < 2_000, 'the slow reader was never dropped')
      endpoint.hub.deliver(wake)
      await new Promise((resolve) => setImmediate(resolve))
    }
    assert.deepEqual([...endpoint.hub.agentIds()], [])
    other.send(HEARTBEAT)
    assert.match(await other.next(), /"status":"ok"/)
    client.close()
    other.close()
  },
  { times: { bufferedBytesMax: 16 * 1024 } },
)

endpointTest('an unmasked frame is answered with 1002', async (endpoint) => {
  const socket = openTcp(endpoint.port)
  socket.write(handshakeText(`${REALTIME_PATH}?apikey=${await endpoint.apikey()}`))
  await within('answer', once(socket, 'data'))
  socket.write(Buffer.from([0x81, 0x02, 0x7b, 0x7d]))
  assert.deepEqual([...(await readAll(socket))].slice(0, 4), [0x88, 0x02, 0x03, 0xea])
})

endpointTest(
  'a join in three fragments with a ping between them, all in one packet with the handshake, works',
  async (endpoint) => {
    const socket = openTcp(endpoint.port)
    const text = Buffer.from(JSON.stringify(joinFrame(ALICE, await endpoint.ticket(ALICE), { ref: '9' })))
    const request = handshakeText(`${REALTIME_PATH}?apikey=${await endpoint.apikey()}`)
    socket.write(
      Buffer.concat([
        Buffer.from(request),
        clientFrame(1, text.subarray(0, 10), false),
        clientFrame(9, Buffer.from('pp')),
        clientFrame(0, text.subarray(10, 20), false),
        clientFrame(0, text.subarray(20)),
      ]),
    )
    let received = Buffer.alloc(0)
    socket.on('data', (chunk) => {
      received = Buffer.concat([received, chunk])
    })
    await until('the reply came', () => received.includes('"ref":"9","event":"phx_reply"'))
    socket.destroy()
  },
)

endpointTest('a frame beyond the limit ends the connection without a close frame, as recorded', async (endpoint) => {
  const client = await endpoint.open()
  client.send('x'.repeat(100_000))
  assert.equal((await client.closed()).code, 1006)
})

endpointTest(
  'a hundred sockets that come and go leave nothing behind',
  async (endpoint) => {
    const ticket = await endpoint.ticket(ALICE)
    for (let round = 0; round < 5; round++) {
      const clients = await Promise.all(Array.from({ length: 20 }, () => endpoint.open(ticket)))
      for (const client of clients) client.send(joinFrame(ALICE, ticket))
      for (const [index, client] of clients.entries()) {
        if (index % 2 === 0) await client.next()
        client.close()
      }
    }
    await until('all are gone', () => endpoint.hub.connectionCount === 0)
    await until('none is joined', () => [...endpoint.hub.agentIds()].length === 0)
    assert.deepEqual([...endpoint.hub.tokenIds()], [])
  },
  { connectionsPerTokenMax: 1_000 },
)

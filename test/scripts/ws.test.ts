import assert from 'node:assert/strict'
import { once } from 'node:events'
import type net from 'node:net'
import { test } from 'node:test'
import { WebSocketServer } from 'ws'
import { WebSocketClient } from '../../scripts/lib/ws.mjs'
import { eventually, pause } from './listener-process.ts'
import { acceptHandshake, listReplies, RawServer, writeBytewise } from './ws-raw-server.ts'

type Client = InstanceType<typeof WebSocketClient>
interface Seen {
  client: Client
  events: string[]
  end: { code: number; reason: string; error: string | null; status: number | null } | null
}

async function withRawServer(
  answer: (socket: net.Socket, request: string) => void | Promise<void>,
  use: (url: URL, received: () => Buffer) => Promise<void>,
): Promise<void> {
  const server = await RawServer.listen(({ socket, request }) => answer(socket, request))
  try {
    await use(server.url, () => server.connections[0]?.received ?? Buffer.alloc(0))
  } finally {
    await server.close()
  }
}

function connect(url: URL, times = {}): Seen {
  const events: string[] = []
  const seen: Seen = { client: null as unknown as Client, events, end: null }
  seen.client = new WebSocketClient(
    url,
    {
      onOpen: () => events.push('open'),
      onText: (text) => events.push(`text ${text.length > 40 ? text.length : text}`),
      onBinary: (data) => events.push(`binary ${data.length}`),
      onClose: (end) => {
        events.push('close')
        seen.end = end
      },
    },
    { handshakeMs: 1_500, closeMs: 300, ...times },
  )
  return seen
}

const HELLO = Buffer.from('810548656c6c6f', 'hex')

test('a violation is closed with its code on the wire', async () => {
  for (const [hex, code] of [
    ['8185010203040000000000', 1002],
    ['8101ff', 1007],
    ['827f0000000001000001', 1009],
  ] as const) {
    await withRawServer(
      (socket, request) =>
        void socket.write(Buffer.concat([Buffer.from(acceptHandshake(request)), Buffer.from(hex, 'hex')])),
      async (url, received) => {
        const seen = connect(url)
        await eventually(() => seen.end !== null)
        assert.equal(seen.end?.code, code)
        assert.equal(received()[0], 0x88)
        assert.equal(listReplies(received())[0], `close ${code}`)
      },
    )
  }
})

test('a close that is split across reads is echoed with its code', async () => {
  const answer = async (socket: net.Socket, request: string) => {
    socket.write(acceptHandshake(request))
    await writeBytewise(socket, Buffer.from('880803f4726573746172', 'hex'))
  }
  await withRawServer(answer, async (url, received) => {
    const seen = connect(url)
    await eventually(() => seen.end !== null)
    assert.deepEqual(seen.end, { code: 1012, reason: 'restar', error: null, status: null })
    assert.equal(listReplies(received())[0], 'close 1012')
  })
})

test('a connection that ends without a close frame is 1006', async () => {
  await withRawServer(
    (socket, request) => void socket.end(acceptHandshake(request)),
    async (url) => {
      const seen = connect(url)
      await eventually(() => seen.end !== null)
      assert.deepEqual([seen.events, seen.end?.code], [['open', 'close'], 1006])
    },
  )
})

test('a destroyed client calls nothing back, whatever still arrives', async () => {
  const answer = async (socket: net.Socket, request: string) => {
    socket.write(acceptHandshake(request))
    for (let i = 0; i < 20; i++) {
      socket.write(HELLO)
      await pause(5)
    }
  }
  await withRawServer(answer, async (url) => {
    const seen = connect(url)
    await eventually(() => seen.events.length > 2)
    seen.client.destroy()
    const before = seen.events.length
    await pause(150)
    assert.equal(seen.events.length, before)
  })
})

test('a peer that pings without reading does not fill our memory', async () => {
  const ping = Buffer.concat([Buffer.from([0x89, 125]), Buffer.alloc(125)])
  const answer = async (socket: net.Socket, request: string) => {
    socket.pause()
    socket.write(acceptHandshake(request))
    for (let i = 0; i < 200; i++) {
      const isFree = socket.write(Buffer.concat(Array(500).fill(ping)))
      if (!isFree) await new Promise((resolve) => socket.once('drain', resolve))
    }
    socket.write(HELLO)
  }
  await withRawServer(answer, async (url) => {
    const before = process.memoryUsage().arrayBuffers
    const seen = connect(url)
    await eventually(() => seen.events.includes('text Hello'))
    assert.ok(process.memoryUsage().arrayBuffers - before < 40 * 1024 * 1024)
    seen.client.destroy()
  })
})

test('a client and the ws package understand each other: fragments, pings, sizes, close', async () => {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: true })
  await once(server, 'listening')
  try {
    const received: string[] = []
    server.on('connection', (socket) => {
      socket.on('message', (data) => received.push(String(data)))
      socket.on('pong', (data) => received.push(`pong ${data}`))
      socket.send('a', { fin: false })
      socket.ping('p')
      socket.send('b', { fin: true })
      socket.send(Buffer.alloc(3_000_000))
      socket.send('x'.repeat(70_000))
    })
    const { port } = server.address() as net.AddressInfo
    const seen = connect(new URL(`ws://127.0.0.1:${port}/`))
    await eventually(() => seen.events.length === 4)
    assert.deepEqual(seen.events, ['open', 'text ab', 'binary 3000000', 'text 70000'])
    seen.client.sendText('é'.repeat(40_000))
    await eventually(() => received.length === 2)
    assert.deepEqual(received, ['pong p', 'é'.repeat(40_000)])
    seen.client.close(1000, 'done')
    await eventually(() => seen.end !== null)
    assert.equal(seen.end?.code, 1000)
  } finally {
    await new Promise((resolve) => server.close(resolve))
  }
})

test('an address where nobody listens and one of another kind end in onClose', async () => {
  for (const url of ['ws://127.0.0.1:1/', 'ftp://127.0.0.1/']) {
    const seen = connect(new URL(url))
    await eventually(() => seen.end !== null)
    assert.equal(seen.end?.code, 1006)
  }
})

test("of our own close the server's answer counts, and asking twice changes nothing", async () => {
  const answer = (socket: net.Socket, request: string) => {
    socket.write(acceptHandshake(request))
    socket.once('data', () => socket.write(Buffer.from('810141880703e96c61746572', 'hex')))
  }
  await withRawServer(answer, async (url, received) => {
    const seen = connect(url)
    await eventually(() => seen.events.includes('open'))
    seen.client.close(4000, 'first')
    seen.client.close(4001, 'second')
    seen.client.sendText('too late')
    await eventually(() => seen.end !== null)
    assert.deepEqual(seen.end, { code: 1001, reason: 'later', error: null, status: null })
    assert.deepEqual(seen.events, ['open', 'close'])
    assert.deepEqual(listReplies(received()), ['close 4000'])
  })
})

test('a server that does not answer our close, or a violation, is left after a moment', async () => {
  for (const bytes of ['', '83']) {
    await withRawServer(
      (socket, request) => {
        socket.removeAllListeners('end')
        socket.write(Buffer.concat([Buffer.from(acceptHandshake(request)), Buffer.from(bytes, 'hex')]))
      },
      async (url) => {
        const seen = connect(url, { closeMs: 200 })
        await eventually(() => seen.events.includes('open'))
        const started = performance.now()
        seen.client.close()
        await eventually(() => seen.end !== null)
        assert.equal(seen.end?.code, bytes === '' ? 1006 : 1002)
        assert.ok(performance.now() - started > 100)
      },
    )
  }
})

test('while a server does not read, of its pings only the last is answered, and a flood of messages is an error', async () => {
  const PINGS = 60_000
  const answer = async (socket: net.Socket, request: string) => {
    socket.pause()
    socket.write(acceptHandshake(request))
    const ping = (index: number) => Buffer.concat([Buffer.from([0x89, 125]), Buffer.alloc(125, index % 251)])
    for (let at = 0; at < PINGS; at += 500) {
      const isFree = socket.write(Buffer.concat(Array.from({ length: 500 }, (_, index) => ping(at + index))))
      if (!isFree) await new Promise((resolve) => socket.once('drain', resolve))
    }
    socket.write(HELLO)
  }
  const server = await RawServer.listen(({ socket, request }) => answer(socket, request))
  try {
    const seen = connect(server.url)
    await eventually(() => seen.events.includes('text Hello'))
    const last = `pong ${Buffer.alloc(125, (PINGS - 1) % 251).toString('hex')}`
    server.connections[0]?.socket.resume()
    const pongs = () => listReplies(server.connections[0]?.received ?? Buffer.alloc(0))
    await eventually(() => (server.connections[0]?.received.length ?? 0) % 131 === 0 && pongs().at(-1) === last)
    assert.ok(pongs().length < PINGS)
    server.connections[0]?.socket.pause()
    for (let count = 0; count < 60 && seen.end === null; count++) seen.client.sendBinary(Buffer.alloc(1024 * 1024))
    await eventually(() => seen.end !== null)
    assert.deepEqual([seen.end?.code, seen.end?.error], [1006, 'the server does not read'])
  } finally {
    await server.close()
  }
})

test('a message longer than the client was told to take ends with 1009 before it has come whole', async () => {
  const server = await RawServer.listen(({ socket, request }) => {
    socket.write(acceptHandshake(request))
    // Longer than the limit by its header alone; a byte of it may never come.
    socket.write(Buffer.from('82050102030405827f0000000000010001', 'hex'))
  })
  try {
    const events: string[] = []
    const end = await new Promise<{ code: number; error: string | null }>((resolve) => {
      new WebSocketClient(
        server.url,
        { onBinary: ({ length }) => events.push(`${length}`), onClose: resolve },
        { messageBytesMax: 65_536 },
      )
    })
    assert.deepEqual(events, ['5'])
    assert.equal(end.code, 1009)
    assert.deepEqual(listReplies(server.connections[0]?.received ?? Buffer.alloc(0)), ['close 1009'])
  } finally {
    await server.close()
  }
})

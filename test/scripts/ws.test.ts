import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import net from 'node:net'
import { test } from 'node:test'
import { WebSocketServer } from 'ws'
import { WebSocketClient } from '../../scripts/lib/ws.mjs'
import { eventually, pause } from './listener-process.ts'

type Client = InstanceType<typeof WebSocketClient>
interface Seen {
  client: Client
  events: string[]
  end: { code: number; reason: string; error: string | null; status: number | null } | null
}

/** A TCP server whose every byte is scripted. */
async function withRawServer(
  answer: (socket: net.Socket, request: string) => void | Promise<void>,
  use: (url: URL, received: () => Buffer) => Promise<void>,
): Promise<void> {
  const sockets = new Set<net.Socket>()
  let received = Buffer.alloc(0)
  const server = net.createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    let isAnswered = false
    socket.on('data', (chunk) => {
      received = Buffer.concat([received, chunk])
      const end = received.indexOf('\r\n\r\n')
      if (isAnswered || end < 0) return
      isAnswered = true
      const request = received.subarray(0, end).toString('latin1')
      received = received.subarray(end + 4)
      void answer(socket, request)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  try {
    const { port } = server.address() as net.AddressInfo
    await use(new URL(`ws://127.0.0.1:${port}/realtime/v1/websocket?apikey=k&vsn=1.0.0`), () => received)
  } finally {
    for (const socket of sockets) socket.destroy()
    await new Promise((resolve) => server.close(resolve))
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

function accept(request: string, extra = ''): string {
  const key = /sec-websocket-key: (.+)/i.exec(request)?.[1]?.trim() ?? ''
  const hash = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64')
  return `HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${hash}\r\n${extra}\r\n`
}

async function writeBytewise(socket: net.Socket, bytes: Buffer): Promise<void> {
  for (const byte of bytes) {
    socket.write(Buffer.from([byte]))
    await new Promise((resolve) => setImmediate(resolve))
  }
}

/** The payload of the first client frame, unmasked. */
function unmask(frame: Buffer): Buffer {
  const mask = frame.subarray(2, 6)
  return Buffer.from(
    frame.subarray(6, 6 + ((frame[1] ?? 0) & 0x7f)).map((byte, index) => byte ^ (mask[index & 3] ?? 0)),
  )
}

const HELLO = Buffer.from('810548656c6c6f', 'hex')

test('header and frames that come in one packet are both read', async () => {
  const answer = (socket: net.Socket, request: string) => {
    socket.write(Buffer.concat([Buffer.from(accept(request)), HELLO, HELLO]))
  }
  await withRawServer(answer, async (url) => {
    const seen = connect(url)
    await eventually(() => seen.events.length === 3)
    assert.deepEqual(seen.events, ['open', 'text Hello', 'text Hello'])
    seen.client.destroy()
  })
})

test('header and frames that come byte by byte are both read', async () => {
  const answer = (socket: net.Socket, request: string) => {
    return writeBytewise(socket, Buffer.concat([Buffer.from(accept(request)), HELLO]))
  }
  await withRawServer(answer, async (url) => {
    const seen = connect(url)
    await eventually(() => seen.events.includes('text Hello'))
    seen.client.destroy()
  })
})

test('an answer that is no WebSocket handshake is refused', async () => {
  const answers: Record<string, (request: string) => string> = {
    'HTTP 403': () => 'HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n',
    'HTTP 302': () => 'HTTP/1.1 302 Found\r\nlocation: ws://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n',
    accept: (request) => accept(request).replace(/accept: ..../, 'accept: AAAA'),
    extension: (request) => accept(request, 'sec-websocket-extensions: permessage-deflate\r\n'),
    subprotocol: (request) => accept(request, 'sec-websocket-protocol: other\r\n'),
    websocket: (request) => accept(request).replace('upgrade: websocket', 'upgrade: h2c'),
    '': () => 'SSH-2.0-OpenSSH_9.2\r\n\r\n',
    ' ': (request) => accept(request).replace('connection: Upgrade\r\nupgrade: websocket\r\n', ''),
  }
  for (const [text, make] of Object.entries(answers)) {
    await withRawServer(
      (socket, request) => void socket.write(make(request)),
      async (url) => {
        const seen = connect(url)
        await eventually(() => seen.end !== null)
        assert.deepEqual(seen.events, ['close'], text)
        assert.equal(seen.end?.code, 1006)
        assert.ok(seen.end?.error?.includes(text.trim()), `${text}: ${seen.end?.error}`)
      },
    )
  }
})

test('headers over 64 KiB are refused, headers of 60 KiB are not', async () => {
  for (const [size, expected] of [
    [60, 'open'],
    [80, 'close'],
  ] as const) {
    await withRawServer(
      (socket, request) => void socket.write(accept(request, `x-filler: ${'a'.repeat(size * 1024)}\r\n`)),
      async (url) => {
        const seen = connect(url)
        await eventually(() => seen.events.length > 0)
        assert.equal(seen.events[0], expected)
        seen.client.destroy()
      },
    )
  }
})

test('a handshake that is never answered times out', async () => {
  await withRawServer(
    () => {},
    async (url) => {
      const seen = connect(url, { handshakeMs: 100 })
      await eventually(() => seen.end !== null)
      assert.equal(seen.end?.error, 'handshake timed out')
    },
  )
})

test('a violation is closed with its code on the wire', async () => {
  for (const [hex, code] of [
    ['8185010203040000000000', 1002],
    ['8101ff', 1007],
    ['827f0000000001000001', 1009],
  ] as const) {
    await withRawServer(
      (socket, request) => void socket.write(Buffer.concat([Buffer.from(accept(request)), Buffer.from(hex, 'hex')])),
      async (url, received) => {
        const seen = connect(url)
        await eventually(() => seen.end !== null)
        assert.equal(seen.end?.code, code)
        assert.equal(received()[0], 0x88)
        assert.equal(unmask(received()).readUInt16BE(0), code)
      },
    )
  }
})

test('a close that is split across reads is echoed with its code', async () => {
  const answer = async (socket: net.Socket, request: string) => {
    socket.write(accept(request))
    await writeBytewise(socket, Buffer.from('880803f4726573746172', 'hex'))
  }
  await withRawServer(answer, async (url, received) => {
    const seen = connect(url)
    await eventually(() => seen.end !== null)
    assert.deepEqual(seen.end, { code: 1012, reason: 'restar', error: null, status: null })
    assert.equal(unmask(received()).readUInt16BE(0), 1012)
  })
})

test('a connection that ends without a close frame is 1006', async () => {
  await withRawServer(
    (socket, request) => void socket.end(accept(request)),
    async (url) => {
      const seen = connect(url)
      await eventually(() => seen.end !== null)
      assert.deepEqual([seen.events, seen.end?.code], [['open', 'close'], 1006])
    },
  )
})

test('a destroyed client calls nothing back, whatever still arrives', async () => {
  const answer = async (socket: net.Socket, request: string) => {
    socket.write(accept(request))
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
    socket.write(accept(request))
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

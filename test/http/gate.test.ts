import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { PatchcordError } from '../../server/errors.ts'
import { closeIfUnread, createGate, type Gate, type GateLimits } from '../../server/http/gate.ts'

const REFUSED = new PatchcordError('rate_limited', 'Too many.', { hint: 'Wait.', retryAfterSeconds: 7 })
const LIMITS: GateLimits = { delayMs: 200, heldMax: 50, silentMax: 10, silentMs: 100 }
const ASK = 'GET /refused HTTP/1.1\r\nhost: x\r\n\r\n'
const ASK_OTHER = 'GET /other HTTP/1.1\r\nhost: x\r\n\r\n'

interface Gated {
  open(): Promise<{ socket: Socket; text(): string; closed: Promise<unknown> }>
  server: Server
  close(): void
  heard: Gate['heard']
}

/** A server that refuses /refused at its gate and answers everything else. */
async function startGated(t: { after(work: () => Promise<unknown>): void }): Promise<Gated> {
  const gate = createGate(({ url }) => (url === '/refused' ? REFUSED : null), LIMITS)
  const server = createServer((request, response) => {
    if (gate.refuses(request, response)) return
    response.writeHead(200, { ...closeIfUnread(request), 'content-length': 6 }).end('served')
  })
  gate.watch(server)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const sockets: Socket[] = []
  t.after(async () => {
    gate.close()
    for (const socket of sockets) socket.destroy()
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  return {
    server,
    close: gate.close,
    heard: gate.heard,
    async open() {
      const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
      sockets.push(socket)
      let text = ''
      socket.setEncoding('latin1').on('data', (chunk) => {
        text += chunk
      })
      socket.on('error', () => {})
      const closed = new Promise((resolve) => socket.once('close', resolve))
      await once(socket, 'connect')
      return { socket, text: () => text, closed }
    },
  }
}

async function until(isTrue: () => boolean): Promise<void> {
  for (let tries = 0; !isTrue(); tries++) {
    assert.ok(tries < 1_000, 'never came true')
    await sleep(10)
  }
}

test('a refusal comes late, in the form of every error, and its connection goes on', async (t) => {
  const { open } = await startGated(t)
  const { socket, text } = await open()
  const startedAt = performance.now()
  socket.write(ASK)
  await until(() => text().includes('}'))
  assert.ok(performance.now() - startedAt > LIMITS.delayMs / 2 - 5)
  assert.match(text(), /^HTTP\/1\.1 429 Too Many Requests\r\nretry-after: 7\r\n/)
  assert.match(text(), /\r\n\r\n\{"error":\{"code":"rate_limited","message":"Too many\.","hint":"Wait\."\}\}$/)
  assert.match(text(), /cache-control: no-store/)
  socket.write(ASK_OTHER)
  await until(() => text().endsWith('served'))
})

test('answers keep the order of their requests', async (t) => {
  const { open } = await startGated(t)
  const { socket, text } = await open()
  socket.write(ASK_OTHER + ASK + ASK_OTHER)
  await until(() => text().split('served').length === 3)
  assert.deepEqual(text().match(/HTTP\/1\.1 \d+/g), ['HTTP/1.1 200', 'HTTP/1.1 429', 'HTTP/1.1 200'])
})

test('beyond the refusals that are held back a connection is cut off, and others are served', async (t) => {
  const { open } = await startGated(t)
  const flood = await open()
  flood.socket.write(ASK.repeat(LIMITS.heldMax + 1))
  await flood.closed
  assert.equal(flood.text(), '')
  const other = await open()
  other.socket.write(ASK_OTHER)
  await until(() => other.text().endsWith('served'))
})

test('too many connections that ask nothing lose their oldest; one that has asked stays', async (t) => {
  const { open } = await startGated(t)
  const asked = await open()
  asked.socket.write(ASK_OTHER)
  await until(() => asked.text() !== '')
  const silent = await Promise.all(Array.from({ length: LIMITS.silentMax }, open))
  await sleep(LIMITS.silentMs * 2)
  const young = await Promise.all(Array.from({ length: 5 }, open))
  await Promise.all(silent.slice(0, 5).map(({ closed }) => closed))
  await sleep(100)
  const isOpen = ({ socket }: { socket: Socket }) => !socket.destroyed
  assert.deepEqual([...silent, ...young, asked].map(isOpen), [
    ...Array(5).fill(false),
    ...Array(LIMITS.silentMax).fill(true),
    true,
  ])
})

test('a body that nobody reads ends its connection, after an answer that its sender gets', async (t) => {
  const { server, open } = await startGated(t)
  const accepted = once(server, 'connection') as Promise<[Socket]>
  const { socket, text, closed } = await open()
  const [serverSide] = await accepted
  socket.write(`POST /other HTTP/1.1\r\nhost: x\r\ncontent-length: ${64 * 1024 * 1024}\r\n\r\n`)
  const piece = Buffer.alloc(64 * 1024)
  for (let sent = 0; sent < 1_024 && !socket.destroyed; sent++) {
    if (!socket.write(piece)) await Promise.race([once(socket, 'drain').catch(() => {}), closed, sleep(3_000)])
  }
  await closed
  assert.match(text(), /^HTTP\/1\.1 200 OK\r\nconnection: close\r\n[\s\S]*served$/i)
  assert.ok(serverSide.bytesRead < 8 * 1024 * 1024, `${serverSide.bytesRead} bytes were read`)
})

test('what is held back when the server stops does not hold it', async (t) => {
  const { open, close } = await startGated(t)
  const { socket, closed } = await open()
  socket.write(ASK)
  await sleep(LIMITS.delayMs / 10)
  const startedAt = performance.now()
  close()
  await closed
  assert.ok(performance.now() - startedAt < LIMITS.delayMs / 3)
})

test('a request that asks for another protocol is answered where nobody speaks one', async (t) => {
  const { open } = await startGated(t)
  const { socket, text } = await open()
  socket.write('GET /other HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n')
  await until(() => text().endsWith('served'))
})

test('a connection that has become a WebSocket is none that has asked nothing', async (t) => {
  const { server, open, heard } = await startGated(t)
  server.on('upgrade', (_request, socket) => {
    heard(socket)
    socket.on('end', () => socket.end()).resume()
    socket.write('HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n')
  })
  const first = await open()
  first.socket.write('GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n')
  await until(() => first.text().startsWith('HTTP/1.1 101'))
  await sleep(2 * LIMITS.silentMs)
  const others = await Promise.all(Array.from({ length: LIMITS.silentMax + 1 }, open))
  await sleep(2 * LIMITS.silentMs)
  await open()
  await Promise.race(others.map(({ closed }) => closed))
  assert.equal(first.socket.destroyed, false)
})

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import net from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { createCertificate } from './certificate.ts'
import { acceptHandshake, RawServer } from './ws-raw-server.ts'
import { type End, watchClient } from './ws-watch.ts'

const CONNECT = fileURLToPath(new URL('../fixtures/websocket/connect.mjs', import.meta.url))

/** A TLS server that accepts and closes with 1000 at once. */
function listenSecurely(certificate: { key: string; cert: string }): Promise<RawServer> {
  return RawServer.listen(({ socket, request }) => {
    socket.write(Buffer.concat([Buffer.from(acceptHandshake(request)), Buffer.from('880203e8', 'hex')]))
  }, certificate)
}

async function connectInChild(url: string, env: Record<string, string>): Promise<End> {
  const { stdout } = await promisify(execFile)(process.execPath, [CONNECT, url], { env: { ...process.env, ...env } })
  return JSON.parse(stdout) as End
}

test('a certificate that is trusted opens; one that is not, is out of date or of another host is refused before a byte of the request', async (context) => {
  const folder = await mkdtemp(join(tmpdir(), 'ws-tls-'))
  const [good, stale] = [createCertificate(), createCertificate({ expiresInMs: -3_600_000 })]
  const [goodServer, staleServer] = [await listenSecurely(good), await listenSecurely(stale)]
  context.after(async () => {
    await goodServer.close()
    await staleServer.close()
    await rm(folder, { recursive: true })
  })
  const file = join(folder, 'ca.pem')
  await writeFile(file, `${good.cert}${stale.cert}`)
  const trust = { NODE_EXTRA_CA_CERTS: file }
  const otherHost = goodServer.url.href.replace('127.0.0.1', 'localhost')
  for (const [url, env, expected] of [
    [goodServer.url.href, {}, /self-signed/],
    [goodServer.url.href, { NODE_TLS_REJECT_UNAUTHORIZED: '0' }, /self-signed/],
    [otherHost, trust, /altnames/],
    [staleServer.url.href, trust, /expired/],
  ] as const) {
    const end = await connectInChild(url, env)
    assert.match(end.error ?? '', expected)
    assert.equal(end.code, 1006)
  }
  assert.deepEqual([goodServer.connections.length, staleServer.connections.length], [0, 0])
  const end = await connectInChild(goodServer.url.href, trust)
  assert.deepEqual(end, { code: 1000, reason: '', error: null, status: null })
})

test('a server that speaks no TLS, cuts the TLS handshake or never answers it ends the client', async () => {
  for (const [answer, expected] of [
    [(socket: net.Socket) => void socket.write('HTTP/1.1 400 Bad Request\r\n\r\n'), /SSL|wrong version/i],
    [(socket: net.Socket) => void socket.destroy(), /disconnected|reset|hang up/i],
    [(socket: net.Socket) => void socket.write(Buffer.from('15030300020228', 'hex')), /handshake failure/i],
    [() => {}, /^handshake timed out$/],
  ] as const) {
    const sockets = new Set<net.Socket>()
    const server = net.createServer((socket) => {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.once('data', () => answer(socket))
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const url = new URL(`wss://127.0.0.1:${(server.address() as net.AddressInfo).port}/`)
    const { error, code } = await watchClient(url, { handshakeMs: 500 }).closed
    for (const socket of sockets) socket.destroy()
    await new Promise((resolve) => server.close(resolve))
    assert.match(error ?? '', expected)
    assert.equal(code, 1006)
  }
})

test('a client that speaks no TLS to a server that does is ended', async () => {
  const server = await listenSecurely(createCertificate())
  try {
    const { error } = await watchClient(new URL(server.url.href.replace('wss:', 'ws:'))).closed
    assert.notEqual(error, null)
    assert.equal(server.connections.length, 0)
  } finally {
    await server.close()
  }
})

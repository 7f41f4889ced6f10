import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type HandshakeCase, handshakeCases } from '../fixtures/websocket/handshakes.ts'
import { acceptKey, type RawConnection, RawServer, writeBytewise } from './ws-raw-server.ts'
import { watchClient, watchWs } from './ws-watch.ts'

const HELLO = Buffer.from('810548656c6c6f', 'hex')
const OPENED = ['open', 'text Hello', 'close']

/** The answer's bytes with a frame right behind them. */
function answerOf({ answer }: HandshakeCase, request: string, url: URL): Buffer {
  const header = `${answer.join('\r\n')}\r\n\r\n`.replaceAll('{accept}', acceptKey(request)).replace('{url}', url.href)
  return Buffer.concat([Buffer.from(header, 'latin1'), HELLO])
}

async function serve(
  write: (connection: RawConnection, url: URL) => void | Promise<void>,
  run: (url: URL, server: RawServer) => Promise<void>,
): Promise<void> {
  const server = await RawServer.listen((connection) => write(connection, server.url))
  try {
    await run(server.url, server)
  } finally {
    await server.close()
  }
}

async function checkOurs(handshakeCase: HandshakeCase, url: URL, server: RawServer): Promise<void> {
  const { name, refusal } = handshakeCase
  const { events, closed } = watchClient(url)
  const end = await closed
  assert.deepEqual(events, refusal === null ? OPENED : ['close'], `${name}: ${end.error}`)
  if (refusal !== null) assert.match(end.error ?? '', refusal, name)
  const status = / (\d{3})/.exec(handshakeCase.answer[0] ?? '')?.[1]
  if (/^(?:status|redirect)/.test(name)) assert.equal(end.status, Number(status), name)
  // A redirect is not followed, and a refusal not tried again.
  assert.equal(server.socketCount, 1, name)
}

test(`${handshakeCases.length} answers to the handshake: each opens or is refused with its reason, in one packet and in single bytes`, async () => {
  for (const handshakeCase of handshakeCases) {
    await serve(
      ({ socket, request }, url) => void socket.end(answerOf(handshakeCase, request, url)),
      (url, server) => checkOurs(handshakeCase, url, server),
    )
    if (handshakeCase.answer.join().length > 1_000) continue
    await serve(
      async ({ socket, request }, url) => {
        await writeBytewise(socket, answerOf(handshakeCase, request, url))
        socket.end()
      },
      (url, server) => checkOurs(handshakeCase, url, server),
    )
  }
})

test('a good answer with a frame behind it opens wherever it is cut in two', async () => {
  const good = handshakeCases[0]
  assert.ok(good)
  let cut = 0
  let length = 1
  const write = async ({ socket, request }: RawConnection, url: URL) => {
    const bytes = answerOf(good, request, url)
    length = bytes.length
    socket.write(bytes.subarray(0, cut))
    await new Promise((resolve) => setTimeout(resolve, 2))
    socket.end(bytes.subarray(cut))
  }
  for (; cut <= length; cut++) await serve(write, (url, server) => checkOurs(good, url, server))
})

test('the ws package opens and refuses the same, but for the differences in the table', async () => {
  for (const handshakeCase of handshakeCases) {
    const { name, refusal, ws } = handshakeCase
    const expected = ws === undefined ? refusal : ws.refusal
    await serve(
      ({ socket, request }, url) => void socket.end(answerOf(handshakeCase, request, url)),
      async (url) => {
        const { events, error } = await watchWs(url, (client) => client.terminate())
        assert.deepEqual(events, expected === null ? OPENED : ['close'], name)
        // Its words are its own where they are not Node's.
        if (expected !== null) assert.notEqual(error, null, name)
      },
    )
  }
})

test('the request is the one of the RFC, with a fresh key each time', async () => {
  const keys: string[] = []
  await serve(
    ({ socket, request }) => {
      assert.match(request, /^GET \/realtime\/v1\/websocket\?apikey=k&vsn=1\.0\.0 HTTP\/1\.1\r\n/)
      assert.match(request, /\r\nhost: 127\.0\.0\.1:\d+\r\n/i)
      assert.match(request, /\r\nconnection: upgrade\r\n/i)
      assert.match(request, /\r\nupgrade: websocket\r\n/i)
      assert.match(request, /\r\nsec-websocket-version: 13(?:\r\n|$)/i)
      assert.doesNotMatch(request, /sec-websocket-(?:extensions|protocol)|origin|authorization|cookie/i)
      keys.push(/sec-websocket-key: (\S+)/i.exec(request)?.[1] ?? '')
      socket.end()
    },
    async (url) => {
      await watchClient(url).closed
      await watchClient(url).closed
    },
  )
  assert.equal(new Set(keys).size, 2)
  for (const key of keys) assert.equal(Buffer.from(key, 'base64').length, 16)
})

test('a server that is cut, ends or falls silent in the handshake ends the client', async () => {
  for (const [text, expected] of [
    ['', /hang up|lost/],
    ['HTTP/1.1 101 Switch', /hang up|lost|Parse Error/],
  ] as const) {
    await serve(
      ({ socket }) => void socket.end(text),
      async (url) => assert.match((await watchClient(url).closed).error ?? '', expected),
    )
    await serve(
      ({ socket }) => void socket.write(text),
      async (url) => assert.equal((await watchClient(url, { handshakeMs: 100 }).closed).error, 'handshake timed out'),
    )
    await serve(
      ({ socket }) => void socket.resetAndDestroy(),
      async (url) => assert.match((await watchClient(url).closed).error ?? '', /reset|hang up/i),
    )
  }
})

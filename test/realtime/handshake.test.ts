import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type IncomingMessage, request, type ServerResponse } from 'node:http'
import { REALTIME_PATH } from '../../server/realtime/endpoint.ts'
import {
  ALICE,
  type Endpoint,
  endpointTest,
  handshakeText,
  inSeconds,
  openTcp,
  readAll,
  within,
} from './endpoint-helper.ts'

async function shake(endpoint: Endpoint, path: string, headers: Record<string, string> = {}) {
  const socket = openTcp(endpoint.port)
  socket.write(handshakeText(path, headers))
  const text = (await readAll(socket)).toString()
  const [head = '', body = ''] = text.split('\r\n\r\n')
  return { status: Number(head.split(' ')[1]), head, body }
}

async function echo(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
  let body = ''
  for await (const chunk of incoming) body += chunk
  response.end(`${incoming.method} ${incoming.url} ${body}`)
}

async function refusal(endpoint: Endpoint, key: string) {
  const { status, body } = await shake(endpoint, `${REALTIME_PATH}?apikey=${key}&vsn=1.0.0`)
  return `${status} ${body}`
}

endpointTest('an apikey that is no good is refused before the upgrade with the recorded body', async (endpoint) => {
  const [expired, noRole, noExp, none, good] = await Promise.all([
    endpoint.apikey({ exp: inSeconds(-30) }),
    endpoint.sign({ exp: inSeconds(60) }),
    endpoint.sign({ role: 'anon' }),
    Promise.resolve('eyJhbGciOiJub25lIn0.eyJyb2xlIjoiYW5vbiIsImV4cCI6OTk5OTk5OTk5OX0.'),
    endpoint.apikey(),
  ])
  const required = '401 {"error":"Fields `role` and `exp` are required in JWT"}'
  assert.equal((await shake(endpoint, `${REALTIME_PATH}?vsn=1.0.0`)).body, '{"error":"API key is missing"}')
  assert.equal(await refusal(endpoint, 'not-a-jwt'), '401 {"error":"The token provided is not a valid JWT"}')
  assert.equal(await refusal(endpoint, 'sb_publishable_x'), '401 {"error":"The token provided is not a valid JWT"}')
  assert.equal(await refusal(endpoint, expired), '401 {"error":"Token has expired"}')
  assert.equal(await refusal(endpoint, noRole), required)
  assert.equal(await refusal(endpoint, noExp), required)
  assert.match(await refusal(endpoint, none), /^401 {"error":"Failed to generate JWT signer/)
  const forged = `${good.slice(0, good.lastIndexOf('.'))}.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA`
  assert.equal(await refusal(endpoint, forged), '401 {"error":"Failed to validate JWT signature"}')
})

endpointTest('a refusal is a complete HTTP answer after which the connection ends', async (endpoint) => {
  const { head, body } = await shake(endpoint, `${REALTIME_PATH}?vsn=1.0.0`)
  assert.match(head, /^HTTP\/1\.1 401 Unauthorized\r\n/)
  assert.match(head, new RegExp(`\r\ncontent-length: ${body.length}\r\n`))
  assert.match(head, /\r\ncontent-type: application\/json; charset=utf-8\r\n/)
  assert.match(head, /\r\nconnection: close\r\n/)
})

endpointTest('an unknown serializer is refused with an empty 403, another path with 404', async (endpoint) => {
  const key = await endpoint.apikey()
  const unknown = await shake(endpoint, `${REALTIME_PATH}?apikey=${key}&vsn=3.0.0`)
  assert.deepEqual([unknown.status, unknown.body], [403, ''])
  const elsewhere = await shake(endpoint, `${REALTIME_PATH}t?apikey=${key}`)
  assert.deepEqual([elsewhere.status, elsewhere.body], [404, 'Not Found'])
})

endpointTest('a foreign Host or Origin is refused before the apikey is looked at', async (endpoint) => {
  const foreignHost = await shake(endpoint, REALTIME_PATH, { Host: 'evil.example' })
  assert.deepEqual([foreignHost.status, foreignHost.body], [421, '{"error":"Host is not allowed"}'])
  const foreignPage = await shake(endpoint, REALTIME_PATH, { Origin: 'https://evil.example' })
  assert.deepEqual([foreignPage.status, foreignPage.body], [403, '{"error":"Origin is not allowed"}'])
  const ownPage = await endpoint.open(undefined, { origin: `http://127.0.0.1:${endpoint.port}` })
  ownPage.close()
})

endpointTest('the x-api-key header wins over the query, and no vsn means 1.0.0', async (endpoint) => {
  const fromHeader = await endpoint.open('not-a-jwt', { 'x-api-key': await endpoint.apikey() })
  fromHeader.close()
  const socket = openTcp(endpoint.port)
  socket.write(handshakeText(`${REALTIME_PATH}?apikey=${await endpoint.apikey()}`))
  const [head] = (await within('answer', once(socket, 'data'))) as [Buffer]
  assert.match(head.toString(), /^HTTP\/1\.1 101 /)
  socket.destroy()
})

endpointTest('permessage-deflate is not negotiated', async (endpoint) => {
  const client = await endpoint.open()
  assert.equal(client.socket.extensions, '')
  client.close()
})

endpointTest(
  'a token has no more sockets than its limit',
  async (endpoint) => {
    const key = await endpoint.apikey({ token: ALICE.token })
    const first = await endpoint.open(key)
    const second = await endpoint.open(key)
    const third = await shake(endpoint, `${REALTIME_PATH}?apikey=${key}`)
    assert.deepEqual([third.status, third.body], [429, '{"error":"Too many connected users"}'])
    assert.match(third.head, /\r\nretry-after: \d+$/)
    first.socket.close()
    await first.closed()
    const again = await endpoint.open(key)
    again.close()
    second.close()
  },
  { connectionsPerTokenMax: 2 },
)

endpointTest(
  'a request that offers another upgrade is answered as if it offered none',
  async (endpoint) => {
    const outgoing = request({
      port: endpoint.port,
      host: '127.0.0.1',
      method: 'POST',
      path: '/api/messages',
      headers: { connection: 'Upgrade, HTTP2-Settings', upgrade: 'h2c', 'http2-settings': 'AAMAAABkAAQAoAAAAAIAAAAA' },
    })
    outgoing.end('{"to":"bob"}')
    const [response] = await within('response', once(outgoing, 'response'))
    let body = ''
    for await (const chunk of response) body += chunk
    assert.equal(body, 'POST /api/messages {"to":"bob"}')
  },
  { onRequest: echo },
)

endpointTest(
  'the refusals of a handshake come late where a delay is configured',
  async (endpoint) => {
    const socket = openTcp(endpoint.port)
    const start = performance.now()
    socket.write(handshakeText(REALTIME_PATH))
    const text = (await readAll(socket)).toString()
    assert.match(text, /API key is missing/)
    assert.ok(performance.now() - start >= 140)
  },
  { times: { connectErrorDelayMs: 150 } },
)

import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { createHttpClient } from '../../scripts/lib/http.cjs'
import { eventually, TOKEN } from './listener-process.ts'
import { type RawConnection, RawServer, writeBytewise } from './ws-raw-server.ts'

type Write = (connection: RawConnection) => void | Promise<void>

interface Case {
  name: string
  answer: string
  /** The body's `n`, or what the error must say. */
  expected: number | null | RegExp
}

const OK = 'HTTP/1.1 200 OK\r\n'
const CHUNKED = `${OK}transfer-encoding: chunked\r\n\r\n`
const TOO_LONG = /too long/
const PARSE = /Parse Error/
const CUT_OFF = /closed within an answer/

const CASES: Case[] = [
  { name: 'a length', answer: `${OK}content-length: 7\r\n\r\n{"n":1}`, expected: 1 },
  { name: 'a length and more behind it', answer: `${OK}content-length: 7\r\n\r\n{"n":1}HTTP/1.1 500`, expected: 1 },
  { name: 'no length: up to the end', answer: `${OK}connection: close\r\n\r\n{"n":1}`, expected: 1 },
  { name: 'HTTP/1.0', answer: 'HTTP/1.0 200 OK\r\n\r\n{"n":1}', expected: 1 },
  { name: 'no words after the status', answer: 'HTTP/1.1 200\r\ncontent-length: 7\r\n\r\n{"n":1}', expected: 1 },
  {
    name: 'interim answers before',
    answer: `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 H\r\nlink: a\r\n\r\n${OK}content-length: 7\r\n\r\n{"n":1}`,
    expected: 1,
  },
  { name: 'chunks', answer: `${CHUNKED}3\r\n{"n\r\n4\r\n":1}\r\n0\r\n\r\n`, expected: 1 },
  {
    name: 'chunks with extensions and trailers',
    answer: `${CHUNKED}7;a="b;c"\r\n{"n":1}\r\n00 ; x\r\nx-a: 1\r\nx-b: 2\r\n\r\n`,
    expected: 1,
  },
  { name: 'chunks with capital digits', answer: `${CHUNKED}0A\r\n{"n":1   }\r\n0\r\n\r\n`, expected: 1 },
  { name: 'a body that is no object', answer: `${OK}content-length: 3\r\n\r\n[1]`, expected: null },
  { name: 'a body that is no JSON', answer: `${OK}content-length: 6\r\n\r\n<html>`, expected: null },
  { name: 'an empty body', answer: `${OK}content-length: 0\r\n\r\n`, expected: null },
  { name: '204 with a length that it has not', answer: 'HTTP/1.1 204 No\r\ncontent-length: 9\r\n\r\n', expected: null },
  { name: 'a header called __proto__', answer: `${OK}__proto__: x\r\ncontent-length: 7\r\n\r\n{"n":1}`, expected: 1 },
  {
    name: '60 KiB of head',
    answer: `${OK}x-a: ${'a'.repeat(60_000)}\r\ncontent-length: 7\r\n\r\n{"n":1}`,
    expected: 1,
  },
  { name: '70 KiB of head', answer: `${OK}x-a: ${'a'.repeat(70_000)}\r\n\r\n`, expected: /header overflow/ },
  { name: 'a head without an end', answer: `${OK}${'x-a: 1\r\n'.repeat(20_000)}`, expected: /header overflow/ },
  {
    name: 'interim answers without an end',
    answer: 'HTTP/1.1 102 Wait\r\n\r\n'.repeat(5_000),
    expected: /header overflow/,
  },
  { name: 'a length over the limit', answer: `${OK}content-length: 1048577\r\n\r\n`, expected: TOO_LONG },
  {
    name: 'a length beyond numbers',
    answer: `${OK}content-length: ${'9'.repeat(30)}\r\n\r\n`,
    expected: /content-length/,
  },
  { name: 'a body over the limit', answer: `${OK}\r\n${' '.repeat(1_048_577)}`, expected: TOO_LONG },
  {
    name: 'chunks over the limit',
    answer: `${CHUNKED}${`10000\r\n${' '.repeat(65_536)}\r\n`.repeat(17)}`,
    expected: TOO_LONG,
  },
  { name: 'a body that ends before its length', answer: `${OK}content-length: 8\r\n\r\n{"n":1}`, expected: CUT_OFF },
  { name: 'chunks that end before the last', answer: `${CHUNKED}7\r\n{"n":1}\r\n`, expected: CUT_OFF },
  { name: 'trailers that do not end', answer: `${CHUNKED}0\r\nx: 1\r\n`, expected: CUT_OFF },
  {
    name: 'trailers over the limit',
    answer: `${CHUNKED}0\r\n${`x: ${'a'.repeat(1_000)}\r\n`.repeat(70)}\r\n`,
    expected: /trailer overflow/,
  },
  { name: 'nothing', answer: '', expected: /closed without an answer/ },
  { name: 'half a head', answer: 'HTTP/1.1 200 OK\r\ncontent-le', expected: /closed without an answer/ },
  {
    name: 'two lengths',
    answer: `${OK}content-length: 7\r\ncontent-length: 8\r\n\r\n{"n":1}`,
    expected: /content-length/,
  },
  { name: 'a negative length', answer: `${OK}content-length: -7\r\n\r\n{"n":1}`, expected: /content-length/ },
  { name: 'a length in hex', answer: `${OK}content-length: 0x7\r\n\r\n{"n":1}`, expected: /content-length/ },
  {
    name: 'a length and chunks',
    answer: `${OK}content-length: 7\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
    expected: /transfer-encoding/,
  },
  {
    name: 'another coding',
    answer: `${OK}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n`,
    expected: /transfer-encoding/,
  },
  {
    name: 'chunks in HTTP/1.0',
    answer: 'HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
    expected: /transfer-encoding/,
  },
  { name: 'a chunk without a size', answer: `${CHUNKED}\r\n{"n":1}\r\n0\r\n\r\n`, expected: PARSE },
  { name: 'a size with a sign', answer: `${CHUNKED}+7\r\n{"n":1}\r\n0\r\n\r\n`, expected: PARSE },
  { name: 'a size beyond numbers', answer: `${CHUNKED}${'f'.repeat(20)}\r\n`, expected: PARSE },
  { name: 'a chunk longer than its size', answer: `${CHUNKED}6\r\n{"n":1}\r\n0\r\n\r\n`, expected: PARSE },
  { name: 'a chunk line without a carriage return', answer: `${CHUNKED}7\n{"n":1}\r\n0\r\n\r\n`, expected: PARSE },
  { name: 'a chunk line without an end', answer: `${CHUNKED}7;${'x'.repeat(5_000)}`, expected: PARSE },
  {
    name: 'head lines without carriage returns',
    answer: 'HTTP/1.1 200 OK\ncontent-length: 0\r\n\r\n',
    expected: PARSE,
  },
  { name: 'a folded header', answer: `${OK}x-a: 1\r\n 2\r\n\r\n`, expected: PARSE },
  { name: 'a blank before the colon', answer: `${OK}content-length : 7\r\n\r\n{"n":1}`, expected: PARSE },
  { name: 'a header without a colon', answer: `${OK}content-length\r\n\r\n`, expected: PARSE },
  { name: 'a NUL in a header', answer: `${OK}x-a: \0\r\n\r\n`, expected: PARSE },
  { name: 'a status of two digits', answer: 'HTTP/1.1 20 OK\r\n\r\n', expected: PARSE },
  { name: 'HTTP/2', answer: 'HTTP/2 200\r\n\r\n', expected: PARSE },
  { name: 'another protocol', answer: '220 mail.example ESMTP\r\n', expected: PARSE },
  {
    name: 'a change of the protocol',
    answer: 'HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n',
    expected: /unasked/,
  },
]

async function listen(context: TestContext, write: Write) {
  const server = await RawServer.listen(write)
  const client = createHttpClient()
  context.after(async () => {
    client.close()
    await server.close()
  })
  const url = `http://127.0.0.1:${server.port}/api/inbox?a=b%20c`
  const get = (timeoutMs = 10_000, signal?: AbortSignal) =>
    client.requestJson({ method: 'GET', url, token: TOKEN, timeoutMs, ...(signal && { signal }) })
  return { server, client, url, get }
}

async function check({ name, expected }: Case, get: () => Promise<{ json: Record<string, unknown> | null }>) {
  if (expected instanceof RegExp) return assert.rejects(get(), expected, name)
  const { json } = await get().catch((error) => assert.fail(`${name}: ${error}`))
  assert.equal(json === null ? null : json.n, expected, name)
}

test(`${CASES.length} answers, in one packet and in single bytes: each is read or refused for its reason`, async (context) => {
  let current = CASES[0] as Case
  const { get } = await listen(context, ({ socket }) => void socket.end(Buffer.from(current.answer, 'latin1')))
  const slow = await listen(context, async ({ socket }) => {
    await writeBytewise(socket, Buffer.from(current.answer, 'latin1'))
    socket.end()
  })
  for (current of CASES) {
    await check(current, get)
    if (current.answer.length < 500) await check(current, slow.get)
  }
})

test('an answer cut in two anywhere is read', async (context) => {
  const bytes = Buffer.from(`HTTP/1.1 100 C\r\n\r\n${CHUNKED}3;x\r\n{"n\r\n4\r\n":1}\r\n0\r\ny: 1\r\n\r\n`)
  let cut = 0
  const { get } = await listen(context, async ({ socket }) => {
    socket.write(bytes.subarray(0, cut))
    await new Promise((resolve) => setTimeout(resolve, 2))
    // Left open: the end of the answer is its own.
    socket.write(bytes.subarray(cut))
  })
  for (; cut <= bytes.length; cut++) assert.deepEqual((await get()).json, { n: 1 }, `cut at ${cut}`)
})

test('the request is whole in itself, and holds what was given and nothing else', async (context) => {
  const { server, client, url } = await listen(context, ({ socket }) => void socket.end(`${OK}\r\n{}`))
  const body = { announced: ['\r\nx: é'] }
  await client.requestJson({ method: 'PUT', url, token: TOKEN, body, timeoutMs: 5_000 })
  const [{ request, received }] = server.connections as [RawConnection]
  assert.deepEqual(request.split('\r\n'), [
    'PUT /api/inbox?a=b%20c HTTP/1.1',
    `host: 127.0.0.1:${server.port}`,
    `authorization: Bearer ${TOKEN}`,
    'accept: application/json',
    'user-agent: patchcord-listener',
    'connection: close',
    'content-type: application/json',
    `content-length: ${Buffer.byteLength(JSON.stringify(body))}`,
  ])
  assert.deepEqual(JSON.parse(received.toString('utf8')), body)
  const forged = client.requestJson({ method: 'GET', url, token: 'a\r\nx: y', timeoutMs: 5_000 })
  await assert.rejects(forged, /authorization cannot be sent/)
  assert.equal(server.socketCount, 1)
})

test('Retry-After in seconds is passed on, anything else of that name is none', async (context) => {
  let value = ''
  const { get } = await listen(
    context,
    ({ socket }) => void socket.end(`HTTP/1.1 429 No\r\nretry-after: ${value}\r\n\r\n`),
  )
  for (const [text, expected] of [
    ['7', 7_000],
    ['0', 0],
    ['', null],
    ['-1', null],
    ['1e9', null],
    ['9'.repeat(30), null],
    ['Sun, 29 Nov 2026 12:00:00 GMT', null],
  ] as const) {
    value = text
    assert.deepEqual(await get(), { status: 429, json: null, retryAfterMs: expected }, text)
  }
})

test('no answer in time, an abort and a closed client end a request, and its connection with it', async (context) => {
  const { server, client, get } = await listen(context, () => {})
  await assert.rejects(get(50), /no answer within 50ms/)
  const controller = new AbortController()
  const aborted = get(5_000, controller.signal)
  await eventually(() => server.connections.length === 2)
  controller.abort()
  await assert.rejects(aborted, /aborted/)
  await assert.rejects(get(5_000, controller.signal), /aborted/)
  const closed = get()
  await eventually(() => server.connections.length === 3)
  client.close()
  await assert.rejects(closed, /aborted/)
  for (const connection of server.connections) await connection.closed
  assert.equal(server.socketCount, 3)
})

test('a connection that is refused or reset is an error', async (context) => {
  const { server, get } = await listen(context, ({ socket }) => void socket.resetAndDestroy())
  await assert.rejects(get(), /ECONNRESET/)
  await server.close()
  await assert.rejects(get(), /ECONNREFUSED/)
})

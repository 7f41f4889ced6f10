import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, type TestContext, test } from 'node:test'
import { callMcp } from '../../plugin/lib/upstream.ts'
import { makeToken } from './command.ts'

/** A server that answers every call in the same way, and counts them. */
async function open(context: TestContext, answer: (response: ServerResponse) => void) {
  let asked = 0
  const server = createServer((request, response) => {
    asked++
    request.resume()
    request.on('end', () => answer(response))
  }).listen(0, '127.0.0.1')
  context.after(() => {
    server.closeAllConnections()
    server.close()
  })
  await once(server, 'listening')
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return { call: () => callMcp({ base, token: makeToken('u') }, 'tools/list', {}), asked: () => asked }
}

describe('a call that the stdio bridge passes on', () => {
  test('is answered by its result, not by an event without data, a comment or what is no message before it', async (t) => {
    const { call, asked } = await open(t, (response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(': waiting\n\nid: 1\ndata: \n\nid: 2\ndata:\n\nretry: 1\n\ndata: {"jso\n\n')
      response.end('data: {"jsonrpc":"2.0","id":1,"result":{"tools":[]}}\n\n')
    })
    assert.deepEqual(await call(), { tools: [] })
    assert.equal(asked(), 1)
  })

  for (const [name, status, type, text] of [
    ['a refused token', 401, 'application/json', '{"error":{"code":"token_rejected","message":"No."}}'],
    ['a page instead of JSON', 404, 'text/html', '<html>sign in</html>'],
    ['a method that is not allowed', 405, 'application/json', '{"error":{"code":"not_found","message":"No."}}'],
    ['an empty stream', 200, 'text/event-stream', 'id: 1\ndata: \n\n'],
  ] as const) {
    test(`is tried once and fails in words: ${name}`, async (t) => {
      const { call, asked } = await open(t, (response) => {
        response.writeHead(status, { 'content-type': type, 'www-authenticate': 'Bearer' }).end(text)
      })
      await assert.rejects(call(), { name: 'CommandError' })
      await new Promise((resolve) => setTimeout(resolve, 500))
      assert.equal(asked(), 1)
    })
  }
})

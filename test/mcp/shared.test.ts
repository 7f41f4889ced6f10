import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, request as openRequest } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { type McpServerFactory, Server, type ServerContext } from '@modelcontextprotocol/server'
import { createSharedServers, MODERN_VERSIONS, type SharedServers } from '../../server/mcp/shared.ts'
import { messageIn, type RawRequest, sendRaw, toolCall } from '../helpers/mcp.ts'

const ERAS = ['legacy', 'modern'] as const
const CLIENTS = 64
const ROUNDS = 10
const AGENTS = 7
const KEEP_ALIVE_MS = 60
/** What clients count from, and the ends of what an id may be. */
const IDS = [1, 0, -1, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER, '', '1', 'x'.repeat(5_000), '__proto__']

/** A server that serves many: it says who called it with what, waits until it is aborted, or tells its progress. */
function createFixture() {
  /** Names of the calls of `hold` that are under way, and of those that were aborted. */
  const held = new Set<string>()
  const aborted: string[] = []

  async function call(name: string, args: Record<string, unknown>, { http, mcpReq }: ServerContext): Promise<string> {
    const who = String(http?.authInfo?.clientId)
    if (name === 'fail') throw new Error(`${who} ${args.nonce}`)
    if (name === 'hold') await hold(String(args.nonce), mcpReq.signal)
    if (name === 'count') {
      for (let progress = 1; progress <= 3; progress++) {
        const params = { progressToken: mcpReq._meta?.progressToken ?? '', progress, message: `${who} ${args.nonce}` }
        await mcpReq.notify({ method: 'notifications/progress', params })
      }
    }
    await sleep(Number(args.ms ?? 0))
    return `${who} ${args.nonce}`
  }

  async function hold(nonce: string, signal: AbortSignal): Promise<void> {
    held.add(nonce)
    if (!signal.aborted) await once(signal, 'abort')
    aborted.push(nonce)
    held.delete(nonce)
  }

  const factory: McpServerFactory = ({ era }) => {
    const versions = era === 'modern' ? { supportedProtocolVersions: MODERN_VERSIONS } : {}
    const server = new Server({ name: 'fixture', version: '1' }, { capabilities: { tools: {} }, ...versions })
    server.setRequestHandler('tools/call', async ({ params }, context) => ({
      content: [{ type: 'text', text: await call(params.name, params.arguments ?? {}, context) }],
    }))
    return server
  }
  return { factory, held, aborted }
}

describe('one server for everybody', { timeout: 120_000 }, () => {
  const { factory, held, aborted } = createFixture()
  const errors: Error[] = []
  let shared: SharedServers
  let url: string
  const http = createServer(async (request, response) => {
    const { 'x-agent': agent } = request.headers
    const auth = { token: '', clientId: String(agent), scopes: [] }
    let text = ''
    for await (const chunk of request.setEncoding('utf8')) text += chunk
    if (!shared.serve(Object.assign(request, { auth }), response, JSON.parse(text))) response.writeHead(421).end()
  })

  before(async () => {
    shared = await createSharedServers(factory, { keepAliveMs: KEEP_ALIVE_MS, onerror: (error) => errors.push(error) })
    http.listen(0, '127.0.0.1')
    await once(http, 'listening')
    url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`
  })
  after(async () => {
    http.closeAllConnections()
    http.close()
    await once(http, 'close')
  })

  function toRaw(era: (typeof ERAS)[number], agent: string, name: string, id: unknown, args: object): RawRequest {
    const { body, headers } = toolCall(era, 1, name, args, `token of ${JSON.stringify(args)}`)
    return { body: { ...body, id }, headers: { ...headers, 'x-agent': agent } }
  }

  /** A call that is never answered: its client can only go away. */
  function openHeld(era: (typeof ERAS)[number], nonce: string, id: unknown = 1) {
    const raw = toRaw(era, 'holder', 'hold', id, { nonce })
    const text = JSON.stringify(raw.body)
    const headers = {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...raw.headers,
    }
    const request = openRequest(url, { method: 'POST', agent: false, headers }).on('error', () => {})
    request.end(text)
    return request
  }

  async function until(isSo: () => boolean): Promise<void> {
    for (const end = Date.now() + 20_000; !isSo(); await sleep(5)) assert.ok(Date.now() < end, isSo.toString())
  }

  for (const era of ERAS) {
    test(`gives ${CLIENTS} clients that all use the same ids their own answers, while others go away (${era})`, async () => {
      const ask = async (client: number, round: number, id: unknown) => {
        const agent = `agent-${client % AGENTS}`
        const nonce = `${client}/${round}`
        const name = (client + round) % 5 === 0 ? 'fail' : 'who'
        const { status, text } = await sendRaw({ url }, toRaw(era, agent, name, id, { nonce, ms: (client * 7) % 5 }))
        const { result, error, ...more } = messageIn(text)
        assert.equal(status, 200)
        assert.deepEqual(more, { jsonrpc: '2.0', id })
        assert.equal(name === 'fail' ? error.message : result.content[0].text, `${agent} ${nonce}`)
      }
      for (let round = 0; round < ROUNDS; round++) {
        const id = IDS[round % IDS.length]
        const leavers = Array.from({ length: 4 }, (_, index) => `${era} leaver ${round}/${index}`)
        const requests = leavers.map((nonce) => openHeld(era, nonce, id))
        const asking = Array.from({ length: CLIENTS }, (_, client) => ask(client, round, id))
        await until(() => leavers.every((nonce) => held.has(nonce)))
        for (const request of requests) request.destroy()
        await Promise.all(asking)
        await until(() => leavers.every((nonce) => aborted.includes(nonce)))
      }
      await until(() => shared.pending() === 0)
    })

    test(`ends the call of a client that goes away, and none of the others with its id (${era})`, async () => {
      const nonces = ['a', 'b', 'c'].map((name) => `${era} ${name}`)
      const requests = nonces.map((nonce) => openHeld(era, nonce))
      await until(() => nonces.every((nonce) => held.has(nonce)))
      requests[1]?.destroy()
      await until(() => !held.has(nonces[1] ?? ''))
      // Whatever else it had reached would be aborted as soon.
      await sleep(50)
      assert.deepEqual(
        nonces.filter((nonce) => held.has(nonce)),
        [nonces[0], nonces[2]],
      )
      assert.equal(shared.pending(), 2)
      for (const request of requests) request.destroy()
      await until(() => shared.pending() === 0 && held.size === 0)
    })

    test(`tells progress to the call that it belongs to, with the token of its client (${era})`, async () => {
      await Promise.all(
        Array.from({ length: 16 }, async (_, client) => {
          const raw = toRaw(era, `agent-${client}`, 'count', 1, { nonce: client })
          const { text, headers } = await sendRaw({ url }, raw)
          assert.equal(headers['content-type'], 'text/event-stream')
          const messages = Array.from(text.matchAll(/^data: (.*)$/gm), ([, data]) => JSON.parse(data ?? ''))
          const told = messages
            .slice(0, -1)
            .map(({ params }) => [params.progressToken, params.progress, params.message])
          const mine = `agent-${client} ${client}`
          const token = `token of ${JSON.stringify({ nonce: client })}`
          assert.deepEqual(
            told,
            [1, 2, 3].map((progress) => [token, progress, mine]),
          )
          assert.equal(messages.at(-1).result.content[0].text, mine)
        }),
      )
      assert.equal(shared.pending(), 0)
    })
  }

  test('keeps a stream of the 2025 era from being silent, and is silent in JSON', async () => {
    const [legacy, modern] = await Promise.all(
      ERAS.map((era) => sendRaw({ url }, toRaw(era, 'slow', 'who', 1, { nonce: 1, ms: 4 * KEEP_ALIVE_MS }))),
    )
    assert.match(legacy?.text ?? '', /^(: keepalive\n\n)+event: message\ndata: .*\n\n$/)
    assert.equal(modern?.headers['content-type'], 'application/json')
    assert.equal(messageIn(modern?.text ?? '').result.content[0].text, 'slow 1')
  })

  test('leaves what it could not answer as the SDK does to the SDK', async () => {
    const call = (era: (typeof ERAS)[number], more: object, headers = {}): RawRequest => {
      const raw = toRaw(era, 'a', 'who', 1, {})
      return { body: { ...(raw.body as object), ...more }, headers: { ...raw.headers, ...headers } }
    }
    const left = ERAS.flatMap((era) => [
      ...[null, 1.5, 2 ** 60, true, [1], {}].map((id) => call(era, { id })),
      call(era, { method: 'initialize' }, { 'mcp-method': 'initialize' }),
      call(era, { method: 'logging/setLevel' }, { 'mcp-method': 'logging/setLevel' }),
      call(era, { method: 'notifications/cancelled', params: { requestId: 1 } }),
      call(era, { method: 'tools/list' }, { 'mcp-method': 'tools/list' }),
      call(era, { jsonrpc: '1.0' }),
      call(era, { more: 1 }),
      { ...call(era, {}), body: [call(era, {}).body] },
    ])
    for (const raw of left) assert.equal((await sendRaw({ url }, raw)).status, 421, JSON.stringify(raw))
    assert.equal(shared.pending(), 0)
    assert.deepEqual(errors, [])
  })
})

import assert from 'node:assert/strict'
import type { AddressInfo } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { type McpServerFactory, Server } from '@modelcontextprotocol/server'
import Fastify, { type FastifyBaseLogger } from 'fastify'
import { resolveIdentity } from '../../server/db/scope.ts'
import { sendMessage } from '../../server/domain/messages.ts'
import { hashToken } from '../../server/domain/tokens.ts'
import { createLogger } from '../../server/http/log.ts'
import { type McpEndpointOptions, mcpEndpoint } from '../../server/mcp/endpoint.ts'
import { createServerFactory } from '../../server/mcp/server.ts'
import { createWaiters } from '../../server/wakes/waiters.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { messageIn, type RawRequest, REVISION, sendRaw, toolCall } from '../helpers/mcp.ts'
import { DEFAULT_LIMITS, type SeededAgent, seed } from '../helpers/seed.ts'

const VERSION = 'mcp-protocol-version'
const META = {
  'io.modelcontextprotocol/protocolVersion': REVISION,
  'io.modelcontextprotocol/clientCapabilities': {},
}
const NO_ID = '00000000-0000-4000-8000-000000000000'
const HEADERS = ['content-type', 'cache-control', 'connection', 'x-accel-buffering', 'allow', 'retry-after'] as const

interface Mount {
  url: string
  logs: string[]
  close(): Promise<void>
}

describe('the one server for everybody answers as the SDK does with a server per request', { timeout: 120_000 }, () => {
  let database: TestDatabase
  let shared: Mount
  let perRequest: Mount
  let alice: SeededAgent

  before(async () => {
    database = await createTestDatabase()
    ;({ alice } = await seed(database, 'acme', ['alice', 'bob']))
    shared = await mount()
    perRequest = await mount(withoutShared)
  })
  after(async () => {
    await Promise.all([shared.close(), perRequest.close()])
    await database.drop()
  })

  async function mount(change: (factory: McpServerFactory) => McpServerFactory = (factory) => factory): Promise<Mount> {
    const logs: string[] = []
    const log = createLogger('trace', { write: (line) => void logs.push(line) }) as unknown as FastifyBaseLogger
    const waiters = createWaiters(DEFAULT_LIMITS)
    const options: McpEndpointOptions = {
      log,
      waiters,
      version: '0.0.0-test',
      scopeFor: ({ tokenHash }) => ({ ...alice.scope, tokenHash }),
      async authenticate({ headers }) {
        const tokenHash = hashToken(String(headers.authorization).replace('Bearer ', ''))
        return { tokenHash, identity: await resolveIdentity(database.api, tokenHash) }
      },
    }
    const app = Fastify()
    await app.register(mcpEndpoint, { ...options, factory: change(createServerFactory(options)) })
    await app.listen({ host: '127.0.0.1', port: 0 })
    const url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`
    return { url, logs, close: () => app.close() }
  }

  /** The first two that it makes are to serve everybody: they can do nothing, and everything is left to the SDK. */
  function withoutShared(factory: McpServerFactory): McpServerFactory {
    let made = 0
    return (context) => {
      made++
      return made > 2 ? factory(context) : new Server({ name: 'none', version: '0' }, { capabilities: {} })
    }
  }

  /** What one mount says to a request, and whether it took the path of one server for everybody, which knows its lengths. */
  async function ask({ url, logs }: Mount, raw: RawRequest) {
    logs.length = 0
    const { status, headers, text } = await sendRaw({ url }, { token: alice.token, ...raw })
    const told = logs.map((line) => JSON.parse(line)).map(({ level, reason, msg }) => ({ level, reason, msg }))
    const isStream = headers['content-type'] === 'text/event-stream'
    return {
      answer: {
        status,
        headers: Object.fromEntries(HEADERS.map((name) => [name, headers[name]])),
        // The digits of a fence are new in each answer.
        text: text.replaceAll(/\bmessage-[0-9a-f]{16}\b/g, 'message-'),
        told,
      },
      isShared: headers['content-length'] !== undefined && (isStream || status === 200),
    }
  }

  async function compare(raw: RawRequest): Promise<boolean> {
    const [here, there] = [await ask(shared, raw), await ask(perRequest, raw)]
    assert.deepEqual(here.answer, there.answer, JSON.stringify(raw))
    assert.ok(!there.isShared, `the SDK's path was not taken: ${JSON.stringify(raw)}`)
    return here.isShared
  }

  /** A request of an era, complete but for what `headers` changes. */
  function toRaw(era: 'legacy' | 'modern', method: string, params?: object, headers: Record<string, string> = {}) {
    const message = { jsonrpc: '2.0', id: 1, method }
    if (era === 'legacy') {
      return { body: { ...message, ...(params && { params }) }, headers: { [VERSION]: '2025-11-25', ...headers } }
    }
    const { name, uri } = (params ?? {}) as { name?: unknown; uri?: unknown }
    const named = method === 'resources/read' ? uri : /^(?:tools\/call|prompts\/get)$/.test(method) ? name : undefined
    return {
      body: { ...message, params: { ...params, _meta: META } },
      headers: {
        [VERSION]: REVISION,
        'mcp-method': method,
        ...(typeof named === 'string' && { 'mcp-name': named }),
        ...headers,
      },
    }
  }

  const eras = ['legacy', 'modern'] as const
  const tool = (name: unknown, args?: unknown) => [
    'tools/call',
    { name, ...(args !== undefined && { arguments: args }) },
  ]
  /** And whether it goes to the one server. */
  const methods: [method: string, params: object | undefined, isShared: boolean][] = [
    ['tools/list', undefined, true],
    ['tools/list', { cursor: 'x' }, true],
    ['tools/list', { cursor: 1 }, true],
    ['prompts/list', undefined, true],
    ['prompts/get', { name: 'inbox' }, true],
    ['prompts/get', { name: 'none' }, true],
    ['prompts/get', { name: 'inbox', arguments: { a: 1 } }, true],
    ['prompts/get', {}, true],
    ...(
      [
        tool('inbox', {}),
        tool('inbox'),
        tool('inbox', { all_agents: true, done: [NO_ID] }),
        tool('inbox', { all: 1 }),
        tool('inbox', 'text'),
        tool('inbox', null),
        tool('inbox', []),
        tool('list_agents', {}),
        tool('recall', {}),
        tool('recall', { limit: 'many' }),
        tool('message_status', { message_id: NO_ID }),
        tool('unsend', { message_id: NO_ID }),
        tool('send_message', { to: 'nobody', content: 'hi' }),
        tool('send_message', {}),
        tool('reply', { message_id: NO_ID, content: 'hi' }),
        tool('none', {}),
        tool('', {}),
        tool('ïnbox', {}),
        tool(1, {}),
        tool(undefined, {}),
      ] as [string, object][]
    ).map(([method, params]): [string, object, boolean] => [method, params, true]),
    ['resources/list', undefined, false],
    ['resources/read', { uri: 'patchcord://inbox' }, false],
    ['completion/complete', {}, false],
    ['ping', undefined, false],
    ['server/discover', undefined, false],
    ['logging/setLevel', { level: 'info' }, false],
    ['resources/subscribe', { uri: 'a' }, false],
    ['tasks/get', { taskId: '1' }, false],
    ['initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'a', version: '1' } }, false],
    ['initialize', { protocolVersion: '1999-01-01', capabilities: {}, clientInfo: { name: 'a', version: '1' } }, false],
    ['initialize', {}, false],
    ['none', undefined, false],
    ['', undefined, false],
    ['constructor', undefined, false],
  ]

  for (const era of eras) {
    test(`by every method, with right and with wrong parameters (${era})`, async () => {
      const { bob } = await seed(database, `${era}-mail`, ['bob', 'carol'])
      await bob((scope) => sendMessage(scope, { to: 'carol', content: 'hello' } as Parameters<typeof sendMessage>[1]))
      for (const [method, params, isShared] of methods) {
        const raw = toRaw(era, method, params)
        const took = await compare(raw)
        // A name that is none, or not ASCII, stands in no header of the 2026 era as it is.
        const { name } = (params ?? {}) as { name?: unknown }
        const isNamed =
          !/^(?:tools\/call|prompts\/get)$/.test(method) || /^[ -~]*$/.test(typeof name === 'string' ? name : 'ï')
        assert.equal(took, isShared && (era === 'legacy' || isNamed), JSON.stringify(raw))
      }
    })

    test(`to messages of every shape (${era})`, async () => {
      const { body, headers } = toRaw(era, 'tools/list')
      const ids = [
        0,
        -1,
        1.5,
        2 ** 53 - 1,
        2 ** 53,
        1e300,
        '',
        'a',
        'x'.repeat(10_000),
        'ü',
        null,
        true,
        [],
        {},
        undefined,
      ]
      const changes: unknown[] = [
        ...ids.map((id) => ({ ...body, id })),
        ...['1.0', 2, null, undefined].map((jsonrpc) => ({ ...body, jsonrpc })),
        ...[1, null, undefined, ['tools/list'], 'Tools/List', 'tools/list '].map((method) => ({ ...body, method })),
        ...[[], 'a', 1, null].map((params) => ({ ...body, params })),
        ...[[], 'a', 1, null, {}, { progressToken: 1 }, { progressToken: {} }, { ...META, progressToken: 'p' }].map(
          (_meta) => ({ ...body, params: { _meta } }),
        ),
        ...[{ 'io.modelcontextprotocol/protocolVersion': 1 }, { 'io.modelcontextprotocol/clientInfo': {} }].map(
          (more) => ({ ...body, params: { _meta: { ...META, ...more } } }),
        ),
        { ...body, params: { _meta: { ...META, 'io.modelcontextprotocol/protocolVersion': '2027-01-01' } } },
        { ...body, params: { _meta: { 'io.modelcontextprotocol/protocolVersion': REVISION } } },
        { ...body, params: { ...body.params, inputResponses: {}, requestState: 1 } },
        { ...body, more: 1 },
        { ...body, result: {} },
        { ...body, error: { code: 1, message: 'm' } },
        { jsonrpc: '2.0', id: 1, result: {} },
        { jsonrpc: '2.0', id: 1, error: { code: 1, message: 'm' } },
        { jsonrpc: '2.0', method: 'notifications/initialized' },
        {
          jsonrpc: '2.0',
          method: 'notifications/cancelled',
          params: { requestId: 1, ...(era === 'modern' && { _meta: META }) },
        },
        { jsonrpc: '2.0', method: 'tools/list' },
        [],
        [body],
        [body, { ...body, id: 2 }],
        [body, { jsonrpc: '2.0', method: 'notifications/initialized' }],
        [body, 1],
        null,
        1,
        'a',
        {},
        '{"jsonrpc":"2.0","id":1,"method":"tools/list","__proto__":{"a":1}}',
        '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"__proto__":{"a":1}}}',
        '{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}',
        '{"jsonrpc":"2.0"',
        '',
        '[[[[[',
        '['.repeat(65),
        `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":${'{"a":'.repeat(70)}1${'}'.repeat(71)}`,
      ]
      let took = 0
      for (const change of changes) took += Number(await compare({ body: change, headers }))
      assert.ok(took >= 6, `${took} went to the one server`)
    })

    test(`to headers of every kind (${era})`, async () => {
      const call = toRaw(era, 'tools/call', { name: 'inbox', arguments: {} })
      const changes: Record<string, string>[] = [
        {},
        ...[
          '',
          '*/*',
          'application/json',
          'text/event-stream',
          'text/event-stream,application/json;q=0.1',
          'TEXT/EVENT-STREAM, APPLICATION/JSON',
        ].map((accept) => ({ accept })),
        ...[
          '2025-11-25',
          '2025-06-18',
          '2024-11-05',
          '2024-10-07',
          REVISION,
          '2027-01-01',
          '1999-01-01',
          '',
          ' 2025-11-25 ',
          'x',
        ].map((version) => ({ [VERSION]: version })),
        ...['tools/call', 'tools/list', '', ' tools/call '].map((method) => ({ 'mcp-method': method })),
        ...[
          'inbox',
          'recall',
          '',
          ' inbox ',
          'INBOX',
          '=?base64?aW5ib3g=?=',
          '=?base64?!?=',
          '=?base64?aW5ib3g=?= ',
        ].map((name) => ({
          'mcp-name': name,
        })),
        ...[
          'application/json; charset=utf-8',
          'application/json;',
          'APPLICATION/JSON',
          'text/plain',
          'application/jsonp',
          'application/json, text/plain',
        ].map((type) => ({ 'content-type': type })),
        { 'mcp-session-id': 'one' },
        { 'last-event-id': '1' },
        { 'user-agent': 'codex-mcp-client/1' },
        { 'transfer-encoding': 'chunked' },
        { 'content-encoding': 'identity' },
      ]
      let took = 0
      for (const change of changes) {
        took += Number(await compare({ ...call, headers: { ...call.headers, ...change } }))
      }
      for (const missing of [VERSION, 'mcp-method', 'mcp-name']) {
        const headers = Object.fromEntries(Object.entries(call.headers).filter(([name]) => name !== missing))
        took += Number(await compare({ ...call, headers }))
      }
      assert.ok(took >= 8, `${took} went to the one server`)
      // The header of the 2026 era says another name than the body, though with the same characters.
      await compare(toRaw(era, 'tools/call', { name: '=?base64?aW5ib3g=?=' }))
      for (const method of ['GET', 'DELETE', 'PUT', 'PATCH', 'OPTIONS']) await compare({ ...call, method })
    })
  }

  test('to 64 clients of 16 agents at once, all of whom use the id 1', async () => {
    const names = Array.from({ length: 16 }, (_, index) => `agent-${index}`)
    const agents = Object.values(await seed(database, 'many', names))
    const ask = async (client: number) => {
      const { agent, namespace, token } = agents[client % agents.length] as SeededAgent
      for (const era of eras) {
        const { text } = await sendRaw(shared, { token, ...toolCall(era, 1, 'inbox', {}) })
        const { id, result } = messageIn(text)
        assert.deepEqual([id, result.content[0].text.split(' ')[0]], [1, `${agent}@${namespace}`])
      }
    }
    for (let round = 0; round < 4; round++) await Promise.all(Array.from({ length: 64 }, (_, client) => ask(client)))
  })
})

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import type { RealtimeSource } from '../../server/domain/realtime.ts'
import { createTicketSigner, type SigningKey, type TicketClaims } from '../../server/domain/tickets.ts'
import type { RealtimeLimits, RealtimeTimes } from '../../server/realtime/connection.ts'
import { attachRealtime, REALTIME_PATH } from '../../server/realtime/endpoint.ts'
import { createHub } from '../../server/realtime/hub.ts'
import type { Wake } from '../../server/wakes/bus.ts'

const SECRET = 'a secret of at least thirty-two characters'
const PATIENCE_MS = 10_000

export const ALICE = {
  ns: '01890000-0000-7000-8000-00000000000a',
  agent: '01890000-0000-7000-8000-0000000000a1',
  token: '01890000-0000-7000-8000-0000000000f1',
}
export const BOB = {
  ns: ALICE.ns,
  agent: '01890000-0000-7000-8000-0000000000b1',
  token: '01890000-0000-7000-8000-0000000000f2',
}

export const topicOf = ({ ns, agent }: typeof ALICE) => `realtime:agent:${ns}:${agent}`
export const inSeconds = (seconds: number) => Math.floor(Date.now() / 1000) + seconds

export function wakeFor(agent: typeof ALICE, id = '01890000-0000-7000-8000-00000000abcd'): Wake {
  const names = { from: 'alice', to: 'bob', namespace: 'acme' }
  return {
    id,
    toNamespaceId: agent.ns,
    toAgentId: agent.agent,
    ...names,
    kind: 'message',
    urgency: 'normal',
    thread: null,
  }
}

export interface EndpointOptions {
  times?: Partial<RealtimeTimes>
  connectionsPerTokenMax?: number
  limits?: Partial<RealtimeLimits>
  signing?: SigningKey
  /** Without one nothing can be replayed or subscribed to. */
  source?: RealtimeSource
  onRequest?: (request: IncomingMessage, response: ServerResponse) => void
}

const NO_DATABASE: RealtimeSource = {
  listRecentWakes: () => Promise.reject(new Error('this endpoint has no database')),
  readChanges: () => Promise.reject(new Error('this endpoint has no database')),
  checkFilters: () => Promise.reject(new Error('this endpoint has no database')),
}

/** A real HTTP server with the endpoint and nothing else, refusals without their delay. */
export async function startEndpoint(options: EndpointOptions = {}) {
  const signer = await createTicketSigner(options.signing ?? { algorithm: 'HS256', secret: SECRET })
  const hub = createHub()
  const errors: object[] = []
  const server = createServer(options.onRequest)
  const endpoint = attachRealtime({
    server,
    hub,
    source: options.source ?? NO_DATABASE,
    verifier: signer,
    limits: { connectionsPerTokenMax: options.connectionsPerTokenMax ?? 20, ...options.limits },
    log: { debug: () => undefined, error: (fields) => errors.push(fields) },
    isHostAllowed: (host) => host.startsWith('127.0.0.1:'),
    isOriginAllowed: (origin, host) => origin === `http://${host}`,
    times: { connectErrorDelayMs: 0, joinErrorDelayMs: 0, sweepMs: 20, changesPollMs: 20, ...options.times },
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const sign = (claims: Partial<TicketClaims>) => signer.sign(claims as TicketClaims)
  const ticket = (agent: typeof ALICE, claims: object = {}) =>
    sign({ role: 'patchcord_ticket', exp: inSeconds(60), ...agent, ...claims })
  const apikey = (claims: object = {}) => sign({ role: 'anon', exp: inSeconds(60), ...claims })

  return {
    hub,
    port,
    signer,
    sign,
    ticket,
    apikey,
    endpoint,
    /** What was logged as an error: a test that ends with some has found a defect. */
    errors,
    async open(key?: string, headers: Record<string, string> = {}) {
      const url = `ws://127.0.0.1:${port}${REALTIME_PATH}?apikey=${key ?? (await apikey())}&vsn=1.0.0`
      return await openClient(url, headers)
    },
    async stop() {
      await endpoint.close()
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
export type Endpoint = Awaited<ReturnType<typeof startEndpoint>>
export type Client = Awaited<ReturnType<typeof openClient>>

/** A test with an endpoint of its own, which must not have logged an error by its end. */
export function endpointTest(
  name: string,
  work: (endpoint: Endpoint) => Promise<void>,
  options: EndpointOptions = {},
): void {
  test(name, async () => {
    const endpoint = await startEndpoint(options)
    try {
      await work(endpoint)
    } finally {
      await endpoint.stop()
    }
    assert.deepEqual(endpoint.errors, [])
  })
}

/** A WebSocket whose text frames are read one by one, as they stood on the wire. */
async function openClient(url: string, headers: Record<string, string>) {
  const socket = new WebSocket(url, { headers })
  const frames: string[] = []
  const readers: ((frame: string) => void)[] = []
  socket.on('message', (data) => {
    const reader = readers.shift()
    if (reader) reader(data.toString())
    else frames.push(data.toString())
  })
  const closed = new Promise<{ code: number; reason: string }>((resolve) => {
    socket.on('close', (code, reason) => resolve({ code, reason: reason.toString() }))
  })
  await once(socket, 'open')
  return {
    socket,
    frames,
    send: (frame: object | string) => socket.send(typeof frame === 'string' ? frame : JSON.stringify(frame)),
    next: () =>
      within(
        'frame',
        new Promise<string>((resolve) => {
          const frame = frames.shift()
          if (frame === undefined) readers.push(resolve)
          else resolve(frame)
        }),
      ),
    closed: () => within('close', closed),
    close: () => socket.terminate(),
  }
}

/** Fails loudly instead of hanging the run. */
export async function within<T>(what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no ${what} within ${PATIENCE_MS} ms`)), PATIENCE_MS)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

export function joinFrame(agent: typeof ALICE, accessToken: string | undefined, overrides: object = {}) {
  return {
    topic: topicOf(agent),
    event: 'phx_join',
    payload: {
      config: { broadcast: { ack: false, self: false }, presence: { key: '' }, postgres_changes: [], private: true },
      access_token: accessToken,
    },
    ref: '1',
    join_ref: '1',
    ...overrides,
  }
}

/** Joins and reads the reply, which the caller compares or ignores. */
export async function join(client: Client, agent: typeof ALICE, accessToken: string, overrides: object = {}) {
  client.send(joinFrame(agent, accessToken, overrides))
  return await client.next()
}

/** Bytes over bare TCP, for what no WebSocket client would send. */
export function openTcp(port: number): Socket {
  return connect({ port, host: '127.0.0.1' })
}

export function handshakeText(path: string, headers: Record<string, string> = {}): string {
  const all = {
    Host: '127.0.0.1:1',
    Upgrade: 'websocket',
    Connection: 'Upgrade',
    'Sec-WebSocket-Key': 'iyCE9WSD7xsCMfE+VWloqg==',
    'Sec-WebSocket-Version': '13',
    ...headers,
  }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`)
  return `GET ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`
}

/** Everything the server sends until it closes the connection. */
export async function readAll(socket: Socket): Promise<Buffer> {
  const chunks: Buffer[] = []
  socket.on('data', (chunk) => chunks.push(chunk))
  socket.on('error', () => undefined)
  await within('end of the connection', once(socket, 'close'))
  return Buffer.concat(chunks)
}

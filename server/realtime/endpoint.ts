import { type IncomingMessage, type Server, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import { WebSocket, WebSocketServer } from 'ws'
import type { RealtimeSource } from '../domain/realtime.ts'
import { type TicketClaims, TicketError, type TicketSigner } from '../domain/tickets.ts'
import { PatchcordError } from '../errors.ts'
import { verifyTicket } from './authorize.ts'
import { createChangeFeed } from './change-feed.ts'
import { Connection, type RealtimeLimits, type RealtimeLog, type RealtimeTimes } from './connection.ts'
import { createDeadlines } from './deadlines.ts'
import type { Hub } from './hub.ts'
import { createJoinRate, JOIN_LIMITS, type JoinRate } from './join-rate.ts'
import { findSerializer, type Serializer } from './serializers.ts'

export const REALTIME_PATH = '/realtime/v1/websocket'

/** A join with its JWT is under 4 KiB, and nothing longer is of use here. */
const FRAME_BYTES_MAX = 64 * 1024
/** The close code of ws for such a frame (RFC 6455, 7.4.1). */
const TOO_LONG = 1009
/** How long sockets may take to answer the close frame of a shutdown. */
const SHUTDOWN_MS = 1000

/** The delays and the idle time are Supabase Realtime's own. */
const TIMES: RealtimeTimes = {
  connectErrorDelayMs: 2_000,
  joinErrorDelayMs: 5_000,
  idleMs: 60_000,
  noChannelMs: 600_000,
  sweepMs: 250,
  changesPollMs: 500,
  joinWaitMs: 3_000,
  subscribeRetryMs: 5_000,
  bufferedBytesMax: 256 * 1024,
}

/** Of a socket, and of a token over all of its sockets. */
const LIMITS = { connectionsWithoutTokenMax: 1_000, channelsMax: 100, joinsBurst: 20, joinsPerToken: JOIN_LIMITS }

export interface RealtimeOptions {
  server: Server
  hub: Hub
  source: RealtimeSource
  verifier: TicketSigner
  limits: Pick<RealtimeLimits, 'connectionsPerTokenMax'> & Partial<RealtimeLimits>
  log: RealtimeLog
  isHostAllowed(host: string): boolean
  isOriginAllowed(origin: string, host: string): boolean
  /** Of every connection that asks to become a WebSocket. */
  onHandshake?(socket: Duplex): void
  times?: Partial<RealtimeTimes>
}

/** What a handshake is answered instead of 101. */
class Refused extends Error {
  readonly status: number
  readonly body: string
  readonly isDelayed: boolean

  constructor(status: number, body: object | string, isDelayed = false) {
    super(`refused with ${status}`)
    this.status = status
    this.body = typeof body === 'string' ? body : JSON.stringify(body)
    this.isDelayed = isDelayed
  }
}

/**
 * Serves WebSockets at REALTIME_PATH of the server. `close` sends 1012 (service restart) to everybody and resolves when
 * all sockets are gone, which it sees to.
 */
export function attachRealtime(options: RealtimeOptions): { close(): Promise<void> } {
  const times = { ...TIMES, ...options.times }
  const feed = createChangeFeed({
    source: options.source,
    pollMs: times.changesPollMs,
    onError: (error) => logReadFailure(options.log, error),
  })
  const limits = { ...LIMITS, ...options.limits }
  const joinRate = createJoinRate(limits.joinsPerToken)
  const deadlines = createDeadlines<Connection>(times.sweepMs, (connection) => connection.look())
  const context = { ...options, limits, times, feed, joinRate, deadlines, ...createDelays() }
  const wss = createWebSocketServer()
  const sockets = new OpenSockets(options.hub, limits)
  const handshakes = new Set<Duplex>()
  let isClosing = false

  async function upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const { serializer, claims, tokenId } = await admit(request, options, joinRate)
    if (!sockets.hasRoom(tokenId)) throw new Refused(429, { error: 'Too many connected users' }, true)
    if (isClosing) throw new Refused(503, { error: 'Realtime is restarting' })
    if (socket.destroyed) return
    wss.handleUpgrade(request, socket, head, (webSocket) => {
      const connection = new Connection(webSocket, serializer, claims, context)
      sockets.add(connection, tokenId)
      webSocket.on('close', () => sockets.remove(connection))
    })
  }

  async function onUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    if (!isWebSocket(request)) return reinject(options.server, request, socket, head)
    options.onHandshake?.(socket)
    request.headers.upgrade = 'websocket'
    const onError = () => socket.destroy()
    socket.on('error', onError)
    handshakes.add(socket)
    socket.once('close', () => handshakes.delete(socket))
    try {
      await upgrade(request, socket, head)
      handshakes.delete(socket)
      socket.off('error', onError)
    } catch (error) {
      const refused = error instanceof Refused ? error : new Refused(500, { error: 'Error connecting to Realtime' })
      if (refused !== error) options.log.error({ err: error }, 'realtime handshake failed')
      context.later(refused.isDelayed ? times.connectErrorDelayMs : 0, () => refuse(socket, refused))
    }
  }

  const listener = (request: IncomingMessage, socket: Duplex, head: Buffer) => void onUpgrade(request, socket, head)
  options.server.on('upgrade', listener)
  return {
    async close() {
      isClosing = true
      deadlines.close()
      feed.close()
      context.clear()
      for (const socket of handshakes) socket.destroy()
      await closeAll(sockets.all)
      options.server.off('upgrade', listener)
    },
  }
}

/** Who is connected, and whether there is room for one more: of an API token, or of all together that name none. */
class OpenSockets {
  readonly all = new Set<Connection>()
  readonly #withoutToken = new Set<Connection>()
  readonly #hub: Hub
  readonly #limits: RealtimeLimits

  constructor(hub: Hub, limits: RealtimeLimits) {
    this.#hub = hub
    this.#limits = limits
  }

  hasRoom(tokenId: string | null): boolean {
    const { connectionsPerTokenMax, connectionsWithoutTokenMax } = this.#limits
    if (tokenId === null) return this.#withoutToken.size < connectionsWithoutTokenMax
    return this.#hub.hasRoom(tokenId, connectionsPerTokenMax)
  }

  add(connection: Connection, tokenId: string | null): void {
    this.all.add(connection)
    this.#hub.addConnection(connection)
    if (tokenId === null) this.#withoutToken.add(connection)
    else this.#hub.tie(connection, tokenId, this.#limits.connectionsPerTokenMax)
  }

  remove(connection: Connection): void {
    this.all.delete(connection)
    this.#withoutToken.delete(connection)
    connection.dispose()
  }
}

/** A frame that is too long ends the TCP connection, without a close frame: so does the original's server. */
class RealtimeSocket extends WebSocket {
  override close(code?: number, data?: string | Buffer): void {
    if (code === TOO_LONG) this.terminate()
    else super.close(code, data)
  }
}

function createWebSocketServer(): WebSocketServer {
  const wss = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: FRAME_BYTES_MAX,
    WebSocket: RealtimeSocket,
  })
  wss.on('headers', (headers) => {
    headers.push('cache-control: max-age=0, private, must-revalidate', `date: ${new Date().toUTCString()}`)
  })
  return wss
}

/** While the database is away every reader of it says so; the next read covers the same time. */
function logReadFailure(log: RealtimeLog, error: unknown): void {
  const isPassing = error instanceof PatchcordError && error.code === 'unavailable'
  log[isPassing ? 'debug' : 'error']({ err: error }, 'realtime changes could not be read')
}

/** Who may open a WebSocket, before there is one. Throws Refused. */
async function admit(request: IncomingMessage, options: RealtimeOptions, joinRate: JoinRate) {
  checkOrigin(request, options)
  const { serializer, apikey } = readHandshake(request)
  const claims = await verifyApikey(apikey, options)
  const tokenId = typeof claims.token === 'string' ? claims.token : null
  if (tokenId !== null && joinRate.isSpent(tokenId)) {
    throw new Refused(429, { error: 'Too many joins per second' }, true)
  }
  return { serializer, claims, tokenId }
}

/** Tells everybody of the restart, and cuts off who does not answer. */
async function closeAll(connections: Set<Connection>): Promise<void> {
  for (const connection of connections) connection.close(1012)
  await untilEmpty(connections, SHUTDOWN_MS)
  for (const connection of [...connections]) connection.terminate()
  await untilEmpty(connections, SHUTDOWN_MS)
}

/** Before anything else: a page of another site, or a name that was made to point here, learns nothing. */
function checkOrigin({ headers }: IncomingMessage, options: RealtimeOptions): void {
  const host = headers.host ?? ''
  if (!options.isHostAllowed(host)) throw new Refused(421, { error: 'Host is not allowed' })
  const { origin } = headers
  if (origin !== undefined && !options.isOriginAllowed(origin, host)) {
    throw new Refused(403, { error: 'Origin is not allowed' })
  }
}

function readHandshake(request: IncomingMessage): { serializer: Serializer; apikey: string } {
  const [path, query] = (request.url ?? '').split('?', 2)
  if (path !== REALTIME_PATH) throw new Refused(404, 'Not Found')
  const parameters = new URLSearchParams(query)
  const serializer = findSerializer(parameters.get('vsn'))
  if (!serializer) throw new Refused(403, '')
  const header = request.headers['x-api-key']
  const apikey = (typeof header === 'string' && header) || parameters.get('apikey')
  if (!apikey) throw new Refused(401, { error: 'API key is missing' }, true)
  return { serializer, apikey }
}

async function verifyApikey(apikey: string, authority: RealtimeOptions): Promise<TicketClaims> {
  try {
    return await verifyTicket(apikey, authority)
  } catch (error) {
    if (!(error instanceof TicketError)) throw error
    throw new Refused(401, { error: error.fault === 'expired' ? 'Token has expired' : error.message }, true)
  }
}

function refuse(socket: Duplex, { status, body }: Refused): void {
  const isJson = body.startsWith('{')
  const lines = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    'cache-control: max-age=0, private, must-revalidate',
    'connection: close',
    `content-length: ${Buffer.byteLength(body)}`,
    ...(body === '' ? [] : [`content-type: ${isJson ? 'application/json' : 'text/html'}; charset=utf-8`]),
    `date: ${new Date().toUTCString()}`,
    'vary: accept-encoding',
    ...(status === 429 || status === 503 ? ['retry-after: 5'] : []),
  ]
  socket.once('finish', () => socket.destroy())
  socket.end(`${lines.join('\r\n')}\r\n\r\n${body}`)
}

/** RFC 9110, 7.8: a list of protocols; the original finds its own among others. */
function isWebSocket({ headers }: IncomingMessage): boolean {
  return (headers.upgrade ?? '').split(',').some((protocol) => protocol.trim().toLowerCase() === 'websocket')
}

/**
 * A server that listens for upgrades gets every request with an Upgrade header here, also the plain ones of clients that
 * offer h2c with each (Java's). RFC 9110, 7.8: the header may be ignored. So the request goes back to the server without it.
 */
function reinject(server: Server, request: IncomingMessage, socket: Duplex, head: Buffer): void {
  const hop = new Set(['upgrade', 'http2-settings', 'connection'])
  const lines = [`${request.method} ${request.url} HTTP/${request.httpVersion}`]
  for (let index = 0; index < request.rawHeaders.length; index += 2) {
    const name = request.rawHeaders[index] ?? ''
    if (!hop.has(name.toLowerCase())) lines.push(`${name}: ${request.rawHeaders[index + 1]}`)
  }
  socket.unshift(Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), head]))
  server.emit('connection', socket)
}

function createDelays() {
  const timers = new Set<NodeJS.Timeout>()
  return {
    later(delayMs: number, work: () => void): void {
      if (delayMs <= 0) {
        work()
        return
      }
      const timer = setTimeout(() => {
        timers.delete(timer)
        work()
      }, delayMs).unref()
      timers.add(timer)
    },
    clear(): void {
      for (const timer of timers) clearTimeout(timer)
      timers.clear()
    },
  }
}

async function untilEmpty(set: Set<unknown>, timeoutMs: number): Promise<void> {
  const deadline = performance.now() + timeoutMs
  while (set.size > 0 && performance.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 10))
}

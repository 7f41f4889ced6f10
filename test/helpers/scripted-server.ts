/**
 * A server for the listener to meet: ticket, inbox and lease over HTTP, and Realtime frames with the texts and key order
 * recorded from a real Supabase Realtime. Each answer can be scripted; the default is a healthy server.
 */
import { randomUUID } from 'node:crypto'
import http from 'node:http'
import https from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { type WebSocket, WebSocketServer } from 'ws'

export const NAMESPACE_UUID = '0197f7a0-0000-7000-8000-000000000001'
export const AGENT_UUID = '0197f7a0-0000-7000-8000-000000000002'

/** An HTTP answer, or what a broken server does instead. */
export type ScriptedAnswer =
  | { status: number; json?: unknown; text?: string; headers?: Record<string, string> }
  | 'hang'
  | 'reset'

export interface ScriptedRequest {
  method: string
  path: string
  token: string
  body: unknown
}

export interface Frame {
  topic: string
  event: string
  payload: Record<string, unknown>
  ref: string | null
  join_ref: string | null
}

/** What a recorded server did `ms` after a join; `{topic}`, `{channel}` and `{ref}` stand for those of the join. */
export type RecordedFrame = { ms: number } & ({ text: string } | { close: number } | { end: true })

/** What happens to a join: accepted, refused with the reason, never answered, or answered as it was recorded. */
export type JoinScript = 'ok' | 'silent' | { error: string } | { play: RecordedFrame[]; delayMsMax: number }

/** What happens to a WebSocket handshake. */
export type UpgradeScript =
  | 'accept'
  | 'hang'
  | { status: number; reason?: string; headers?: Record<string, string>; body?: string }

export interface Script {
  /** `count` is 1 for the first call; null or undefined: the healthy answer. */
  ticket?: (count: number, token: string) => ScriptedAnswer | null | undefined
  inbox?: (count: number) => ScriptedAnswer | null | undefined
  lease?: (count: number) => ScriptedAnswer | null | undefined
  upgrade?: (count: number) => UpgradeScript
  join?: (count: number, frame: Frame) => JoinScript
  isHeartbeatAnswered?: boolean
  kind?: 'broadcast' | 'postgres_changes'
  expiresInSeconds?: number
  agents?: Record<string, string>
}

export interface PendingMessage {
  message_id: string
  from: string
  sent_at: string
}

export class ScriptedConnection {
  readonly frames: Frame[] = []
  readonly url: string
  readonly socket: WebSocket
  joinRef: string | null = null
  topic = ''
  closeCode: number | null = null

  constructor(socket: WebSocket, url: string) {
    this.socket = socket
    this.url = url
  }

  send(event: string, payload: unknown, ref: string | null = null, topic = this.topic): void {
    this.socket.send(JSON.stringify({ ref, event, topic, payload }))
  }

  reply(frame: Frame, status: 'ok' | 'error', response: unknown): void {
    this.send('phx_reply', { status, response }, frame.ref, frame.topic)
  }

  play(recorded: RecordedFrame, join: Frame): void {
    if ('close' in recorded) this.socket.close(recorded.close)
    if ('end' in recorded) this.socket.terminate()
    if (!('text' in recorded)) return
    const channel = join.topic.replace(/^realtime:/, '')
    const text = recorded.text.replace('{topic}', join.topic).replace('{channel}', channel)
    this.socket.send(text.replace('{ref}', join.ref ?? ''))
  }

  /** As sent at the end of a token: the channel ends, the socket lives (transcripts 40, 7A). */
  expire(): void {
    const channel = this.topic.replace(/^realtime:/, '')
    this.send('system', { message: 'Token has expired 0 seconds ago', status: 'error', extension: 'system', channel })
    this.send('phx_close', {}, this.joinRef)
    this.joinRef = null
  }

  /** A broadcast from the database (transcript 72). */
  wake(payload: Record<string, unknown>): void {
    const meta = { id: payload.id }
    this.send('broadcast', { event: 'wake', meta, payload, type: 'broadcast' })
  }

  /** A row of the published table (transcript 01). */
  insert(record: Record<string, unknown>): void {
    const data = { table: 'agent_messages', type: 'INSERT', record, columns: [], errors: null, schema: 'patchcord' }
    const commit = new Date().toISOString()
    this.send('postgres_changes', { data: { ...data, commit_timestamp: commit }, ids: [59400683] })
  }
}

export class ScriptedServer {
  readonly requests: ScriptedRequest[] = []
  readonly connections: ScriptedConnection[] = []
  /** Every TCP connection, also those that never said a word. */
  connectionCount = 0
  /** Connections over TLS that went on with the session of an earlier one. */
  resumedCount = 0
  /** What the inbox holds as new. */
  pending: PendingMessage[] = []
  script: Script
  origin = ''
  onRequest: (request: ScriptedRequest) => void = () => {}
  readonly #http: http.Server | https.Server
  readonly #isSecure: boolean
  readonly #websockets = new WebSocketServer({ noServer: true, perMessageDeflate: false })
  readonly #sockets = new Set<Socket>()
  readonly #timers = new Set<NodeJS.Timeout>()
  #upgradeCount = 0
  #joinCount = 0

  /** With a key and a certificate it speaks https and wss. */
  constructor(script: Script = {}, tls?: { key: string; cert: string }) {
    this.script = script
    const answer = (request: http.IncomingMessage, response: http.ServerResponse) =>
      void this.#answer(request, response)
    this.#isSecure = tls !== undefined
    this.#http = tls === undefined ? http.createServer(answer) : https.createServer(tls, answer)
    this.#http.on('connection', (socket: Socket) => {
      this.connectionCount += 1
      this.#sockets.add(socket)
      socket.on('close', () => this.#sockets.delete(socket))
    })
    this.#http.on('secureConnection', (socket: TLSSocket) => {
      if (socket.isSessionReused()) this.resumedCount += 1
    })
    this.#http.on('upgrade', (request, socket, head) => this.#upgrade(request, socket as Socket, head))
  }

  async listen(port = 0): Promise<this> {
    await new Promise<void>((resolve, reject) => {
      this.#http.once('error', reject)
      this.#http.listen(port, '127.0.0.1', resolve)
    })
    this.origin = `${this.#isSecure ? 'https' : 'http'}://127.0.0.1:${this.port}`
    return this
  }

  get port(): number {
    return (this.#http.address() as AddressInfo).port
  }

  /** The newest connection. */
  get connection(): ScriptedConnection {
    const connection = this.connections.at(-1)
    if (connection === undefined) throw new Error('no connection yet')
    return connection
  }

  count(method: string, path: string): number {
    return this.requests.filter((request) => request.method === method && request.path.startsWith(path)).length
  }

  /** Ids that lease calls have reported as announced, in order. */
  get announced(): string[] {
    return this.requests.flatMap(({ method, path, body }) => {
      return method === 'PUT' && path === '/api/lease' ? (body as { announced: string[] }).announced : []
    })
  }

  /** Puts a message into the inbox, and unless told otherwise wakes the newest connection. */
  deliver(from: string, { isWoken = true, id = randomUUID() as string } = {}): string {
    this.pending.push({ message_id: id, from, sent_at: new Date().toISOString() })
    if (isWoken) this.connection.wake({ id, from, to: 'bob', kind: 'message', urgency: 'normal' })
    return id
  }

  /** Ends every TCP connection without a word, as a killed server does. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer)
    this.cut()
    await new Promise((resolve) => this.#http.close(resolve))
  }

  async #answer(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const path = request.url ?? ''
    const method = request.method ?? ''
    const token = (request.headers.authorization ?? '').replace('Bearer ', '')
    const text = await readText(request)
    const received = { method, path, token, body: text === '' ? null : JSON.parse(text) }
    this.requests.push(received)
    this.onRequest(received)
    const answer = this.#pickAnswer(method, path, token)
    if (answer === 'reset') request.socket.destroy()
    if (typeof answer === 'string') return
    const body = answer.text ?? JSON.stringify(answer.json ?? {})
    response.writeHead(answer.status, { 'content-type': 'application/json', ...answer.headers }).end(body)
  }

  #pickAnswer(method: string, path: string, token: string): ScriptedAnswer {
    if (path === '/api/realtime/ticket') {
      return this.script.ticket?.(this.count('GET', path), token) ?? { status: 200, json: this.#ticket(token) }
    }
    if (path.startsWith('/api/presence?inbox=')) return { status: 200, json: this.#inbox() }
    if (path.startsWith('/api/inbox')) {
      return this.script.inbox?.(this.count('GET', '/api/inbox')) ?? { status: 200, json: this.#inbox() }
    }
    if (path.startsWith('/api/lease')) {
      return this.script.lease?.(this.count(method, '/api/lease')) ?? { status: method === 'DELETE' ? 204 : 200 }
    }
    return { status: 404, text: '<html>not here</html>' }
  }

  #inbox() {
    return { pending_count: this.pending.length, pending: this.pending, agent_id: 'bob', namespace_id: 'acme' }
  }

  #ticket(token: string) {
    const isChanges = this.script.kind === 'postgres_changes'
    const binding = {
      event: 'INSERT',
      schema: 'patchcord',
      table: 'agent_messages',
      filter: `to_agent_uuid=eq.${AGENT_UUID}`,
    }
    return {
      namespace_ids: ['acme'],
      agent_id: this.script.agents?.[token] ?? 'bob',
      realtime_url: `${this.origin.replace('http', 'ws')}/realtime/v1/websocket`,
      apikey: 'scripted-apikey',
      jwt: `scripted.${this.requests.length}.jwt`,
      jwt_expires_in: this.script.expiresInSeconds ?? 600,
      topics: [
        {
          name: `realtime:agent:${NAMESPACE_UUID}:${AGENT_UUID}`,
          config: {
            broadcast: { ack: false, self: false },
            presence: { key: '', enabled: false },
            postgres_changes: isChanges ? [binding] : [],
            private: !isChanges,
          },
        },
      ],
    }
  }

  #upgrade(request: http.IncomingMessage, socket: Socket, head: Buffer): void {
    socket.on('error', () => {})
    this.#upgradeCount += 1
    const decision = this.script.upgrade?.(this.#upgradeCount) ?? 'accept'
    if (decision === 'hang') return
    if (decision !== 'accept') {
      socket.end(refuse(decision))
      return
    }
    this.#websockets.handleUpgrade(request, socket, head, (websocket) => {
      const connection = new ScriptedConnection(websocket, request.url ?? '')
      this.connections.push(connection)
      websocket.on('message', (data) => this.#receive(connection, JSON.parse(String(data)) as Frame))
      websocket.on('close', (code) => {
        connection.closeCode = code
      })
      websocket.on('error', () => {})
    })
  }

  #receive(connection: ScriptedConnection, frame: Frame): void {
    connection.frames.push(frame)
    if (frame.event === 'heartbeat') {
      if (this.script.isHeartbeatAnswered !== false) connection.reply(frame, 'ok', {})
    } else if (frame.event === 'phx_join') {
      this.#joinCount += 1
      this.#answerJoin(connection, frame, this.script.join?.(this.#joinCount, frame) ?? 'ok')
    }
  }

  #play(
    connection: ScriptedConnection,
    join: Frame,
    { play, delayMsMax }: Extract<JoinScript, { play: unknown }>,
  ): void {
    connection.topic = join.topic
    connection.joinRef = join.ref
    for (const recorded of play) {
      const timer = setTimeout(
        () => {
          this.#timers.delete(timer)
          connection.play(recorded, join)
        },
        Math.min(recorded.ms, delayMsMax),
      )
      this.#timers.add(timer)
    }
  }

  #answerJoin(connection: ScriptedConnection, frame: Frame, decision: JoinScript): void {
    if (decision === 'silent') return
    if (typeof decision === 'object' && 'play' in decision) {
      this.#play(connection, frame, decision)
      return
    }
    if (decision !== 'ok') {
      connection.reply(frame, 'error', { reason: decision.error })
      return
    }
    const replaced = connection.joinRef
    connection.joinRef = frame.ref
    connection.topic = frame.topic
    const isChanges = this.script.kind === 'postgres_changes'
    const bindings = [{ id: 59400683, event: 'INSERT', schema: 'patchcord', table: 'agent_messages' }]
    connection.reply(frame, 'ok', { postgres_changes: isChanges ? bindings : [] })
    // The join that this one replaces ends after it (transcript 50).
    if (replaced !== null) connection.send('phx_close', {}, replaced)
    if (!isChanges) return
    const channel = frame.topic.replace(/^realtime:/, '')
    const text = 'Subscribed to PostgreSQL'
    connection.send('system', { message: text, status: 'ok', extension: 'postgres_changes', channel })
  }
}

function refuse({ status, reason = 'Refused', headers = {}, body = '' }: Exclude<UpgradeScript, string>): string {
  const all = { ...headers, 'content-length': String(Buffer.byteLength(body)), connection: 'close' }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return `HTTP/1.1 ${status} ${reason}\r\n${lines.join('')}\r\n${body}`
}

async function readText(request: http.IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks).toString('utf8')
}

/** The body of one of our own errors. */
export function errorAnswer(status: number, code: string): ScriptedAnswer {
  return { status, json: { error: { code, message: 'Scripted.' } } }
}

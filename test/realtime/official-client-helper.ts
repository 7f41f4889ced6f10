import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { RealtimeClient, RealtimePostgresInsertPayload, WebSocketLikeConstructor } from '@supabase/realtime-js'
import { WebSocket as WsWebSocket } from 'ws'
import { buildApp } from '../../server/app.ts'
import type { Config } from '../../server/config.ts'
import type { Ticket, TicketTopic } from '../../server/domain/tickets.ts'
import { createHub } from '../../server/realtime/hub.ts'
import { createBus } from '../../server/wakes/bus.ts'
import { createWaiters } from '../../server/wakes/waiters.ts'
import { call, startTestApp, type TestApp } from '../helpers/app.ts'
import type { TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const PATIENCE_MS = 30_000
/** The text of every message that a World sends. */
export const SECRET = 'the text that no wake may carry'

/** official-client-newest.ts sets it: a file beside the node_modules in which another version of the client stands. */
const require = createRequire(process.env.PATCHCORD_TEST_REALTIME_JS ?? import.meta.url)
const realtimeJs = require('@supabase/realtime-js') as typeof import('@supabase/realtime-js')
export const { version: clientVersion } = require('@supabase/realtime-js/package.json') as { version: string }

/** Node's own is what people use; Node 20 has none. */
const Transport = (globalThis.WebSocket ?? WsWebSocket) as unknown as typeof WsWebSocket

export type Vsn = '1.0.0' | '2.0.0'

/** What a test needs of the app; one that was started anew has no more. */
type Server = Pick<TestApp, 'url' | 'app' | 'deps' | 'close'>

export interface OpenClient {
  client: RealtimeClient
  /** They stand in the URL of each connection: what is changed here counts from the next one on. */
  params: { apikey: string }
  /** Every frame that came, on whichever connection, as text. */
  frames: string[]
  binaryCount: number
  /** How many connections were begun. */
  connectionCount: number
}

export interface OpenOptions {
  accessToken?: () => Promise<string>
  heartbeatIntervalMs?: number
}

interface WakeEvent {
  type: string
  event: string
  meta?: { id: string; replayed?: boolean }
  payload: { id: string; from: string; to: string; kind: string; urgency: string; thread?: string }
}

interface SystemMessage {
  message: string
  status: string
  extension: string
  channel?: string
}

/** What a subscription was told, in the order it came. */
export interface Heard {
  /** `subscribe`'s own; an error with its sentence. */
  statuses: string[]
  wakes: WakeEvent[]
  changes: RealtimePostgresInsertPayload<Record<string, unknown>>[]
  system: SystemMessage[]
}

/** A server with three agents in a namespace of their own, and the clients that are opened on it. */
export class World {
  server: Server
  readonly agents: Record<'alice' | 'bob' | 'carol', SeededAgent>
  readonly vsn: Vsn
  readonly #opened: OpenClient[] = []

  private constructor(server: Server, agents: World['agents'], vsn: Vsn) {
    this.server = server
    this.agents = agents
    this.vsn = vsn
  }

  static async start(database: TestDatabase, namespace: string, vsn: Vsn): Promise<World> {
    const agents = await seed(database, namespace, ['alice', 'bob', 'carol'])
    return new World(await startTestApp(database), agents, vsn)
  }

  async close(): Promise<void> {
    await Promise.all(this.#opened.map(({ client }) => client.removeAllChannels()))
    await this.server.close()
  }

  async fetchTicket({ token }: SeededAgent): Promise<Ticket> {
    const { status, json } = await call(this.server, 'GET', '/api/realtime/ticket', { token })
    assert.equal(status, 200)
    return json
  }

  /**
   * The ticket of a server that was told with PATCHCORD_REALTIME=postgres_changes that this one is its Supabase: it has
   * the same database and the same key, and an apikey that this one takes.
   */
  async fetchChangesTicket(agent: SeededAgent): Promise<Ticket> {
    const { apikey } = await this.fetchTicket(agent)
    const { deps, url } = this.server
    const supabase = { url: new URL(url), publishableKey: apikey, secretKey: null }
    const config: Config = { ...deps.config, realtime: 'postgres_changes', supabase }
    const other = await buildApp({ ...deps, config, waiters: createWaiters(config.limits) })
    const headers = { authorization: `Bearer ${agent.token}` }
    const answer = await other.inject({ method: 'GET', url: '/api/realtime/ticket', headers })
    await other.close()
    assert.equal(answer.statusCode, 200)
    return answer.json()
  }

  /** A JWT that this server signed, made to end in so many seconds. */
  async shorten(jwt: string, seconds: number): Promise<string> {
    const { signer } = this.server.deps
    assert.ok(signer)
    return await signer.sign({ ...(await signer.verify(jwt)), exp: Math.floor(Date.now() / 1000) + seconds })
  }

  /** A ticket as it is so many seconds after it was issued: its JWTs have that much less time to live. */
  async age(ticket: Ticket, seconds: number): Promise<Ticket> {
    const { signer } = this.server.deps
    assert.ok(signer)
    const makeOlder = async (jwt: string) => {
      const claims = await signer.verify(jwt)
      return await signer.sign({ ...claims, iat: Number(claims.iat) - seconds, exp: claims.exp - seconds })
    }
    return { ...ticket, apikey: await makeOlder(ticket.apikey), jwt: await makeOlder(ticket.jwt) }
  }

  /** Sends over HTTP; the message's id. */
  async send(from: SeededAgent, to: SeededAgent): Promise<string> {
    const body = { to: to.agent, content: SECRET }
    const { status, json } = await call(this.server, 'POST', '/api/messages', { token: from.token, body })
    assert.equal(status, 201)
    return json.message_id
  }

  /** The official client at the URL of a ticket, not yet connected. */
  open({ realtime_url: url, apikey }: Pick<Ticket, 'realtime_url' | 'apikey'>, options: OpenOptions = {}): OpenClient {
    const params = { apikey }
    class Recording extends Transport {
      constructor(address: string | URL, protocols?: string | string[]) {
        super(address, protocols)
        opened.connectionCount++
        this.addEventListener('message', ({ data }) => {
          if (typeof data !== 'string') opened.binaryCount++
          opened.frames.push(typeof data === 'string' ? data : Buffer.from(data as ArrayBuffer).toString())
        })
      }
    }
    const transport = Recording as unknown as WebSocketLikeConstructor
    // The client adds the last part of the path itself.
    const endpoint = url.replace(/\/websocket$/, '')
    const client = new realtimeJs.RealtimeClient(endpoint, { params, vsn: this.vsn, transport, ...options })
    const opened: OpenClient = { client, params, frames: [], binaryCount: 0, connectionCount: 0 }
    this.#opened.push(opened)
    return opened
  }

  /** A client that has subscribed with a ticket as its documentation says: the token first. */
  async join(ticket: Ticket): Promise<{ opened: OpenClient; heard: Heard }> {
    const opened = this.open(ticket)
    await opened.client.setAuth(ticket.jwt)
    const heard = subscribe(opened, topicOf(ticket))
    await untilStatus(heard, 'SUBSCRIBED')
    return { opened, heard }
  }

  /** Stops the server as a deploy does and starts it anew at the same address; only its database and key stay. */
  async restart(): Promise<void> {
    const { app, deps, url } = this.server
    const { port } = app.server.address() as AddressInfo
    await this.server.close()
    const waiters = createWaiters(deps.config.limits)
    const bus = createBus(waiters)
    const hub = createHub()
    bus.addSink(hub)
    const newDeps = { ...deps, waiters, bus, hub }
    const newApp = await buildApp(newDeps)
    this.server = { url, app: newApp, deps: newDeps, close: () => newApp.close() }
    await newApp.listen({ host: '127.0.0.1', port })
  }
}

/** Subscribes to a ticket's topic with the configuration that the ticket gives. */
export function subscribe({ client }: OpenClient, topic: TicketTopic): Heard {
  const heard: Heard = { statuses: [], wakes: [], changes: [], system: [] }
  const { postgres_changes: bindings, ...config } = topic.config
  const channel = client.channel(nameOf(topic), { config })
  channel.on('broadcast', { event: 'wake' }, (wake) => heard.wakes.push(wake as WakeEvent))
  channel.on('system', {}, (message) => heard.system.push(message))
  for (const binding of bindings) {
    channel.on<Record<string, unknown>>('postgres_changes', binding, (change) => heard.changes.push(change))
  }
  channel.subscribe((status, error) => heard.statuses.push(error ? `${status}: ${error.message}` : status))
  return heard
}

export function topicOf({ topics: [topic] }: Ticket): TicketTopic {
  assert.ok(topic)
  return topic
}

/** A topic as the client and the `channel` of a system message have it. */
export function nameOf({ name }: TicketTopic): string {
  return name.replace(/^realtime:/, '')
}

/** Waits for what was told to come true, and fails with all of it. */
export async function until(heard: Heard, isTrue: (heard: Heard) => boolean): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS
  while (!isTrue(heard)) {
    assert.ok(performance.now() < deadline, `not in time; heard so far: ${JSON.stringify(heard)}`)
    await sleep(5)
  }
}

export async function untilStatus(heard: Heard, status: string, count = 1): Promise<void> {
  await until(heard, ({ statuses }) => statuses.filter((each) => each === status).length >= count)
}

export async function untilWakes(heard: Heard, count: number): Promise<string[]> {
  await until(heard, ({ wakes }) => wakes.length >= count)
  return heard.wakes.map(({ payload }) => payload.id)
}

/** The client counts as subscribed before its changes are; these are when the server says so, again after a new token. */
export async function untilChangesLive(heard: Heard, count = 1): Promise<void> {
  await until(heard, ({ system }) => system.filter(({ extension }) => extension === 'postgres_changes').length >= count)
}

export async function untilChanges(heard: Heard, count: number): Promise<unknown[]> {
  await until(heard, ({ changes }) => changes.length >= count)
  return heard.changes.map((change) => change.new.id)
}

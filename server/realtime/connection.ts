import { WebSocket } from 'ws'
import type { RealtimeSource } from '../domain/realtime.ts'
import { expiredError, type TicketClaims, TicketError, type TicketSigner } from '../domain/tickets.ts'
import { PatchcordError } from '../errors.ts'
import type { Wake } from '../wakes/bus.ts'
import { authorizeJoin, cannotRead, Refusal, verifyTicket } from './authorize.ts'
import { echoBindings } from './change-bindings.ts'
import type { ChangeFeed } from './change-feed.ts'
import { Channel, type ChannelConnection } from './channel.ts'
import type { Deadlines } from './deadlines.ts'
import type { Hub, HubConnection } from './hub.ts'
import type { JoinLimits, JoinRate } from './join-rate.ts'
import {
  closeMessage,
  type JoinRequest,
  type Push,
  parseAccessToken,
  parseJoin,
  replyTo,
  type ServerMessage,
  systemMessage,
} from './phoenix.ts'
import type { Frame, Serializer } from './serializers.ts'
import { Subscription } from './subscription.ts'
import { mayReadTopic, TOPIC_PREFIX } from './topic.ts'

/** Frames that wait for a token's verification before them. */
const PUSHES_WAITING_MAX = 100
/** A client that does not answer our close frame is cut off then. */
const CLOSE_GRACE_MS = 500

export interface RealtimeTimes {
  /** A refused handshake is answered this late, so that a client that retries at once is slowed down. */
  connectErrorDelayMs: number
  /** The same for a refused join. */
  joinErrorDelayMs: number
  /** Without a client frame for this long the socket is closed. */
  idleMs: number
  /** Without a channel for this long the socket is cut off. */
  noChannelMs: number
  /** How late idle sockets and expired channels may be found. */
  sweepMs: number
  /** How often the table is read for subscriptions to its changes, beside each wake. */
  changesPollMs: number
  /** A join is answered by then, also where the database has not yet said that its changes are subscribed to. */
  joinWaitMs: number
  /** When a subscription is tried again for which the database did not answer. */
  subscribeRetryMs: number
  /** What may wait in a socket that its reader does not drain. Beyond it the socket is dropped; the inbox has it all. */
  bufferedBytesMax: number
}

export interface RealtimeLimits {
  connectionsPerTokenMax: number
  /** Together: what opened them names no API token, as the public key of a Supabase project whose secret is ours too. */
  connectionsWithoutTokenMax: number
  /** Of one socket. */
  channelsMax: number
  /** Joins of one socket: as many at once, one more each second. */
  joinsBurst: number
  joinsPerToken: JoinLimits
}

export interface RealtimeLog {
  debug(fields: object, message: string): void
  error(fields: object, message: string): void
}

export interface ConnectionContext {
  hub: Hub
  feed: ChangeFeed
  source: RealtimeSource
  joinRate: JoinRate
  verifier: TicketSigner
  limits: RealtimeLimits
  times: RealtimeTimes
  log: RealtimeLog
  /** When a connection is to be looked at. */
  deadlines: Deadlines<Connection>
  /** Runs the work after a delay, unless the endpoint closes before. */
  later(delayMs: number, work: () => void): void
}

/** One WebSocket: its channels and what the client pushes to them. Frames are handled one after the other. */
export class Connection implements HubConnection, ChannelConnection {
  readonly #socket: WebSocket
  readonly #serializer: Serializer
  readonly #context: ConnectionContext
  readonly #apikeyClaims: TicketClaims
  readonly #channels = new Map<string, Channel>()
  #handled: Promise<void> = Promise.resolve()
  #waiting = 0
  #joinsSpent = 0
  #joinsAt = performance.now()
  #lastFrameAt = performance.now()
  #noChannelSince = performance.now()
  #closingSince: number | null = null

  constructor(socket: WebSocket, serializer: Serializer, apikeyClaims: TicketClaims, context: ConnectionContext) {
    this.#socket = socket
    this.#serializer = serializer
    this.#apikeyClaims = apikeyClaims
    this.#context = context
    socket.on('message', (data, isBinary) => this.#receive(data as Buffer, isBinary))
    socket.on('ping', () => this.#touch())
    socket.on('pong', () => this.#touch())
    // ws has answered by then, with 1002 or 1007, or cut off a frame that is too long; the rest is done in 'close'.
    socket.on('error', (error) => context.log.debug({ reason: error.message }, 'realtime socket failed'))
    this.#watch()
  }

  /** The socket is gone: nobody is joined here any more. */
  dispose(): void {
    this.#closingSince ??= performance.now()
    for (const channel of this.#channels.values()) this.#detach(channel)
    this.#channels.clear()
    this.#context.hub.removeConnection(this)
    this.#context.deadlines.remove(this)
  }

  close(code: number): void {
    this.#closingSince ??= performance.now()
    this.#socket.close(code)
    this.#watch()
  }

  terminate(): void {
    this.#socket.terminate()
  }

  revoke(message: string): void {
    for (const channel of [...this.#channels.values()]) this.#endChannel(channel, message)
    this.close(1000)
  }

  /** Ends what time has ended: expired channels, idle sockets, closes that the client does not answer. */
  look(): void {
    const now = performance.now()
    const { idleMs, noChannelMs } = this.#context.times
    if (this.#closingSince !== null) {
      if (now - this.#closingSince >= CLOSE_GRACE_MS) this.terminate()
    } else {
      for (const channel of [...this.#channels.values()]) this.endIfExpired(channel)
      if (now - this.#lastFrameAt >= idleMs) this.close(1000)
      else if (this.#channels.size === 0 && now - this.#noChannelSince >= noChannelMs) this.terminate()
    }
    this.#watch()
  }

  /** Whatever may end earlier than was known is told here; what ends later is seen at the next look. */
  #watch(): void {
    if (this.#socket.readyState !== WebSocket.CLOSED) this.#context.deadlines.set(this, this.#dueAt())
  }

  #dueAt(): number {
    const { idleMs, noChannelMs } = this.#context.times
    if (this.#closingSince !== null) return this.#closingSince + CLOSE_GRACE_MS
    let dueAt = this.#lastFrameAt + idleMs
    if (this.#channels.size === 0) dueAt = Math.min(dueAt, this.#noChannelSince + noChannelMs)
    const [now, nowSeconds] = [performance.now(), Date.now() / 1000]
    for (const { claims } of this.#channels.values()) dueAt = Math.min(dueAt, now + (claims.exp - nowSeconds) * 1000)
    return dueAt
  }

  #touch(): void {
    this.#lastFrameAt = performance.now()
  }

  #receive(data: Buffer, isBinary: boolean): void {
    this.#touch()
    if (this.#closingSince !== null) return
    const push = isBinary ? this.#serializer.decodeBinary(data) : this.#serializer.decode(data.toString())
    if (!push) return
    if (++this.#waiting > PUSHES_WAITING_MAX) {
      this.terminate()
      return
    }
    this.#handled = this.#handled.then(async () => {
      try {
        if (this.#closingSince === null) await this.#handle(push)
      } catch (error) {
        this.#context.log.error({ err: error }, 'realtime push failed')
        this.close(1011)
      } finally {
        this.#waiting--
      }
    })
  }

  async #handle(push: Push): Promise<void> {
    const { topic, event } = push
    if (event === 'phx_join' && topic.startsWith(TOPIC_PREFIX)) return await this.#join(push)
    if (topic === 'phoenix' && event === 'heartbeat') return this.#send(replyTo(push, 'ok', {}))
    const channel = this.#channels.get(topic)
    if (event === 'phx_leave') return this.#leave(push, channel)
    if (!channel) return this.#send(replyTo(push, 'error', { reason: 'unmatched topic' }))
    if (event === 'access_token') return await this.#refresh(channel, push)
    // Clients send each other nothing here: whatever they broadcast is over the size that is allowed, and nobody may
    // track presence, as in a project that has no policy for it. Without `ack` the original says nothing of it either.
    if (event === 'broadcast' && channel.wantsAck) this.#send(replyTo(push, 'error', 'payload_size_exceeded'))
    if (event === 'presence') this.#send(replyTo(push, 'error', {}))
  }

  #leave(push: Push, channel: Channel | undefined): void {
    this.#send(replyTo(push, 'ok', {}))
    if (channel) this.#removeChannel(channel)
  }

  /** A second join of a topic ends the first channel after its own answer, whatever that is. */
  async #join(push: Push): Promise<void> {
    if (!this.#takeJoin()) {
      this.#refuseJoin(push, 'ClientJoinRateLimitReached: Too many joins per second', 0)
      return this.close(1000)
    }
    let opened: Channel | null = null
    try {
      const { channel, request, replayed } = await this.#openChannel(push)
      opened = channel
      if (this.#closingSince !== null) return this.#detach(channel)
      this.#send(replyTo(push, 'ok', { postgres_changes: echoBindings(request.postgresChanges) }))
      this.#closeDuplicate(push.topic)
      this.#channels.set(push.topic, channel)
      this.#watch()
      channel.release(replayed)
    } catch (error) {
      // The hub would keep it for good: only what stands in #channels is detached with the socket.
      if (opened && !this.#isJoined(opened)) this.#detach(opened)
      if (!(error instanceof Refusal)) throw error
      this.#refuseJoin(push, error.message, this.#context.times.joinErrorDelayMs)
      this.#closeDuplicate(push.topic)
    }
  }

  async #openChannel(push: Push): Promise<{ channel: Channel; request: JoinRequest; replayed: Wake[] }> {
    const { topic } = push
    const name = topic.slice(TOPIC_PREFIX.length)
    if (name === '') throw new Refusal('TopicNameRequired: You must provide a topic name')
    const request = parseJoin(push.payload)
    // The sentence of the original's own runtime: clients only look at the code before it.
    if (!request) throw new Refusal('UnknownErrorOnChannel: no function clause matching in Access.get/3')
    if (this.#channels.size >= this.#context.limits.channelsMax && !this.#channels.has(topic)) {
      throw new Refusal('ChannelRateLimitReached: Too many channels')
    }
    const claims = await authorizeJoin(name, request, this.#apikeyClaims, this.#context)
    if (!this.#tie(claims)) throw new Refusal('ConnectionRateLimitReached: Too many connected users')
    const channel = new Channel(push, request, claims, this)
    if (channel.isPrivate) this.#context.hub.addChannel(channel)
    const replayed = await this.#readReplay(channel, request)
    await this.#subscribe(channel, request)
    return { channel, request, replayed }
  }

  /** Before the answer, so that rows count from its ok on, which many a client takes for being subscribed. */
  async #subscribe(channel: Channel, { postgresChanges, waitMs }: JoinRequest): Promise<void> {
    if (postgresChanges.length === 0) return
    const subscription = new Subscription(postgresChanges, channel, this.#context)
    channel.subscription = subscription
    try {
      if (waitMs !== null) await subscription.startWithin(waitMs, channel.claims)
      else await Promise.race([subscription.start(channel.claims), this.#sleep(this.#context.times.joinWaitMs)])
    } catch (error) {
      this.#detach(channel)
      throw error
    }
    // In the turn in which the new one hears: no row comes twice, and none is missed.
    this.#channels.get(channel.topic)?.subscription?.stop()
  }

  /** The channel hears already: a wake that comes while its past is read is held, and sent once. */
  async #readReplay(channel: Channel, { replay }: JoinRequest): Promise<Wake[]> {
    if (replay === null || replay === 'invalid') return []
    try {
      return await this.#context.source.listRecentWakes(channel.agentId, replay.sinceMs, replay.limit)
    } catch (error) {
      this.#detach(channel)
      if (!(error instanceof PatchcordError)) throw error
      throw new Refusal('UnableToConnectToProject: Realtime was unable to connect to the project database')
    }
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#context.later(ms, resolve))
  }

  #detach(channel: Channel): void {
    channel.subscription?.stop()
    this.#context.hub.removeChannel(channel)
  }

  #tie(claims: TicketClaims): boolean {
    const { hub, limits } = this.#context
    return typeof claims.token !== 'string' || hub.tie(this, claims.token, limits.connectionsPerTokenMax)
  }

  #refuseJoin(push: Push, reason: string, delayMs: number): void {
    this.#context.later(delayMs, () => this.#send(replyTo(push, 'error', { reason })))
  }

  /** An accepted new token is answered by a new subscription at most; a bad one ends the channel, the socket stays. */
  async #refresh(channel: Channel, push: Push): Promise<void> {
    const jwt = parseAccessToken(push.payload)
    if (jwt === null || jwt === channel.jwt) return
    const name = channel.topic.slice(TOPIC_PREFIX.length)
    try {
      const claims = await verifyTicket(jwt, this.#context)
      if (!this.#isJoined(channel)) return
      if (channel.isPrivate && !mayReadTopic(claims, name, Date.now() / 1000)) {
        return this.#endChannel(channel, cannotRead(name))
      }
      if (!this.#tie(claims)) return this.#endChannel(channel, 'Too many connected users')
      channel.claims = claims
      this.#watch()
      if (!channel.subscription) return
      channel.jwt = jwt
      void channel.subscription.start(claims)
    } catch (error) {
      if (!(error instanceof TicketError)) throw error
      this.#endChannel(channel, error.fault === 'signature' ? ':signature_error' : error.message)
    }
  }

  #isJoined(channel: Channel): boolean {
    return this.#channels.get(channel.topic) === channel
  }

  #closeDuplicate(topic: string): void {
    const channel = this.#channels.get(topic)
    if (channel) this.#removeChannel(channel)
  }

  /** A channel that fails says why and closes. The socket stays, as at Supabase: its heartbeats prove no channel. */
  #endChannel(channel: Channel, message: string): void {
    if (!this.#isJoined(channel)) return
    this.#send(systemMessage(channel, 'system', 'error', message))
    this.#removeChannel(channel)
  }

  #removeChannel(channel: Channel): void {
    this.#channels.delete(channel.topic)
    this.#detach(channel)
    if (this.#channels.size === 0) {
      this.#noChannelSince = performance.now()
      this.#watch()
    }
    this.#send(closeMessage(channel.topic, channel.joinRef))
  }

  endIfExpired(channel: Channel): boolean {
    const nowSeconds = Date.now() / 1000
    if (channel.claims.exp > nowSeconds) return false
    this.#endChannel(channel, expiredError(channel.claims.exp, nowSeconds).message)
    return true
  }

  /** One join from the bucket of this socket, which refills by one a second, and from its token's; false: one is empty. */
  #takeJoin(): boolean {
    const now = performance.now()
    this.#joinsSpent = Math.max(0, this.#joinsSpent - (now - this.#joinsAt) / 1000)
    this.#joinsAt = now
    const { token } = this.#apikeyClaims
    if (this.#joinsSpent + 1 > this.#context.limits.joinsBurst) return false
    if (typeof token === 'string' && !this.#context.joinRate.take(token)) return false
    this.#joinsSpent++
    return true
  }

  #send(message: ServerMessage): void {
    this.sendFrame((serializer) => serializer.encode(message))
  }

  sendFrame(encode: (serializer: Serializer) => Frame): void {
    if (this.#socket.readyState !== WebSocket.OPEN) return
    if (this.#socket.bufferedAmount <= this.#context.times.bufferedBytesMax) {
      this.#socket.send(encode(this.#serializer))
      return
    }
    this.#context.log.debug({ bufferedBytes: this.#socket.bufferedAmount }, 'realtime reader too slow, dropped')
    this.terminate()
  }
}

import { WebSocket } from 'ws'
import { expiredError, type TicketClaims, TicketError, type TicketFault, type TicketSigner } from '../domain/tickets.ts'
import type { Hub, HubChannel, HubConnection } from './hub.ts'
import {
  closeMessage,
  type JoinRequest,
  type Push,
  parseAccessToken,
  parseJoin,
  type Ref,
  replyTo,
  type Serializer,
  type ServerMessage,
  systemMessage,
} from './phoenix.ts'
import { claimText, mayReadTopic, TOPIC_PREFIX } from './topic.ts'

const CHANNELS_MAX = 100
/** Joins of one socket: as many at once, one more each second. */
const JOINS_BURST = 20
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
  /** How often idle sockets and expired channels are looked for. */
  sweepMs: number
  /** What may wait in a socket that its reader does not drain. Beyond it the socket is dropped; the inbox has it all. */
  bufferedBytesMax: number
}

export interface RealtimeLog {
  debug(fields: object, message: string): void
  error(fields: object, message: string): void
}

export interface ConnectionContext {
  hub: Hub
  verifier: TicketSigner
  limits: { connectionsPerTokenMax: number }
  times: RealtimeTimes
  log: RealtimeLog
  /** Runs the work after a delay, unless the endpoint closes before. */
  later(delayMs: number, work: () => void): void
}

interface Channel extends HubChannel {
  readonly joinRef: Ref
  claims: TicketClaims
}

/** The codes that Supabase Realtime puts before the reason of a refused join. */
const JOIN_CODES: Record<TicketFault, string> = {
  malformed: 'MalformedJWT',
  signer: 'JwtSignerError',
  signature: 'JwtSignatureError',
  claims: 'InvalidJWTToken',
  expired: 'InvalidJWTToken',
  revoked: 'InvalidJWTToken',
}

/** A join that is refused, with the reason as Supabase Realtime words it. */
class Refusal extends Error {}

/** One WebSocket: its channels and what the client pushes to them. Frames are handled one after the other. */
export class Connection implements HubConnection {
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
    socket.on('message', (data, isBinary) => this.#receive(data.toString(), isBinary))
    socket.on('ping', () => this.#touch())
    socket.on('pong', () => this.#touch())
    // ws has answered with the right close code by then (1002, 1007, 1009); what is left to do is in 'close'.
    socket.on('error', (error) => context.log.debug({ reason: error.message }, 'realtime socket failed'))
  }

  /** The socket is gone: nobody is joined here any more. */
  dispose(): void {
    this.#closingSince ??= performance.now()
    for (const channel of this.#channels.values()) this.#context.hub.removeChannel(channel)
    this.#channels.clear()
    this.#context.hub.removeConnection(this)
  }

  close(code: number): void {
    this.#closingSince ??= performance.now()
    this.#socket.close(code)
  }

  terminate(): void {
    this.#socket.terminate()
  }

  revoke(): void {
    for (const channel of [...this.#channels.values()]) this.#endChannel(channel, 'Token has been revoked')
    this.close(1000)
  }

  /** Ends what time has ended: expired channels, idle sockets, closes that the client does not answer. */
  sweep(): void {
    const now = performance.now()
    const { idleMs, noChannelMs } = this.#context.times
    if (this.#closingSince !== null) {
      if (now - this.#closingSince > CLOSE_GRACE_MS) this.terminate()
      return
    }
    for (const channel of [...this.#channels.values()]) this.#endIfExpired(channel)
    if (now - this.#lastFrameAt >= idleMs) this.close(1000)
    else if (this.#channels.size === 0 && now - this.#noChannelSince >= noChannelMs) this.terminate()
  }

  #touch(): void {
    this.#lastFrameAt = performance.now()
  }

  #receive(text: string, isBinary: boolean): void {
    this.#touch()
    const push = isBinary || this.#closingSince !== null ? null : this.#serializer.decode(text)
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
    if (event === 'access_token') await this.#refresh(channel, push)
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
    const request = parseJoin(push.payload)
    try {
      const claims = await this.#authorizeJoin(push.topic, request)
      if (this.#closingSince !== null) return
      this.#send(replyTo(push, 'ok', { postgres_changes: [] }))
      this.#closeDuplicate(push.topic)
      this.#addChannel(push, claims)
      if (request && request.postgresChanges.length > 0) this.#refuseChanges(push, request.postgresChanges[0])
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      this.#refuseJoin(push, error.message, this.#context.times.joinErrorDelayMs)
      this.#closeDuplicate(push.topic)
    }
  }

  async #authorizeJoin(topic: string, request: JoinRequest | null): Promise<TicketClaims> {
    const name = topic.slice(TOPIC_PREFIX.length)
    if (name === '') throw new Refusal('TopicNameRequired: You must provide a topic name')
    // The sentence of the original's own runtime: clients only look at the code before it.
    if (!request) throw new Refusal('UnknownErrorOnChannel: no function clause matching in Access.get/3')
    if (this.#channels.size >= CHANNELS_MAX && !this.#channels.has(topic)) {
      throw new Refusal('ChannelRateLimitReached: Too many channels')
    }
    const claims = await this.#verifyJoin(request.accessToken)
    if (!request.isPrivate) throw new Refusal('PrivateOnly: This project only allows private channels')
    if (!mayReadTopic(claims, name, Date.now() / 1000)) throw new Refusal(`Unauthorized: ${cannotRead(name)}`)
    if (!this.#tie(claims)) throw new Refusal('ConnectionRateLimitReached: Too many connected users')
    return claims
  }

  async #verifyJoin(accessToken: string | null): Promise<TicketClaims> {
    if (accessToken === null) return this.#apikeyClaims
    try {
      return await this.#verify(accessToken)
    } catch (error) {
      if (!(error instanceof TicketError)) throw error
      throw new Refusal(`${JOIN_CODES[error.fault]}: ${error.message}`)
    }
  }

  async #verify(jwt: string): Promise<TicketClaims> {
    const claims = await this.#context.verifier.verify(jwt)
    requireUnrevoked(claims, this.#context.hub)
    return claims
  }

  #tie(claims: TicketClaims): boolean {
    const { hub, limits } = this.#context
    return typeof claims.token !== 'string' || hub.tie(this, claims.token, limits.connectionsPerTokenMax)
  }

  #refuseJoin(push: Push, reason: string, delayMs: number): void {
    this.#context.later(delayMs, () => this.#send(replyTo(push, 'error', { reason })))
  }

  /** What Supabase Realtime says of a table that is in no publication. */
  #refuseChanges({ topic, joinRef }: Push, binding: unknown): void {
    const message =
      'Unable to subscribe to changes with given parameters. Please check Realtime is enabled for the given connect ' +
      `parameters: ${JSON.stringify(binding)}`
    this.#send(systemMessage({ topic, joinRef }, 'postgres_changes', 'error', message))
  }

  /** An accepted new token is answered with nothing; a bad one ends the channel, the socket stays. */
  async #refresh(channel: Channel, push: Push): Promise<void> {
    const jwt = parseAccessToken(push.payload)
    if (jwt === null) return
    const name = channel.topic.slice(TOPIC_PREFIX.length)
    try {
      const claims = await this.#verify(jwt)
      if (!this.#isJoined(channel)) return
      if (!mayReadTopic(claims, name, Date.now() / 1000)) return this.#endChannel(channel, cannotRead(name))
      if (!this.#tie(claims)) return this.#endChannel(channel, 'Too many connected users')
      channel.claims = claims
    } catch (error) {
      if (!(error instanceof TicketError)) throw error
      this.#endChannel(channel, error.fault === 'signature' ? ':signature_error' : error.message)
    }
  }

  #addChannel({ topic, joinRef }: Push, claims: TicketClaims): void {
    const channel: Channel = {
      topic,
      joinRef,
      claims,
      agentId: claimText(claims, 'agent') ?? '',
      deliver: (encode) => {
        if (!this.#endIfExpired(channel)) this.#sendFrame(encode(this.#serializer))
      },
    }
    this.#channels.set(topic, channel)
    this.#context.hub.addChannel(channel)
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
    this.#context.hub.removeChannel(channel)
    if (this.#channels.size === 0) this.#noChannelSince = performance.now()
    this.#send(closeMessage(channel.topic, channel.joinRef))
  }

  #endIfExpired(channel: Channel): boolean {
    const nowSeconds = Date.now() / 1000
    if (channel.claims.exp > nowSeconds) return false
    this.#endChannel(channel, expiredError(channel.claims.exp, nowSeconds).message)
    return true
  }

  /** One join from the bucket that refills by one a second; false: it is empty. */
  #takeJoin(): boolean {
    const now = performance.now()
    this.#joinsSpent = Math.max(0, this.#joinsSpent - (now - this.#joinsAt) / 1000)
    this.#joinsAt = now
    if (this.#joinsSpent + 1 > JOINS_BURST) return false
    this.#joinsSpent++
    return true
  }

  #send(message: ServerMessage): void {
    this.#sendFrame(this.#serializer.encode(message))
  }

  #sendFrame(frame: string): void {
    if (this.#socket.readyState !== WebSocket.OPEN) return
    if (this.#socket.bufferedAmount <= this.#context.times.bufferedBytesMax) {
      this.#socket.send(frame)
      return
    }
    this.#context.log.debug({ bufferedBytes: this.#socket.bufferedAmount }, 'realtime reader too slow, dropped')
    this.terminate()
  }
}

function cannotRead(name: string): string {
  return `You do not have permissions to read from this Channel topic: ${name}`
}

/** Throws TicketError for a JWT of an API token that was revoked while its ticket still ran. */
export function requireUnrevoked(claims: TicketClaims, hub: Hub): void {
  if (typeof claims.token === 'string' && hub.isRevoked(claims.token)) {
    throw new TicketError('revoked', 'Token has been revoked')
  }
}

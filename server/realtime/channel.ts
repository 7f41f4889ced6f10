import type { TicketClaims } from '../domain/tickets.ts'
import type { Wake } from '../wakes/bus.ts'
import type { HubChannel } from './hub.ts'
import type { JoinRequest, Push, Ref, ServerMessage } from './phoenix.ts'
import { wakeMessage } from './phoenix.ts'
import type { Frame, Serializer } from './serializers.ts'
import type { Subscription } from './subscription.ts'
import { claimText } from './topic.ts'

type Encode = (serializer: Serializer) => Frame

/** What wakes and rows may wait for a channel that is being joined; a client that is told of fewer finds all in its inbox. */
const HELD_MAX = 1_000

/** What a channel needs of its connection. */
export interface ChannelConnection {
  /** Ends the channel where its token has expired; whether it did. */
  endIfExpired(channel: Channel): boolean
  sendFrame(encode: Encode): void
}

/** A topic that is joined on one connection, or just being joined. */
export class Channel implements HubChannel {
  readonly topic: string
  readonly joinRef: Ref
  readonly agentId: string
  readonly isPrivate: boolean
  readonly wantsAck: boolean
  claims: TicketClaims
  /** The token that the claims came with, where it matters whether another one is new: table changes are subscribed anew. */
  jwt: string | null
  subscription: Subscription | null = null
  readonly #connection: ChannelConnection
  #held: { encode: Encode; id: string | null }[] | null = []

  constructor({ topic, joinRef }: Push, request: JoinRequest, claims: TicketClaims, connection: ChannelConnection) {
    this.topic = topic
    this.joinRef = joinRef
    this.agentId = claimText(claims, 'agent') ?? ''
    this.isPrivate = request.isPrivate
    this.wantsAck = request.wantsAck
    this.claims = claims
    this.jwt = request.postgresChanges.length > 0 ? request.accessToken : null
    this.#connection = connection
  }

  deliver(encode: Encode, { id }: Wake): void {
    this.#holdOrSend(encode, id)
  }

  sendLive(message: ServerMessage): void {
    this.#holdOrSend((serializer) => serializer.encode(message), null)
  }

  /** It is joined: what is replayed comes first, then what came meanwhile and was not replayed. */
  release(replayed: Wake[]): void {
    const held = this.#held ?? []
    this.#held = null
    for (const wake of replayed) this.sendLive(wakeMessage(this.topic, wake, true))
    const ids = new Set(replayed.map(({ id }) => id))
    for (const { encode, id } of held) if (id === null || !ids.has(id)) this.#sendLive(encode)
  }

  #holdOrSend(encode: Encode, id: string | null): void {
    if (!this.#held) this.#sendLive(encode)
    else if (this.#held.length < HELD_MAX) this.#held.push({ encode, id })
  }

  #sendLive(encode: Encode): void {
    if (!this.#connection.endIfExpired(this)) this.#connection.sendFrame(encode)
  }
}

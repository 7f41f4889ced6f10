import { TICKET_SECONDS_MAX } from '../domain/tickets.ts'
import type { WakeSink } from '../wakes/bus.ts'
import { type Serializer, wakeMessage } from './phoenix.ts'
import { wakeTopic } from './topic.ts'

/** A joined topic on one socket. */
export interface HubChannel {
  readonly topic: string
  readonly agentId: string
  /** `encode` gives the frame for a serializer, made once for all channels that share it. */
  deliver(encode: (serializer: Serializer) => string): void
}

export interface HubConnection {
  /** Ends its channels and then its socket: an API token behind it is no longer good. */
  revoke(): void
}

/** Who is joined where on this instance. It holds no timer and writes to no socket itself. */
export interface Hub extends WakeSink {
  readonly connectionCount: number
  /** API tokens with a socket here. */
  tokenIds(): Iterable<string>
  /** Ends the sockets of these API tokens and refuses their tickets from now on. */
  closeTokens(tokenIds: string[]): void
  isRevoked(tokenId: string): boolean
  addConnection(connection: HubConnection): void
  removeConnection(connection: HubConnection): void
  /** Whether the API token may have one more socket. */
  hasRoom(tokenId: string, connectionsMax: number): boolean
  /** Ties a socket to an API token; false where the token has no room for it, or the socket is gone. */
  tie(connection: HubConnection, tokenId: string, connectionsMax: number): boolean
  addChannel(channel: HubChannel): void
  removeChannel(channel: HubChannel): void
}

/** A ticket that outlived its revoked token is dead by then, clocks apart by a minute included. */
const REVOKED_MEMORY_MS = (TICKET_SECONDS_MAX + 60) * 1000

export function createHub(): Hub {
  const tokensOf = new Map<HubConnection, string[]>()
  const connectionsOfToken = new Map<string, Set<HubConnection>>()
  const channelsOfTopic = new Map<string, Set<HubChannel>>()
  const revoked = createRevokedSet()
  const hasRoom = (tokenId: string, max: number) => (connectionsOfToken.get(tokenId)?.size ?? 0) < max
  return {
    get connectionCount() {
      return tokensOf.size
    },
    *agentIds() {
      for (const [channel] of channelsOfTopic.values()) if (channel) yield channel.agentId
    },
    tokenIds: () => connectionsOfToken.keys(),
    deliver(wake) {
      const topic = wakeTopic(wake.toNamespaceId, wake.toAgentId)
      const encode = encodeOnce((serializer) => serializer.encode(wakeMessage(topic, wake)))
      for (const channel of [...(channelsOfTopic.get(topic) ?? [])]) channel.deliver(encode)
    },
    closeTokens(tokenIds) {
      for (const tokenId of tokenIds) {
        revoked.add(tokenId)
        for (const connection of [...(connectionsOfToken.get(tokenId) ?? [])]) connection.revoke()
      }
    },
    isRevoked: (tokenId) => revoked.has(tokenId),
    addConnection: (connection) => void tokensOf.set(connection, []),
    removeConnection(connection) {
      for (const tokenId of tokensOf.get(connection) ?? []) removeFrom(connectionsOfToken, tokenId, connection)
      tokensOf.delete(connection)
    },
    hasRoom,
    tie(connection, tokenId, connectionsMax) {
      if (connectionsOfToken.get(tokenId)?.has(connection)) return true
      const tokens = tokensOf.get(connection)
      if (!tokens || !hasRoom(tokenId, connectionsMax)) return false
      addTo(connectionsOfToken, tokenId, connection)
      tokens.push(tokenId)
      return true
    },
    addChannel: (channel) => addTo(channelsOfTopic, channel.topic, channel),
    removeChannel: (channel) => removeFrom(channelsOfTopic, channel.topic, channel),
  }
}

function encodeOnce(encode: (serializer: Serializer) => string): (serializer: Serializer) => string {
  const frames = new Map<Serializer, string>()
  return (serializer) => {
    const frame = frames.get(serializer) ?? encode(serializer)
    frames.set(serializer, frame)
    return frame
  }
}

function addTo<T>(sets: Map<string, Set<T>>, key: string, item: T): void {
  const set = sets.get(key)
  if (set) set.add(item)
  else sets.set(key, new Set([item]))
}

function removeFrom<T>(sets: Map<string, Set<T>>, key: string, item: T): void {
  const set = sets.get(key)
  if (set?.delete(item) && set.size === 0) sets.delete(key)
}

/** Ids in the order they came, forgotten once no ticket can name them. */
function createRevokedSet() {
  const addedAt = new Map<string, number>()
  return {
    has: (id: string) => addedAt.has(id),
    add(id: string) {
      const now = performance.now()
      for (const [old, since] of addedAt) {
        if (now - since < REVOKED_MEMORY_MS) break
        addedAt.delete(old)
      }
      if (!addedAt.has(id)) addedAt.set(id, now)
    },
  }
}

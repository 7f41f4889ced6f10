import { TICKET_SECONDS_MAX } from '../domain/tickets.ts'
import type { Wake, WakeObserver, WakeSink } from '../wakes/bus.ts'
import type { EndOfToken, TokenHolder } from '../wakes/revocations.ts'
import { wakeMessage } from './phoenix.ts'
import type { Frame, Serializer } from './serializers.ts'
import { wakeTopic } from './topic.ts'

/** A joined topic on one socket. */
export interface HubChannel {
  readonly topic: string
  readonly agentId: string
  /** `encode` gives the frame for a serializer, made once for all channels that share it. */
  deliver(encode: (serializer: Serializer) => Frame, wake: Wake): void
}

export interface HubConnection {
  /** Ends its channels, which say why, and then its socket: an API token behind it is no longer good. */
  revoke(message: string): void
}

/**
 * Who is joined where on this instance. Tokens that `closeTokens` ends for good have their tickets refused from then on.
 * It writes to no socket itself.
 */
export interface Hub extends WakeSink, TokenHolder {
  readonly connectionCount: number
  topicCount(): number
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

/**
 * A ticket that outlived its revoked token is dead by then, clocks apart by a minute included. An apikey may live on for
 * hours: what it opens then may read nothing, and is closed by the next check, since nobody has vouched for its token.
 */
const REVOKED_MEMORY_MS = (TICKET_SECONDS_MAX + 60) * 1000
/** Waking thousands of sockets gives way to everything else that often. */
const SLICE_MS = 10

/** As systemMessage says it: the sentences are ours, the original knows no tokens behind its JWTs. */
const SENTENCES: Record<EndOfToken, string> = {
  revoked: 'Token has been revoked',
  expired: 'Token has expired',
  deleted: 'Agent has been deleted',
  renamed: 'Agent has been renamed',
}

/** `onError` hears once of each channel or socket that fails, and the others go on. */
export function createHub(
  onError: (error: unknown) => void = throwLater,
  observer?: Pick<WakeObserver, 'delivered'>,
): Hub {
  const tokensOf = new Map<HubConnection, string[]>()
  /** With when each was tied to the token, as performance.now() counts. */
  const connectionsOfToken = new Map<string, Map<HubConnection, number>>()
  const channelsOfTopic = new Map<string, Set<HubChannel>>()
  const revoked = createRevokedSet()
  const unvouched = new Set<string>()
  const attempt = createAttempts(onError)
  const hasRoom = (tokenId: string, max: number) => (connectionsOfToken.get(tokenId)?.size ?? 0) < max

  const deliver = inSlices((wake: Wake) => {
    const topic = wakeTopic(wake.toNamespaceId, wake.toAgentId)
    const channels = channelsOfTopic.get(topic)
    if (!channels) return
    const encode = encodeOnce((serializer) => serializer.encode(wakeMessage(topic, wake)))
    for (const channel of [...channels]) attempt(channel, () => channel.deliver(encode, wake))
    observer?.delivered(wake, channels.size)
  })

  return {
    get connectionCount() {
      return tokensOf.size
    },
    topicCount: () => channelsOfTopic.size,
    *agentIds() {
      for (const [channel] of channelsOfTopic.values()) if (channel) yield channel.agentId
    },
    tokenIds: () => connectionsOfToken.keys(),
    deliver,
    unvouched: () => [...unvouched],
    vouchFor(tokenIds) {
      for (const tokenId of tokenIds) unvouched.delete(tokenId)
    },
    closeTokens(tokenIds, before = Number.POSITIVE_INFINITY, reason = 'revoked') {
      const sentence = SENTENCES[before < Number.POSITIVE_INFINITY ? 'renamed' : reason]
      for (const tokenId of tokenIds) {
        if (before === Number.POSITIVE_INFINITY) revoked.add(tokenId)
        for (const [connection, tiedAt] of [...(connectionsOfToken.get(tokenId) ?? [])]) {
          if (tiedAt < before) attempt(connection, () => connection.revoke(sentence))
        }
      }
    },
    isRevoked: (tokenId) => revoked.has(tokenId),
    addConnection: (connection) => void tokensOf.set(connection, []),
    removeConnection(connection) {
      for (const tokenId of tokensOf.get(connection) ?? []) {
        removeFrom(connectionsOfToken, tokenId, connection)
        if (!connectionsOfToken.has(tokenId)) unvouched.delete(tokenId)
      }
      tokensOf.delete(connection)
    },
    hasRoom,
    tie(connection, tokenId, connectionsMax) {
      const connections = connectionsOfToken.get(tokenId) ?? new Map<HubConnection, number>()
      if (connections.has(connection)) return true
      const tokens = tokensOf.get(connection)
      if (!tokens || !hasRoom(tokenId, connectionsMax)) return false
      if (connections.size === 0) unvouched.add(tokenId)
      connectionsOfToken.set(tokenId, connections.set(connection, performance.now()))
      // Not pushed: an array that grows holds room for 16 more, and there are as many arrays as sockets.
      tokensOf.set(connection, [...tokens, tokenId])
      return true
    },
    addChannel: (channel) => addTo(channelsOfTopic, channel),
    removeChannel: (channel) => removeFrom(channelsOfTopic, channel.topic, channel),
  }
}

/** Works through what it is given, in order: at once, but after SLICE_MS at a stretch the rest waits for its turn. */
function inSlices<T>(work: (item: T) => void): (item: T) => void {
  let queue: T[] = []
  let next = 0
  /** When this stretch is over; 0: none has begun. */
  let until = 0

  function goOn(): void {
    until = performance.now() + SLICE_MS
    while (next < queue.length && performance.now() < until) work(queue[next++] as T)
    if (next < queue.length) {
      setImmediate(goOn)
      return
    }
    queue = []
    next = 0
    until = 0
  }

  return (item) => {
    if (until === 0) {
      until = performance.now() + SLICE_MS
      setImmediate(goOn)
    }
    if (queue.length === 0 && performance.now() < until) work(item)
    else queue.push(item)
  }
}

/** Runs work for somebody; of what it throws, each somebody's first error is told. */
function createAttempts(onError: (error: unknown) => void): (whose: object, work: () => void) => void {
  const failed = new WeakSet<object>()
  return (whose, work) => {
    try {
      work()
    } catch (error) {
      if (failed.has(whose)) return
      failed.add(whose)
      onError(error)
    }
  }
}

function throwLater(error: unknown): void {
  setImmediate(() => {
    throw error
  })
}

function encodeOnce(encode: (serializer: Serializer) => Frame): (serializer: Serializer) => Frame {
  const frames = new Map<Serializer, Frame>()
  return (serializer) => {
    const frame = frames.get(serializer) ?? encode(serializer)
    frames.set(serializer, frame)
    return frame
  }
}

function addTo(channelsOfTopic: Map<string, Set<HubChannel>>, channel: HubChannel): void {
  const channels = channelsOfTopic.get(channel.topic) ?? new Set<HubChannel>()
  channelsOfTopic.set(channel.topic, channels.add(channel))
}

function removeFrom<T>(collections: Map<string, Map<T, unknown> | Set<T>>, key: string, item: T): void {
  const collection = collections.get(key)
  if (collection?.delete(item) && collection.size === 0) collections.delete(key)
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

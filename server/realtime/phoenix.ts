import type { Wake } from '../wakes/bus.ts'

/**
 * The frames of Phoenix channels as Supabase Realtime speaks them. Pure: text in, messages out, and back. A message knows
 * both references; which of them goes on the wire, and where, is the serializer's matter.
 */
export type Ref = string | number | null

/** What a client pushes. The payload may be any JSON. */
export interface Push {
  joinRef: Ref
  ref: Ref
  topic: string
  event: string
  payload: unknown
}

export type ServerMessage = Push

export interface Serializer {
  readonly version: string
  /** null: no frame of this serializer, which is dropped in silence. */
  decode(text: string): Push | null
  encode(message: ServerMessage): string
}

const VERSION_DEFAULT = '1.0.0'

/** Serializer 1.0.0: objects; the server's never carry `join_ref`. */
const serializerV1: Serializer = {
  version: '1.0.0',
  decode(text) {
    const frame = parseObject(text)
    if (!frame || !('payload' in frame) || !('ref' in frame)) return null
    const { topic, event, payload, ref, join_ref: joinRef = null } = frame
    if (typeof topic !== 'string' || typeof event !== 'string' || !isRef(ref) || !isRef(joinRef)) return null
    return { joinRef, ref, topic, event, payload }
  },
  encode: ({ ref, event, topic, payload }) => JSON.stringify({ ref, event, topic, payload }),
}

const serializers: ReadonlyMap<string, Serializer> = new Map([[serializerV1.version, serializerV1]])

/** The serializer of the `vsn` parameter; without one it is 1.0.0; null: not spoken here. */
export function findSerializer(version: string | null): Serializer | null {
  return serializers.get(version ?? VERSION_DEFAULT) ?? null
}

function isRef(value: unknown): value is Ref {
  return value === null || typeof value === 'string' || typeof value === 'number'
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text)
    return isRecord(value) ? value : null
  } catch {
    return null
  }
}

export interface JoinRequest {
  /** null: the connection's apikey stands in for it, as for a key that is no JWT (`sb_…`). */
  accessToken: string | null
  isPrivate: boolean
  postgresChanges: unknown[]
}

/** The payload of `phx_join`, every part of which may be missing; null: a part has the wrong type. */
export function parseJoin(payload: unknown): JoinRequest | null {
  if (!isRecord(payload)) return null
  const { config = {} } = payload
  if (!isRecord(config)) return null
  const { broadcast = {}, postgres_changes: postgresChanges = [], private: isPrivate = false } = config
  if (!isRecord(broadcast) || !Array.isArray(postgresChanges)) return null
  return {
    accessToken: parseAccessToken(payload),
    isPrivate: isPrivate === true || isPrivate === 'true',
    postgresChanges,
  }
}

/** The JWT in a join or an `access_token` push; null: none. */
export function parseAccessToken(payload: unknown): string | null {
  if (!isRecord(payload)) return null
  const token = payload.access_token ?? payload.user_token
  return typeof token === 'string' && !token.startsWith('sb_') ? token : null
}

export function replyTo(push: Push, status: 'ok' | 'error', response: unknown): ServerMessage {
  const { joinRef, ref, topic } = push
  return { joinRef, ref, topic, event: 'phx_reply', payload: { status, response } }
}

/** The end of a channel; it carries the join's reference in both places. */
export function closeMessage(topic: string, joinRef: Ref): ServerMessage {
  return { joinRef, ref: joinRef, topic, event: 'phx_close', payload: {} }
}

/** A `system` message; `channel` is the topic without its prefix. */
export function systemMessage(
  { topic, joinRef }: { topic: string; joinRef: Ref },
  extension: 'system' | 'postgres_changes',
  status: 'ok' | 'error',
  message: string,
): ServerMessage {
  const channel = topic.slice(topic.indexOf(':') + 1)
  return { joinRef, ref: null, topic, event: 'system', payload: { message, status, extension, channel } }
}

/** A wake as Supabase sends what `realtime.send` wrote: `meta.id` is the row's id, which is the message's own. */
export function wakeMessage(topic: string, wake: Wake): ServerMessage {
  const { id, from, to, kind, urgency, thread } = wake
  const payload = { id, from, to, kind, urgency, ...(thread === null ? {} : { thread }) }
  return {
    joinRef: null,
    ref: null,
    topic,
    event: 'broadcast',
    payload: { event: 'wake', meta: { id }, payload, type: 'broadcast' },
  }
}

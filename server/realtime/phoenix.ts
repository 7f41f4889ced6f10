import type { Wake } from '../wakes/bus.ts'
import { jsonbText } from './jsonb.ts'

/**
 * The messages of Phoenix channels as Supabase Realtime speaks them. Pure. A message knows both references; which of them
 * goes on the wire, and where, is the serializer's matter.
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

/** The payload is JSON text: a record stands in it as Postgres prints it. */
export interface ServerMessage extends Push {
  payload: string
  /** Set where a serializer may send the payload in parts. */
  broadcast?: Broadcast
}

/** Event as it is, meta and payload as JSON text. */
export interface Broadcast {
  event: string
  meta: string
  payload: string
}

/** How deep a binding may be: it is echoed, and what is read without recursion is not written without. */
const DEPTH_MAX = 20
/** Supabase Realtime replays no more, whatever a client asks for. */
const REPLAY_MAX = 25

/** Supabase Realtime's own; the bound is below the time in which clients want their heartbeats answered. */
const WAIT_MS = 15_000
const WAIT_MS_MAX = 20_000

export interface ReplayRequest {
  /** Milliseconds since 1970. */
  sinceMs: number
  limit: number
}

export interface JoinRequest {
  /** null: the connection's apikey stands in for it, as for a key that is no JWT (`sb_…`). */
  accessToken: string | null
  isPrivate: boolean
  /** Client broadcasts want a reply. */
  wantsAck: boolean
  /** 'invalid': asked for in a way that nobody understands. */
  replay: ReplayRequest | 'invalid' | null
  postgresChanges: Record<string, unknown>[]
  /** How long the answer may wait until the changes are subscribed to; null: it does not depend on that. */
  waitMs: number | null
}

/** The payload of `phx_join`, every part of which may be missing; null: a part has the wrong type. */
export function parseJoin(payload: unknown): JoinRequest | null {
  if (!isRecord(payload)) return null
  const { config = {} } = payload
  if (!isRecord(config)) return null
  const { broadcast = {}, postgres_changes: postgresChanges = [], private: isPrivate = false } = config
  if (!isRecord(broadcast) || !Array.isArray(postgresChanges) || !postgresChanges.every(isRecord)) return null
  if (!isShallow(postgresChanges, DEPTH_MAX)) return null
  return {
    accessToken: parseAccessToken(payload),
    isPrivate: isTrue(isPrivate),
    wantsAck: isTrue(broadcast.ack),
    replay: parseReplay(broadcast.replay),
    postgresChanges,
    waitMs: parseWait(config.postgres_changes_options),
  }
}

/**
 * `{wait, timeout}`, which servers know since the autumn of 2026; older ones ignore it, and clients must bear that. What is
 * wrong in it counts as missing, as in the original.
 */
function parseWait(options: unknown): number | null {
  if (!isRecord(options) || !isTrue(options.wait)) return null
  return Math.min(isSafeInteger(options.timeout) ? options.timeout : WAIT_MS, WAIT_MS_MAX)
}

function parseReplay(replay: unknown): JoinRequest['replay'] {
  if (replay === undefined || replay === null) return null
  if (!isRecord(replay)) return 'invalid'
  const { since, limit = REPLAY_MAX } = replay
  if (!isSafeInteger(since) || !isSafeInteger(limit) || limit < 1) return 'invalid'
  return { sinceMs: since, limit: Math.min(limit, REPLAY_MAX) }
}

/** The JWT in a join or an `access_token` push; null: none. */
export function parseAccessToken(payload: unknown): string | null {
  if (!isRecord(payload)) return null
  const token = payload.access_token ?? payload.user_token
  return typeof token === 'string' && !token.startsWith('sb_') ? token : null
}

export function replyTo(push: Push, status: 'ok' | 'error', response: unknown): ServerMessage {
  const { joinRef, ref, topic } = push
  return { joinRef, ref, topic, event: 'phx_reply', payload: JSON.stringify({ status, response }) }
}

/** The end of a channel; it carries the join's reference in both places. */
export function closeMessage(topic: string, joinRef: Ref): ServerMessage {
  return { joinRef, ref: joinRef, topic, event: 'phx_close', payload: '{}' }
}

/** A `system` message; `channel` is the topic without its prefix. */
export function systemMessage(
  { topic, joinRef }: { topic: string; joinRef: Ref },
  extension: 'system' | 'postgres_changes',
  status: 'ok' | 'error',
  message: string,
): ServerMessage {
  const channel = topic.slice(topic.indexOf(':') + 1)
  const payload = JSON.stringify({ message, status, extension, channel })
  return { joinRef, ref: null, topic, event: 'system', payload }
}

/**
 * A wake as Supabase sends what `realtime.send` wrote: `meta.id` is the row's id, which is the message's own. Live, the
 * payload is jsonb as Postgres prints it; replayed, it is compact with its keys in order.
 */
export function wakeMessage(topic: string, wake: Wake, isReplayed = false): ServerMessage {
  const { id } = wake
  const payload = isReplayed ? replayedPayload(wake) : livePayload(wake)
  const meta = JSON.stringify(isReplayed ? { id, replayed: true } : { id })
  return {
    joinRef: null,
    ref: null,
    topic,
    event: 'broadcast',
    payload: `{"event":"wake","meta":${meta},"payload":${payload},"type":"broadcast"}`,
    broadcast: { event: 'wake', meta, payload },
  }
}

function replayedPayload({ id, from, to, kind, urgency, thread }: Wake): string {
  return JSON.stringify({ from, id, kind, ...(thread === null ? {} : { thread }), to, urgency })
}

/** As `jsonbText` would write it. On its rare way through a server that does other things, that would be most of a wake's cost. */
function livePayload({ id, from, to, kind, urgency, thread }: Wake): string {
  const [start, end] = [
    `{"id": ${JSON.stringify(id)}, "to": ${JSON.stringify(to)}, "from": ${JSON.stringify(from)}, "kind": ${JSON.stringify(kind)}`,
    `"urgency": ${JSON.stringify(urgency)}}`,
  ]
  return thread === null ? `${start}, ${end}` : `${start}, "thread": ${JSON.stringify(thread)}, ${end}`
}

export interface ChangeParts {
  schema: string
  table: string
  record: Record<string, unknown>
  columns: { name: string; type: string }[]
  committedAt: string
  /** Of the bindings that the row matches. */
  ids: number[]
}

/** An inserted row as Supabase sends it: record and columns as jsonb prints them. */
export function changeMessage(topic: string, change: ChangeParts): ServerMessage {
  const { table, record, columns, schema, committedAt, ids } = change
  const data = [
    `"table":${JSON.stringify(table)},"type":"INSERT","record":${jsonbText(record)},"columns":${jsonbText(columns)}`,
    `"errors":null,"schema":${JSON.stringify(schema)},"commit_timestamp":${JSON.stringify(committedAt)}`,
  ]
  const payload = `{"data":{${data.join(',')}},"ids":${JSON.stringify(ids)}}`
  return { joinRef: null, ref: null, topic, event: 'postgres_changes', payload }
}

function isShallow(value: unknown, depthMax: number): boolean {
  if (typeof value !== 'object' || value === null) return true
  return depthMax > 0 && Object.values(value).every((member) => isShallow(member, depthMax - 1))
}

function isTrue(value: unknown): boolean {
  return value === true || value === 'true'
}

function isSafeInteger(value: unknown): value is number {
  return Number.isSafeInteger(value)
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

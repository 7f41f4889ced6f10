import type { Broadcast, Push, Ref, ServerMessage } from './phoenix.ts'

export type Frame = string | Buffer

/** How messages stand on the wire. What is no frame of a serializer is null, and dropped in silence. */
export interface Serializer {
  readonly version: string
  decode(text: string): Push | null
  decodeBinary(bytes: Buffer): Push | null
  encode(message: ServerMessage): Frame
}

const VERSION_DEFAULT = '1.0.0'

/** Objects; the server's never carry `join_ref`. */
const serializerV1: Serializer = {
  version: '1.0.0',
  decode(text) {
    const frame = parseJson(text)
    if (!isRecord(frame) || !('payload' in frame) || !('ref' in frame)) return null
    const { topic, event, payload, ref, join_ref: joinRef = null } = frame
    return toPush(joinRef, ref, topic, event, payload)
  },
  decodeBinary: () => null,
  encode: ({ ref, event, topic, payload }) =>
    `{"ref":${JSON.stringify(ref)},"event":${JSON.stringify(event)},"topic":${JSON.stringify(topic)},"payload":${payload}}`,
}

/** Arrays of five, and binary frames for broadcasts in both directions. */
const serializerV2: Serializer = {
  version: '2.0.0',
  decode(text) {
    const frame = parseJson(text)
    if (!Array.isArray(frame) || frame.length !== 5) return null
    const [joinRef, ref, topic, event, payload] = frame
    return toPush(joinRef, ref, topic, event, payload)
  },
  decodeBinary: decodeBroadcast,
  encode(message) {
    if (message.broadcast) return encodeBroadcast(message.topic, message.broadcast)
    const { joinRef, ref, topic, event, payload } = message
    return `[${[joinRef, ref, topic, event].map((part) => JSON.stringify(part)).join(',')},${payload}]`
  },
}

const serializers = new Map([serializerV1, serializerV2].map((serializer) => [serializer.version, serializer]))

/** The serializer of the `vsn` parameter; without one it is 1.0.0; null: not spoken here. */
export function findSerializer(version: string | null): Serializer | null {
  return serializers.get(version ?? VERSION_DEFAULT) ?? null
}

const KIND_CLIENT_BROADCAST = 3
const KIND_BROADCAST = 4
const ENCODING_JSON = 1
/** Lengths are one byte each. */
const PART_BYTES_MAX = 255

/** Kind, lengths of topic, event and meta, encoding; then these four. */
function encodeBroadcast(topic: string, { event, meta, payload }: Broadcast): Buffer {
  const parts = [topic, event, meta].map((part) => Buffer.from(part))
  const lengths = parts.map((part) => part.length)
  if (lengths.some((length) => length > PART_BYTES_MAX)) throw new RangeError('a part of a broadcast is too long')
  return Buffer.concat([Buffer.from([KIND_BROADCAST, ...lengths, ENCODING_JSON]), ...parts, Buffer.from(payload)])
}

/** Kind, lengths of join_ref, ref, topic, event and meta, encoding; then these six. Only who sent it, and where, is read. */
function decodeBroadcast(bytes: Buffer): Push | null {
  if (bytes[0] !== KIND_CLIENT_BROADCAST || bytes.length < 7) return null
  let offset = 7
  const [joinRef = '', ref = '', topic = ''] = [...bytes.subarray(1, 4)].map((length) => {
    offset += length
    return bytes.toString('utf8', offset - length, offset)
  })
  if (offset > bytes.length) return null
  return { joinRef: joinRef || null, ref: ref || null, topic, event: 'broadcast', payload: {} }
}

function toPush(joinRef: unknown, ref: unknown, topic: unknown, event: unknown, payload: unknown): Push | null {
  if (typeof topic !== 'string' || typeof event !== 'string' || !isRef(ref) || !isRef(joinRef)) return null
  return { joinRef, ref, topic, event, payload }
}

function isRef(value: unknown): value is Ref {
  return value === null || typeof value === 'string' || typeof value === 'number'
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

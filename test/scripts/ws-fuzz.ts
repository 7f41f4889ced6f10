import { type FrameEvent, FrameParser, MESSAGE_BYTES_MAX } from '../../scripts/lib/ws-frames.mjs'
import { isSameEvents, writeEvent } from '../fixtures/websocket/notation.ts'
import { readWithWs } from './ws-oracle.ts'

/** Small enough to be met by what is generated. */
const SMALL_MESSAGE_BYTES_MAX = 200
const LENGTHS = [0, 1, 2, 5, 30, 124, 125, 126, 127, 128, 199, 200, 201, 300]
const OPCODES = [0, 1, 1, 1, 2, 2, 8, 9, 9, 10]
const CODES = [1000, 1001, 1002, 1005, 1006, 1007, 1012, 1015, 2999, 3000, 4999, 5000]
/** First bytes, second bytes, lead and continuation bytes: where states change. */
const TELLING_BYTES = [0x00, 0x01, 0x02, 0x7d, 0x7e, 0x7f, 0x80, 0x81, 0x82, 0x88, 0x89, 0x8a, 0xbf, 0xc1, 0xc3]
const MORE_TELLING_BYTES = [0xe0, 0xed, 0xf0, 0xf4, 0xf5, 0xfe, 0xff]
const CHARACTERS = ['a', 'z', ' ', '\0', 'é', 'ߟ', 'ࠀ', '€', '\ufeff', '\uffff', '😀', '\u{10ffff}']

export interface Stream {
  bytes: Buffer
  /** The same bytes, cut at random. */
  pieces: Buffer[]
  messageBytesMax: number
}

/** mulberry32: the same stream for the same seed on each machine. Gives integers from 0 to below its argument. */
export type Random = (below: number) => number

export function createRandom(seed: number, index: number): Random {
  let state = (Math.imul(seed, 0x9e3779b1) ^ Math.imul(index + 1, 0x85ebca6b)) >>> 0
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296) * below)
  }
}

/** Up to eight frames, most of them in order, damaged in up to four places. */
export function createStream(random: Random): Stream {
  const frames = Array.from({ length: 1 + random(8) }, () => createFrame(random))
  let bytes: Buffer = Buffer.concat(frames)
  for (let count = random(5); count > 0; count--) bytes = damage(bytes, random)
  return {
    bytes,
    pieces: cut(bytes, random),
    messageBytesMax: random(4) === 0 ? SMALL_MESSAGE_BYTES_MAX : MESSAGE_BYTES_MAX,
  }
}

function pick<T>(values: readonly T[], random: Random): T {
  return values[random(values.length)] as T
}

function createFrame(random: Random): Buffer {
  const opcode = pick(OPCODES, random)
  const payload = opcode === 8 ? createClose(random) : createPayload(random, opcode >= 8 ? 125 : 300)
  const extra = payload.length < 126 ? 0 : 2
  const header = Buffer.alloc(2 + extra)
  const isFinal = opcode >= 8 || random(3) > 0
  header[0] = (isFinal ? 0x80 : 0) | opcode
  header[1] = extra === 0 ? payload.length : 126
  if (extra === 2) header.writeUInt16BE(payload.length, 2)
  return Buffer.concat([header, payload])
}

function createPayload(random: Random, lengthMax: number): Buffer {
  const length = Math.min(random(3) > 0 ? random(12) : pick(LENGTHS, random), lengthMax)
  if (random(4) === 0) return Buffer.from(Array.from({ length }, () => random(256)))
  let text = ''
  while (Buffer.byteLength(text) < length) text += pick(CHARACTERS, random)
  return Buffer.from(text).subarray(0, lengthMax)
}

function createClose(random: Random): Buffer {
  if (random(4) === 0) return Buffer.alloc(random(2))
  const code = Buffer.alloc(2)
  code.writeUInt16BE(random(3) === 0 ? pick(CODES, random) : 1000)
  return Buffer.concat([code, createPayload(random, 123)])
}

function damage(bytes: Buffer, random: Random): Buffer {
  const at = random(bytes.length + 1)
  const [before, after] = [bytes.subarray(0, at), bytes.subarray(at)]
  const telling = Buffer.from([pick([...TELLING_BYTES, ...MORE_TELLING_BYTES], random)])
  switch (random(7)) {
    case 0:
      return Buffer.concat([
        before,
        Buffer.from(after.subarray(0, 1).map((byte) => byte ^ (1 << random(8)))),
        after.subarray(1),
      ])
    case 1:
      return Buffer.concat([before, telling, after.subarray(1)])
    case 2:
      return Buffer.concat([before, telling, after])
    case 3:
      return Buffer.concat([before, after.subarray(1 + random(3))])
    case 4:
      return before
    case 5:
      return Buffer.concat([before, after.subarray(0, random(40)), after])
    default:
      return Buffer.concat([before, createFrame(random), after])
  }
}

function cut(bytes: Buffer, random: Random): Buffer[] {
  const pieces: Buffer[] = []
  const sizeMax = pick([1, 2, 3, 10, 100], random)
  for (let at = 0; at < bytes.length; ) {
    const size = 1 + random(sizeMax)
    pieces.push(bytes.subarray(at, at + size))
    at += size
  }
  return pieces
}

/**
 * Reads a stream whole, in its pieces and with the ws package. Throws where these differ without a reason, or an event comes
 * after the last; gives how the stream ended: `close 1000`, `violation 1002`, `open`.
 */
export function checkStream({ bytes, pieces, messageBytesMax }: Stream): string {
  const whole = new FrameParser({ messageBytesMax })
  const events = whole.push(bytes)
  const parser = new FrameParser({ messageBytesMax })
  const inPieces = pieces.flatMap((piece) => parser.push(piece))
  if (!isSameEvents(events, inPieces)) throw new Error(`in pieces: ${write(inPieces)}; whole: ${write(events)}`)
  const last = events.at(-1)
  const isEnded = (event: FrameEvent | undefined) => event?.type === 'close' || event?.type === 'violation'
  if (events.slice(0, -1).some(isEnded)) throw new Error(`events after the end: ${write(events)}`)
  if (isEnded(last) && whole.push(bytes).length > 0) throw new Error('the parser goes on after its end')
  checkAgainstWs(bytes, events, messageBytesMax)
  return last !== undefined && 'code' in last ? `${last.type} ${last.code}` : 'open'
}

/** The differences are those of the case table: early refusals, minimal lengths, lengths above 2^53. */
function checkAgainstWs(bytes: Buffer, events: FrameEvent[], messageBytesMax: number): void {
  const theirs = readWithWs(bytes, messageBytesMax)
  if (isSameEvents(events, theirs)) return
  const last = events.at(-1)
  const isPrefix = isSameEvents(events.slice(0, -1), theirs.slice(0, events.length - 1))
  if (last?.type === 'violation' && isPrefix && isKnownDifference(last, bytes, theirs, events.length - 1)) return
  throw new Error(`ws: ${write(theirs)}; we: ${write(events)}`)
}

function isKnownDifference(
  { code, message }: { code: number; message: string },
  bytes: Buffer,
  theirs: FrameEvent[],
  index: number,
): boolean {
  if (code === 1007) return message === 'a text message is not UTF-8'
  if (message === 'the length is not minimal') return true
  const their = theirs[index]
  if (message === 'the top bit of the length is set') return their?.type === 'violation' && their.code === 1009
  // A bad first byte at the very end, which ws does not look at alone.
  return code === 1002 && their === undefined && endsWithFirstByte(bytes)
}

/** Whether the parser stands between frames before the last byte. */
function endsWithFirstByte(bytes: Buffer): boolean {
  const parser = new FrameParser()
  parser.push(bytes.subarray(0, -1))
  // An empty ping is an event only where a frame may begin.
  return parser.push(Buffer.from('8900', 'hex')).some(({ type }) => type === 'ping')
}

function write(events: FrameEvent[]): string {
  return `[${events.map(writeEvent).join(', ')}]`
}

export interface FuzzOptions {
  seed: number
  /** Index of the first stream: a failure names it, and `from` with one stream repeats it. */
  from?: number
  streams: number
  onBatch?: (done: number) => void
}

/** Checks streams one after the other; gives how many ended in which way. Throws with seed, index and bytes of a failure. */
export async function fuzzStreams({ seed, from = 0, streams, onBatch }: FuzzOptions): Promise<Map<string, number>> {
  const ends = new Map<string, number>()
  for (let index = from; index < from + streams; index++) {
    const stream = createStream(createRandom(seed, index))
    try {
      const end = checkStream(stream)
      ends.set(end, (ends.get(end) ?? 0) + 1)
    } catch (error) {
      throw new Error(`seed ${seed}, stream ${index}, bytes ${stream.bytes.toString('hex')}`, { cause: error })
    }
    if ((index - from + 1) % 1_000 !== 0) continue
    onBatch?.(index - from + 1)
    // The streams of the ws package are only let go of a tick later.
    await new Promise((resolve) => setImmediate(resolve))
  }
  return ends
}

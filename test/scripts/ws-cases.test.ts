import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { type FrameEvent, FrameParser, MESSAGE_BYTES_MAX } from '../../scripts/lib/ws-frames.mjs'
import { type FrameCase, frameCases } from '../fixtures/websocket/frames.ts'
import { isSameEvents, parseBytes, writeEvent } from '../fixtures/websocket/notation.ts'
import { readWithWs } from './ws-oracle.ts'

function read({ messageBytesMax = MESSAGE_BYTES_MAX }: FrameCase, pieces: Uint8Array[]): FrameEvent[] {
  const parser = new FrameParser({ messageBytesMax })
  return pieces.flatMap((piece) => parser.push(piece))
}

/** How many bytes had come, one by one, when the connection was failed; null if it was not. */
function countUntilViolation({ messageBytesMax = MESSAGE_BYTES_MAX }: FrameCase, bytes: Buffer): number | null {
  const parser = new FrameParser({ messageBytesMax })
  for (let at = 0; at < bytes.length; at++) {
    if (parser.push(bytes.subarray(at, at + 1)).some(({ type }) => type === 'violation')) return at + 1
  }
  return null
}

/** Up to here a case is cut at each byte. */
const CUT_EVERYWHERE_MAX = 1_000
const EDGE = 40
const HEADER_MAX = 10
/** A prime, so that what it leaves out has no pattern. */
const STRIDE = 251

/**
 * Where bytes are cut in two. The long cases are one frame of equal bytes each: once its header is read, the parser knows of a
 * cut only how much is left and how much it has, which single bytes go through anyway. So these are cut at each byte of both
 * ends, where the header and the last byte are, around the powers of two at which what it has collected grows, and here and
 * there between.
 */
function cutsOf(length: number): number[] {
  const all = Array.from({ length: length + 1 }, (_, cut) => cut)
  if (length <= CUT_EVERYWHERE_MAX) return all
  const isNearPower = (cut: number) => cut - 2 ** Math.floor(Math.log2(cut)) <= HEADER_MAX + 1
  return all.filter((cut) => cut <= EDGE || cut >= length - EDGE || cut % STRIDE === 0 || isNearPower(cut))
}

describe('frames are read the same in one piece, in single bytes and cut in two, the short ones at each byte', () => {
  for (const [group, cases] of Object.entries(frameCases)) {
    test(`${group}: ${cases.length} cases`, () => {
      for (const frameCase of cases) {
        const { name, bytes: notation, events: expected } = frameCase
        const { bytes, failsAfter } = parseBytes(notation)
        const whole = read(frameCase, [bytes])
        assert.deepEqual(whole.map(writeEvent), expected, name)
        assert.deepEqual(
          read(
            frameCase,
            [...bytes].map((byte) => Uint8Array.of(byte)),
          ),
          whole,
          name,
        )
        for (const cut of cutsOf(bytes.length)) {
          const events = read(frameCase, [bytes.subarray(0, cut), bytes.subarray(cut)])
          if (!isSameEvents(events, whole)) assert.deepEqual(events.map(writeEvent), expected, `${name}, cut at ${cut}`)
        }
        assert.equal(countUntilViolation(frameCase, bytes), failsAfter, `${name}: not refused at the marked byte`)
      }
    })
  }
})

test('the table of frames names each case once', () => {
  const names = Object.values(frameCases).flatMap((cases) => cases.map(({ name }) => name))
  assert.equal(new Set(names).size, names.length)
})

test('the ws package reads each frame as we do, but for the differences that the table gives a reason for', () => {
  for (const { name, bytes, events, messageBytesMax = MESSAGE_BYTES_MAX, ws } of Object.values(frameCases).flat()) {
    const theirs = readWithWs(parseBytes(bytes).bytes, messageBytesMax).map(writeEvent)
    assert.deepEqual(theirs, ws?.events ?? events, name)
    if (ws !== undefined) assert.notDeepEqual(theirs, events, `${name}: there is no difference any more`)
  }
})

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

describe('frames are read the same in one piece, in single bytes and cut in two at each byte', () => {
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
        for (let cut = 0; cut <= bytes.length; cut++) {
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

import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import {
  encodeClosePayload,
  encodeFrame,
  type FrameEvent,
  FrameParser,
  isCloseCode,
  OPCODE,
} from '../../scripts/lib/ws-frames.mjs'

function parse(hex: string, chunkBytes = Number.POSITIVE_INFINITY, options = {}): FrameEvent[] {
  const bytes = Buffer.from(hex.replaceAll(' ', ''), 'hex')
  const parser = new FrameParser(options)
  const events: FrameEvent[] = []
  for (let at = 0; at < bytes.length; at += chunkBytes) events.push(...parser.push(bytes.subarray(at, at + chunkBytes)))
  return events
}

function serverFrame(opcode: number, payload: Uint8Array, { isFinal = true } = {}): Buffer {
  const extra = payload.length < 126 ? 0 : payload.length < 65536 ? 2 : 8
  const header = Buffer.alloc(2 + extra)
  header[0] = (isFinal ? 0x80 : 0) | opcode
  header[1] = extra === 0 ? payload.length : extra === 2 ? 126 : 127
  if (extra === 2) header.writeUInt16BE(payload.length, 2)
  if (extra === 8) header.writeBigUInt64BE(BigInt(payload.length), 2)
  return Buffer.concat([header, payload])
}

function violationCode(hex: string, options = {}): number | null {
  const last = parse(hex, Number.POSITIVE_INFINITY, options).at(-1)
  return last?.type === 'violation' ? last.code : null
}

test('a text message in one frame is read, whatever the chunks', () => {
  for (const chunk of [1, 2, 3, 100])
    assert.deepEqual(parse('81 05 48656c6c6f', chunk), [{ type: 'text', text: 'Hello' }])
})

test('a message in three frames with a ping and a pong between them is one message', () => {
  const events = parse('01 03 48656c 89 02 6869 00 01 6c 8a 00 80 01 6f', 1)
  assert.deepEqual(
    events.map((event) => event.type),
    ['ping', 'pong', 'text'],
  )
  assert.deepEqual(events[2], { type: 'text', text: 'Hello' })
  assert.equal((events[0] as { data: Buffer }).data.toString(), 'hi')
})

test('an empty message and empty fragments are messages too', () => {
  assert.deepEqual(parse('81 00'), [{ type: 'text', text: '' }])
  assert.deepEqual(parse('01 00 00 00 80 00'), [{ type: 'text', text: '' }])
})

test('a character that two fragments share is put together', () => {
  assert.deepEqual(parse('01 01 c3 80 01 a9'), [{ type: 'text', text: 'é' }])
})

test('lengths of 125, 126, 65535 and 65536 bytes use the three forms', () => {
  for (const length of [125, 126, 127, 65535, 65536, 70000]) {
    const events = new FrameParser().push(serverFrame(OPCODE.binary, Buffer.alloc(length, 7)))
    assert.equal(events.length, 1)
    assert.equal((events[0] as { data: Buffer }).data.length, length)
  }
})

test('every break of the protocol is 1002', () => {
  const broken = {
    'a masked frame': '81 85 01020304 00000000 00',
    RSV1: 'c1 00',
    RSV2: 'a1 00',
    RSV3: '91 00',
    'opcode 3': '83 00',
    'opcode 7': '87 00',
    'opcode 11': '8b 00',
    'opcode 15': '8f 00',
    'a fragmented ping': '09 00',
    'a long ping': '89 7e 007e',
    'a continuation of nothing': '80 00',
    'a text inside a text': '01 00 81 00',
    'a length that is not minimal (16 bit)': '81 7e 0001 61',
    'a length that is not minimal (64 bit)': '81 7f 0000000000000001 61',
    'a length with the top bit': '82 7f 8000000000000000',
    'a close of one byte': '88 01 03',
  }
  for (const [name, hex] of Object.entries(broken)) assert.equal(violationCode(hex), 1002, name)
})

test('text that is not UTF-8 is 1007, in a message and in a close reason', () => {
  for (const bytes of ['ff', 'c0af', 'eda080', 'f4908080', 'c3']) {
    const length = (bytes.length / 2).toString(16).padStart(2, '0')
    assert.equal(violationCode(`81 ${length} ${bytes}`), 1007, bytes)
  }
  assert.equal(violationCode('88 03 03e8 ff'), 1007)
})

test('a message over the limit is 1009 before its bytes have come, in one frame and in many', () => {
  assert.equal(violationCode('82 7f 0000000001000001'), 1009)
  assert.equal(violationCode('82 05', { messageBytesMax: 4 }), 1009)
  assert.equal(violationCode('02 03 010101 80 02', { messageBytesMax: 4 }), 1009)
})

test('a close gives its code and reason, 1005 without one, and nothing after it is read', () => {
  assert.deepEqual(parse('88 00 81 01 61'), [{ type: 'close', code: 1005, reason: '' }])
  assert.deepEqual(parse('88 05 03f4 627965 ffff', 1), [{ type: 'close', code: 1012, reason: 'bye' }])
})

test('close codes that never travel are 1002', () => {
  const parsed = (code: number) => parse(`88 02 ${code.toString(16).padStart(4, '0')}`)[0]
  for (const code of [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535]) {
    assert.equal(parsed(code)?.type, 'violation', String(code))
    assert.equal(isCloseCode(code), false)
  }
  for (const code of [1000, 1001, 1003, 1007, 1011, 1012, 1014, 3000, 4999]) {
    assert.equal(parsed(code)?.type, 'close', String(code))
  }
})

test('any bytes in any chunks end in events, never in an exception, and chunks do not matter', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), fc.integer({ min: 1, max: 9 }), (bytes, chunk) => {
      const hex = Buffer.from(bytes).toString('hex')
      assert.deepEqual(parse(hex, chunk), parse(hex))
    }),
    { numRuns: 2_000 },
  )
})

test('a client frame is masked and carries bytes, not characters', () => {
  const frame = encodeFrame(OPCODE.text, Buffer.from('é'.repeat(100)), Buffer.from([1, 2, 3, 4]))
  assert.equal(frame.subarray(0, 4).toString('hex'), '81fe00c8')
  assert.equal(frame[8], 0xc3 ^ 1)
  assert.equal(frame.length, 2 + 2 + 4 + 200)
  assert.equal(encodeFrame(OPCODE.binary, Buffer.alloc(65536), Buffer.alloc(4)).readBigUInt64BE(2), 65536n)
})

test('a close reason is cut to 123 bytes at a character', () => {
  const payload = encodeClosePayload(1000, 'é'.repeat(100))
  assert.equal(payload.length, 2 + 122)
  assert.equal(payload.subarray(2).toString(), 'é'.repeat(61))
})

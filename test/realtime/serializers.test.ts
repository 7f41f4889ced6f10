import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { jsonbText } from '../../server/realtime/jsonb.ts'
import { closeMessage, replyTo, systemMessage, wakeMessage } from '../../server/realtime/phoenix.ts'
import { findSerializer, type Serializer } from '../../server/realtime/serializers.ts'
import { ALICE, topicOf, wakeFor } from './endpoint-helper.ts'

const v1 = findSerializer('1.0.0') as Serializer
const v2 = findSerializer('2.0.0') as Serializer
const topic = topicOf(ALICE)

describe('serializers', () => {
  test('without a version 1.0.0 is spoken, and any other but the two is unknown', () => {
    assert.equal(findSerializer(null), v1)
    for (const version of ['', '1', '2.0', '2.0.1', '3.0.0', 'constructor']) assert.equal(findSerializer(version), null)
  })

  test('a push reads the same in both', () => {
    const push = { joinRef: '1', ref: '2', topic, event: 'phx_leave', payload: { a: [1] } }
    assert.deepEqual(
      v1.decode(JSON.stringify({ topic, event: 'phx_leave', payload: { a: [1] }, ref: '2', join_ref: '1' })),
      push,
    )
    assert.deepEqual(v2.decode(JSON.stringify(['1', '2', topic, 'phx_leave', { a: [1] }])), push)
  })

  test('what is no frame of 2.0.0 is dropped', () => {
    for (const text of ['', '{', '{}', '[]', '"str"', 'null', '["1","2","t","e"]', '["1","2","t","e",{},0]']) {
      assert.equal(v2.decode(text), null)
    }
    assert.equal(v2.decode('["1","2",5,"e",{}]'), null)
    assert.equal(v2.decode('["1",{},"t","e",{}]'), null)
    for (const hex of ['', '03', '04010101016161', '030101ff00000161', '030000000000']) {
      assert.equal(v2.decodeBinary(Buffer.from(hex, 'hex')), null)
    }
    assert.equal(v1.decodeBinary(Buffer.from('0301010101000131327465', 'hex')), null)
  })

  test("a client's binary broadcast is read as far as where it came from", () => {
    const bytes = Buffer.concat([Buffer.from([3, 1, 2, 9, 3, 0, 1]), Buffer.from('112realtime:msg{"a":1}')])
    assert.deepEqual(v2.decodeBinary(bytes), {
      joinRef: '1',
      ref: '12',
      topic: 'realtime:',
      event: 'broadcast',
      payload: {},
    })
  })

  test('replies and system messages carry join_ref in 2.0.0 only, closes the same reference twice', () => {
    const push = { joinRef: '1', ref: '2', topic: 'realtime:m', event: 'x', payload: {} }
    const reply = replyTo(push, 'ok', {})
    assert.equal(v2.encode(reply), '["1","2","realtime:m","phx_reply",{"status":"ok","response":{}}]')
    assert.equal(
      v1.encode(reply),
      '{"ref":"2","event":"phx_reply","topic":"realtime:m","payload":{"status":"ok","response":{}}}',
    )
    assert.equal(
      v2.encode(systemMessage({ topic: 'realtime:m', joinRef: '1' }, 'system', 'error', 'Token "x"')),
      '["1",null,"realtime:m","system",{"message":"Token \\"x\\"","status":"error","extension":"system","channel":"m"}]',
    )
    assert.equal(v2.encode(closeMessage('realtime:m', '1')), '["1","1","realtime:m","phx_close",{}]')
  })

  test('a wake is text in 1.0.0 and the recorded binary frame in 2.0.0, with the same parts', () => {
    const message = wakeMessage(topic, { ...wakeFor(ALICE), from: 'zoë' })
    const { payload } = JSON.parse(v1.encode(message) as string)
    const frame = v2.encode(message) as Buffer
    const [kind, topicLength = 0, eventLength = 0, metaLength = 0, encoding] = frame
    assert.deepEqual([kind, topicLength, eventLength, encoding], [4, Buffer.byteLength(topic), 4, 1])
    const text = (start: number, length?: number) =>
      frame.toString('utf8', start, length === undefined ? undefined : start + length)
    assert.equal(text(5, topicLength), topic)
    assert.equal(text(5 + topicLength, eventLength), 'wake')
    assert.deepEqual(JSON.parse(text(5 + topicLength + eventLength, metaLength)), payload.meta)
    assert.deepEqual(JSON.parse(text(5 + topicLength + eventLength + metaLength)), payload.payload)
    assert.equal(payload.payload.from, 'zoë')
  })

  test('a live wake has its payload as jsonb prints it, with a thread and without', () => {
    for (const thread of ['plan', null]) {
      const { id, to, kind, urgency } = wakeFor(ALICE)
      const wake = { ...wakeFor(ALICE), from: 'z"ö', thread }
      const parts = { from: wake.from, id, kind, ...(thread ? { thread } : {}), to, urgency }
      assert.equal(wakeMessage(topic, wake).broadcast?.payload, jsonbText(parts))
    }
  })

  test('a broadcast whose length does not fit its byte is an error, not another message', () => {
    const long = `realtime:${'x'.repeat(256)}`
    assert.throws(() => v2.encode(wakeMessage(long, wakeFor(ALICE))), RangeError)
    assert.match(v1.encode(wakeMessage(long, wakeFor(ALICE))) as string, /"event":"wake"/)
  })
})

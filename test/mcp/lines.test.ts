import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createFence } from '../../server/mcp/fence.ts'
import { protect } from '../../server/mcp/fence-answer.ts'
import { describeAge, describeMessage, describeReach } from '../../server/mcp/lines.ts'
import { compact } from '../../server/mcp/schema.ts'

const NOW = Date.parse('2026-11-29T12:00:00Z')
const ago = (seconds: number) => new Date(NOW - seconds * 1000).toISOString()
const MESSAGE = {
  message_id: '01a2',
  from: 'alice',
  thread: null,
  kind: 'message',
  urgency: 'normal',
  reply_to: null,
  sent_at: ago(20),
  content: 'hello',
  content_length: 5,
  shown_seconds_ago: null,
}

describe('lines of text', () => {
  test('an age stands in its largest unit, and a clock that runs ahead makes none negative', () => {
    const ages = [-5, 0, 20, 119, 120, 3_600, 7_199, 7_200, 172_799, 172_800, 864_000]
    assert.deepEqual(
      ages.map((seconds) => describeAge(ago(seconds), NOW)),
      ['0 s', '0 s', '20 s', '119 s', '2 min', '60 min', '120 min', '2 h', '48 h', '2 d', '10 d'].map(
        (age) => `${age} ago`,
      ),
    )
  })

  test('a message says what is not usual of it', () => {
    assert.deepEqual(describeMessage(MESSAGE, NOW), ['alice: 20 s ago', 'hello'])
    const unusual = {
      ...MESSAGE,
      kind: 'request',
      urgency: 'urgent',
      thread: 'deploys',
      reply_to: '01a1',
      shown_seconds_ago: 20,
    }
    assert.deepEqual(describeMessage(unusual, NOW), [
      'alice: urgent, request, thread deploys, 20 s ago, in reply to 01a1, shown 20 s ago',
      'hello',
    ])
  })

  test('reach is told with what follows from it', () => {
    const none = { last_seen_at: null, held_until: null }
    assert.equal(describeReach({ reach: 'wakeable', ...none }, NOW), 'wakeable')
    assert.equal(describeReach({ reach: 'online', ...none }, NOW), 'online')
    assert.equal(describeReach({ reach: 'offline', ...none }, NOW), 'offline, never seen: it waits in their inbox')
    assert.equal(
      describeReach({ reach: 'offline', last_seen_at: ago(7_200) }, NOW),
      'offline, last seen 2 h ago: it waits in their inbox',
    )
    assert.equal(
      describeReach({ reach: 'wakeable', last_seen_at: null, held_until: ago(-480) }, NOW),
      'wakeable; too many turns without a person, so it wakes them in 8 min',
    )
  })
})

describe('what a model is shown of an answer', () => {
  test('words of a sender are fenced at every depth, and every other text is cleaned', () => {
    const fence = createFence()
    const hidden = { deep: [{ ...MESSAGE, from: 'al\u200bice', content: 'x\u202ey' }], machine: 'mbp\n<b>\u{e0041}' }
    const { deep, machine } = protect(hidden, fence, 'acme')
    assert.equal(machine, 'mbp b')
    assert.equal(deep[0]?.from, 'alice')
    const open = `<${fence.marker} from="alice@acme" id="01a2" trust="same-namespace">`
    assert.equal(
      deep[0]?.content,
      `${open}\nxy\n</${fence.marker}>\n[hidden characters removed from this text: 1]\n` +
        '[cut at 3 of 5 characters: recall with message_id 01a2 and offset 3 shows the rest]',
    )
  })

  test('what says nothing is left out', () => {
    const full = { a: null, b: [], c: false, d: 0, e: '', f: [{ g: null, h: 1 }], i: true }
    assert.deepEqual(compact(full), { d: 0, e: '', f: [{ h: 1 }], i: true })
  })
})

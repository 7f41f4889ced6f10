import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { Phoenix } from '../../scripts/lib/phoenix.mjs'
import { pause } from './listener-process.ts'

const TOPIC = 'realtime:agent:a:b'
const CONFIG = { broadcast: { ack: false, self: false }, postgres_changes: [], private: true }
const CHANGES = { ...CONFIG, postgres_changes: [{ event: 'INSERT', schema: 'patchcord', table: 'agent_messages' }] }
const TIMES = { heartbeatMs: 10_000, heartbeatReplyMs: 10_000, joinMs: 10_000, subscribedMs: 10_000 }

interface Sent {
  topic: string
  event: string
  payload: unknown
  ref: string
  join_ref: string | null
}

function setUp(context: TestContext, times = {}) {
  const sent: Sent[] = []
  const events: string[] = []
  const phoenix = new Phoenix(
    {
      send: (text) => sent.push(JSON.parse(text)),
      onJoined: (topic) => events.push(`joined ${topic}`),
      onFailure: (reason) => events.push(`failure ${reason}`),
      onSystem: (topic) => events.push(`system ${topic}`),
      onMessage: (_topic, event) => events.push(`message ${event}`),
    },
    { ...TIMES, ...times },
  )
  context.after(() => phoenix.end())
  phoenix.start()
  const receive = (event: string, payload: unknown, ref: string | null = null, topic = TOPIC) => {
    phoenix.receive(JSON.stringify({ ref, event, topic, payload }))
  }
  return { phoenix, sent, events, receive }
}

function setUpJoined(context: TestContext, times = {}) {
  const all = setUp(context, times)
  all.phoenix.join(TOPIC, CONFIG, 'jwt')
  all.receive('phx_reply', { status: 'ok', response: {} }, '1')
  assert.deepEqual(all.events, [`joined ${TOPIC}`])
  return all
}

test('a join carries its own ref as join_ref, the config and the token', (context) => {
  const { sent } = setUpJoined(context)
  const payload = { config: CONFIG, access_token: 'jwt' }
  assert.deepEqual(sent[0], { topic: TOPIC, event: 'phx_join', payload, ref: '1', join_ref: '1' })
})

test('a refused join is a failure with the reason of the server', (context) => {
  const { phoenix, events, receive } = setUp(context)
  phoenix.join(TOPIC, CONFIG, 'jwt')
  receive('phx_reply', { status: 'error', response: { reason: 'Unauthorized: no\npermission' } }, '1')
  assert.deepEqual(events, ['failure join refused: Unauthorized: no permission'])
  assert.equal(phoenix.isJoined, false)
})

test('a join that nobody answers is a failure', async (context) => {
  const { phoenix, events } = setUp(context, { joinMs: 30 })
  phoenix.join(TOPIC, CONFIG, 'jwt')
  await pause(200)
  assert.deepEqual(events, [`failure join of ${TOPIC} timed out`])
})

test('a system error, phx_close and phx_error each end a joined topic', (context) => {
  const ends: [string, unknown, string | null][] = [
    ['system', { status: 'error', message: 'Token has expired 0 seconds ago', extension: 'system' }, null],
    ['phx_close', {}, '1'],
    ['phx_error', {}, '1'],
    ['phx_error', {}, null],
  ]
  for (const [event, payload, ref] of ends) {
    const { events, receive } = setUpJoined(context)
    receive(event, payload, ref)
    assert.match(events[1] ?? '', /^failure /, event)
    receive('broadcast', { event: 'wake' })
    assert.equal(events.length, 2, 'nothing is reported after a failure')
  }
})

test('a new join replaces the old one: the end of the old is no failure and its last messages count', (context) => {
  const { phoenix, events, receive } = setUpJoined(context)
  phoenix.join(TOPIC, CONFIG, 'jwt2')
  receive('broadcast', { event: 'wake' })
  receive('phx_reply', { status: 'ok', response: {} }, '2')
  receive('phx_close', {}, '1')
  assert.deepEqual(events.slice(1), ['message broadcast', `joined ${TOPIC}`])
  assert.equal(phoenix.isJoined, true)
  receive('phx_close', {}, '2')
  assert.equal(events.at(-1), 'failure topic ended (phx_close)')
})

test('heartbeats keep their cadence and only the reply to the last one counts', async (context) => {
  const { sent, events, receive } = setUpJoined(context, { heartbeatMs: 40, heartbeatReplyMs: 30 })
  const answered = setInterval(() => {
    const beat = sent.at(-1)
    if (beat?.event === 'heartbeat') receive('phx_reply', { status: 'ok', response: {} }, beat.ref, 'phoenix')
  }, 5)
  await pause(300)
  clearInterval(answered)
  const beats = sent.filter((frame) => frame.event === 'heartbeat')
  assert.ok(beats.length >= 3, `${beats.length} heartbeats`)
  assert.deepEqual(beats[0], { topic: 'phoenix', event: 'heartbeat', payload: {}, ref: '2', join_ref: null })
  assert.equal(events.length, 1)
  // Other traffic and old replies do not stand for the missing one.
  const noise = setInterval(() => {
    receive('broadcast', { event: 'wake' })
    receive('phx_reply', { status: 'ok', response: {} }, '2', 'phoenix')
  }, 5)
  await pause(300)
  clearInterval(noise)
  assert.ok(events.includes('failure heartbeat was not answered'))
})

test('postgres_changes must be confirmed by a system message', async (context) => {
  for (const isConfirmed of [true, false]) {
    const { phoenix, events, receive } = setUp(context, { subscribedMs: 40 })
    phoenix.join(TOPIC, CHANGES, 'jwt')
    receive('phx_reply', { status: 'ok', response: {} }, '1')
    receive('system', { status: 'ok', message: 'Replication connection established', extension: 'system' })
    assert.equal(phoenix.isJoined, false)
    const message = { message: 'Subscribed to PostgreSQL', status: 'ok', extension: 'postgres_changes' }
    if (isConfirmed) receive('system', message)
    assert.equal(phoenix.isJoined, isConfirmed)
    await pause(200)
    assert.equal(events.at(-1), isConfirmed ? `joined ${TOPIC}` : 'failure postgres_changes was not confirmed')
  }
})

test('what is no envelope, or of a topic nobody joined, is dropped', (context) => {
  const { phoenix, events, receive } = setUpJoined(context)
  for (const text of ['', '{', '[]', 'null', '7', '"x"', '{}', '{"topic":1,"event":2}', '{"topic":"phoenix"}'])
    phoenix.receive(text)
  receive('phx_close', {}, '1', 'realtime:other')
  receive('phx_reply', { status: 'error', response: { reason: 'unmatched topic' } }, '99')
  receive('phx_reply', null, '1')
  receive('broadcast', [1])
  assert.deepEqual(events.slice(1), ['message broadcast'])
})

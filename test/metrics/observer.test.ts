import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Metrics } from '../../server/metrics/metrics.ts'
import { observeWakes } from '../../server/metrics/observer.ts'
import { createBus, type Wake, type WakeObserver } from '../../server/wakes/bus.ts'
import { startPeers } from '../../server/wakes/peers.ts'
import { createWaiters } from '../../server/wakes/waiters.ts'

const WAKE: Wake = {
  id: '019ad2b1-0000-7000-8000-000000000000',
  toNamespaceId: 'ns',
  toAgentId: 'bob',
  from: 'alice',
  to: 'bob',
  namespace: 'acme',
  kind: 'message',
  urgency: 'normal',
  thread: null,
}
const SENT_MS = 0x019ad2b10000

/** What a pair of a bus and its sink would tell, counted and logged as a server does. */
function observe(level = 'debug') {
  const told: unknown[][] = []
  const lines: object[] = []
  const metrics = {
    wakeCame: (...args: unknown[]) => told.push(['came', ...args]),
    wakeTaken: () => told.push(['taken']),
    wakeDelivered: (...args: unknown[]) => told.push(['delivered', ...args]),
  } as unknown as Metrics
  const log = { debug: (line: object) => void lines.push(line), isLevelEnabled: (asked: string) => asked === level }
  return { told, lines, observer: observeWakes(metrics, log) }
}

function createInstance(observer: WakeObserver) {
  const bus = createBus(createWaiters({ waitersPerAgentMax: 1 }), observer)
  bus.addSink({ deliver: (wake) => observer.delivered(wake, 2), agentIds: () => [] })
  return bus
}

test('how a wake was learned of: by the own send, from a peer, due only now, or missed by everything else', () => {
  const { told, observer } = observe()
  const sourceOf = (work: (bus: ReturnType<typeof createInstance>) => void) => {
    told.length = 0
    work(createInstance(observer))
    return told.map(([what, source]) => `${what} ${source}`)
  }
  const found = { ...WAKE, wakeAt: new Date(SENT_MS + 3).toISOString(), isRepeated: false }
  assert.deepEqual(
    sourceOf((bus) => bus.publish([WAKE], 'a'.repeat(32))),
    ['came send', 'delivered send'],
  )
  assert.deepEqual(
    sourceOf((bus) => bus.receive([{ ...WAKE, origin: { trace: 'a', at: 1, isPeers: true } }])),
    ['came peer', 'delivered peer'],
  )
  assert.deepEqual(
    sourceOf((bus) => bus.receive([found])),
    ['came read_back', 'delivered read_back'],
  )
  const late = { ...found, wakeAt: new Date(SENT_MS + 60_000).toISOString() }
  for (const due of [late, { ...found, isRepeated: true }, { ...found, kind: 'expired' }]) {
    assert.deepEqual(
      sourceOf((bus) => bus.receive([due])),
      ['came due', 'delivered due'],
    )
  }
})

test('a wake of an instance of an earlier version has no trace and no delay, and is delivered', async () => {
  const { told, lines, observer } = observe()
  let hear: (payload: string) => void = () => undefined
  const peers = await startPeers({
    open: async (_name, handlers) => {
      hear = handlers.onPayload
      return { payloadBytesMax: 7_900, notify: async () => undefined, close: async () => undefined }
    },
    bus: createInstance(observer),
    onListening: () => undefined,
    log: { warn: (_details, message) => assert.fail(message) },
  })
  hear(JSON.stringify({ from: 'another', wakes: [WAKE] }))
  const origin = { trace: 'b'.repeat(32), at: Date.now() - 5 }
  hear(JSON.stringify({ from: 'another', wakes: [{ ...WAKE, id: `${WAKE.id.slice(0, -1)}1`, origin }] }))
  await peers.close()
  assert.deepEqual(told[0], ['came', 'peer'])
  assert.deepEqual(told[1]?.slice(2), [2, null])
  assert.deepEqual(told[3]?.slice(0, 3), ['delivered', 'peer', 2])
  assert.ok(Number(told[3]?.[3]) >= 5)
  assert.deepEqual(lines[1], { trace: origin.trace, message_id: `${WAKE.id.slice(0, -1)}1`, sockets: 2 })
})

test('a clock that is behind makes no wake come before it was sent', () => {
  const { told, observer } = observe()
  const origin = { trace: 'a', at: Date.now() + 60_000, isPeers: true }
  createInstance(observer).receive([{ ...WAKE, origin }])
  assert.deepEqual(told[1], ['delivered', 'peer', 2, 0])
})

test('above debug nothing is written, and lines hold ids and counts, never a name', () => {
  const quiet = observe('info')
  createInstance(quiet.observer).publish([WAKE], 'c'.repeat(32))
  assert.deepEqual(quiet.lines, [])
  const talkative = observe()
  createInstance(talkative.observer).publish([WAKE], 'c'.repeat(32))
  assert.deepEqual(talkative.lines, [{ trace: 'c'.repeat(32), message_id: WAKE.id, sockets: 2 }])
})

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createBus, type Wake } from '../../server/wakes/bus.ts'
import { pack } from '../../server/wakes/peers.ts'
import { createWaiters } from '../../server/wakes/waiters.ts'

const wake = (id: string, toAgentId = 'bob'): Wake => ({
  id,
  toNamespaceId: 'ns',
  toAgentId,
  from: 'alice',
  to: toAgentId,
  namespace: 'acme',
  kind: 'message',
  urgency: 'normal',
  thread: null,
})

function build() {
  const waiters = createWaiters({ waitersPerAgentMax: 2 })
  const bus = createBus(waiters)
  const delivered: string[] = []
  bus.addSink({ deliver: (each) => delivered.push(each.id), agentIds: () => ['carol'] })
  const start = (filter: { from?: string; thread?: string; tokenId?: string } = {}, timeoutMs = 60_000) =>
    waiters.start({ agentId: 'bob', tokenId: 'token', timeoutMs, signal: new AbortController().signal, ...filter })
  return { waiters, bus, delivered, start }
}

test('one wake ends one wait, the longest waiting one that it fits; the next goes to the listeners', async () => {
  const { bus, delivered, start } = build()
  const picky = start({ from: 'carol' })
  const any = start()
  bus.publish([wake('1'), wake('2')])
  assert.deepEqual(await any.ended, { how: 'woken', wake: wake('1') })
  assert.deepEqual(delivered, ['2'])
  assert.deepEqual(await picky.cancel(), { how: 'aborted' })
})

test('what a peer or a read-back says again is not delivered again', () => {
  const { bus, delivered } = build()
  bus.publish([wake('1')])
  bus.receive([wake('1'), wake('2')])
  bus.receive([wake('2')])
  bus.receive([wake('1', 'carol')])
  assert.deepEqual(delivered, ['1', '2', '1'])
})

test('what a read-back found before its own instance published it is delivered once, and told to the others', () => {
  const { bus, delivered } = build()
  const told: string[] = []
  bus.onPublish((wakes) => told.push(...wakes.map(({ id }) => id)))
  bus.receive([wake('1')])
  bus.publish([wake('1'), wake('2')])
  assert.deepEqual(
    [delivered, told],
    [
      ['1', '2'],
      ['1', '2'],
    ],
  )
})

test('the memory of delivered wakes is bounded and keeps the recent ones', () => {
  const { bus, delivered } = build()
  for (let i = 0; i < 50_000; i++) bus.receive([wake(`${i}`)])
  const before = delivered.length
  for (let i = 45_000; i < 50_000; i++) bus.receive([wake(`${i}`)])
  assert.equal(delivered.length, before)
  bus.receive([wake('0')])
  assert.equal(delivered.length, before + 1)
})

test('only published wakes are told to other instances', () => {
  const { bus } = build()
  const told: string[] = []
  bus.onPublish((wakes) => told.push(...wakes.map((each) => each.id)))
  bus.publish([wake('1')])
  bus.receive([wake('2')])
  bus.publish([])
  assert.deepEqual(told, ['1'])
})

test('waits over the cap are refused, and an ended wait makes room', async () => {
  const { start, waiters, bus } = build()
  const first = start()
  start()
  assert.throws(() => start(), { code: 'rate_limited' })
  await first.cancel()
  start({}, 10)
  assert.deepEqual([...bus.listeningAgentIds()].sort(), ['bob', 'carol'])
  waiters.close()
  assert.deepEqual(await start().ended, { how: 'closing' })
  assert.deepEqual([...waiters.agentIds()], [])
})

test('the end of a token ends its waits and no others; of one that goes on, those that began before', async () => {
  const { start, waiters } = build()
  const [mine, other] = [start(), start({ tokenId: 'other' })]
  assert.deepEqual([...waiters.tokenIds()], ['token', 'other'])
  waiters.closeTokens(['token', 'unknown'])
  assert.deepEqual(await mine.ended, { how: 'revoked' })
  assert.deepEqual([...waiters.tokenIds()], ['other'])
  waiters.closeTokens(['other'], performance.now() - 60_000)
  assert.deepEqual([...waiters.tokenIds()], ['other'])
  waiters.closeTokens(['other'], performance.now() + 1)
  assert.deepEqual(await other.ended, { how: 'revoked' })
})

test('a notification never exceeds what NOTIFY takes, and no wake is left out', () => {
  const origin = { trace: 'a'.repeat(32), at: Date.now() }
  let rest = Array.from({ length: 100 }, (_, i) => ({ ...wake(`${i}`), thread: 'é'.repeat(64), origin }))
  const seen: string[] = []
  while (rest.length > 0) {
    const { payload, count } = pack('instance', rest, 7_900)
    assert.ok(Buffer.byteLength(payload) < 8_000)
    seen.push(...(JSON.parse(payload).wakes as Wake[]).map((each) => each.id))
    rest = rest.slice(count)
  }
  assert.deepEqual(
    seen,
    Array.from({ length: 100 }, (_, i) => `${i}`),
  )
})

test('who watches a namespace is told of each of its wakes once, whoever takes it, until it is ended', async () => {
  const { bus, start } = build()
  const told: string[] = []
  const end = bus.watch('ns', ({ id }) => told.push(id))
  const endOther = bus.watch('other', ({ id }) => told.push(`other ${id}`))
  const wait = start()
  bus.publish([wake('taken')])
  assert.equal((await wait.ended).how, 'woken')
  bus.receive([wake('taken'), wake('heard')])
  bus.passOn(wake('taken'))
  assert.deepEqual(told, ['taken', 'heard'])
  end()
  end()
  bus.publish([wake('late')])
  assert.deepEqual(told, ['taken', 'heard'])
  endOther()
})

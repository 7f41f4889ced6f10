import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { createHub, type Hub, type HubConnection } from '../../server/realtime/hub.ts'
import { wakeTopic } from '../../server/realtime/topic.ts'
import type { Wake } from '../../server/wakes/bus.ts'

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

function connect(hub: Hub, ...tokenIds: string[]) {
  const ends: string[] = []
  const connection: HubConnection = { revoke: (message) => ends.push(message) }
  hub.addConnection(connection)
  for (const tokenId of tokenIds) assert.ok(hub.tie(connection, tokenId, 20))
  return { connection, ends }
}

describe('hub', () => {
  test('a wake goes out at once; thousands go out in order and let others have their turn', async () => {
    const hub = createHub()
    const delivered: string[] = []
    hub.addChannel({
      topic: wakeTopic('ns', 'bob'),
      agentId: 'bob',
      deliver: (_encode, { id }) => {
        const until = performance.now() + 0.05
        while (performance.now() < until);
        delivered.push(id)
      },
    })
    hub.deliver(wake('first'))
    assert.deepEqual(delivered, ['first'])
    await turn()
    await turn()
    delivered.length = 0
    const ids = Array.from({ length: 1_000 }, (_, index) => `${index}`)
    for (const id of ids) hub.deliver(wake(id))
    assert.ok(delivered.length < ids.length, `${delivered.length} in one go`)
    let turns = 0
    while (delivered.length < ids.length) {
      await turn()
      turns++
    }
    assert.ok(turns >= 3, `${turns} turns`)
    assert.deepEqual(delivered, ids)
  })

  test('a token that has ended closes its sockets and refuses its tickets from then on', () => {
    const hub = createHub()
    const [mine, both, other] = [connect(hub, 'a'), connect(hub, 'a', 'b'), connect(hub, 'b')]
    hub.closeTokens(['a', 'unknown'])
    assert.deepEqual(
      [mine, both, other].map(({ ends }) => ends),
      [['Token has been revoked'], ['Token has been revoked'], []],
    )
    assert.deepEqual(
      ['a', 'unknown', 'b'].map((id) => hub.isRevoked(id)),
      [true, true, false],
    )
  })

  test('a token that goes on under another name closes the sockets from before, and its tickets stay good', () => {
    const hub = createHub()
    const old = connect(hub, 'a')
    const before = performance.now() + 0.001
    while (performance.now() <= before);
    const young = connect(hub, 'a')
    hub.closeTokens(['a'], before)
    assert.deepEqual([old.ends, young.ends], [['Agent has been renamed'], []])
    assert.equal(hub.isRevoked('a'), false)
  })

  test('a socket is counted once for each of its tokens and no longer than it lives', () => {
    const hub = createHub()
    const { connection } = connect(hub, 'a', 'a', 'b')
    assert.deepEqual([...hub.tokenIds()], ['a', 'b'])
    assert.deepEqual([hub.hasRoom('a', 1), hub.hasRoom('a', 2)], [false, true])
    hub.removeConnection(connection)
    assert.deepEqual([...hub.tokenIds()], [])
    assert.equal(hub.tie(connection, 'a', 20), false)
  })
})

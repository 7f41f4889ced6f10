import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { createHub, type HubChannel, type HubConnection } from '../../server/realtime/hub.ts'
import { wakeTopic } from '../../server/realtime/topic.ts'
import type { Wake } from '../../server/wakes/bus.ts'

const NAMES = { from: 'alice', to: 'bob', namespace: 'acme', kind: 'message', urgency: 'normal', thread: null }

function open() {
  const errors: unknown[] = []
  const delivered: string[] = []
  const hub = createHub((error) => errors.push(error))
  const join = (agentId: string, deliver: HubChannel['deliver']) =>
    hub.addChannel({ topic: wakeTopic('ns', agentId), agentId, deliver })
  const send = (id: string, agentId: string) => {
    const wake: Wake = { id, toNamespaceId: 'ns', toAgentId: agentId, ...NAMES }
    hub.deliver(wake)
  }
  return { hub, errors, delivered, join, send }
}

describe('hub with a channel that fails', () => {
  test('the others get every wake, of its own topic and of others, and one error is told', async () => {
    const { errors, delivered, join, send } = open()
    const failure = new Error('this channel is broken')
    const slow = () => {
      const end = performance.now() + 0.1
      while (performance.now() < end);
    }
    join('bob', () => {
      throw failure
    })
    join('bob', (_encode, { id }) => delivered.push(id))
    join('carol', (_encode, { id }) => {
      slow()
      delivered.push(id)
    })
    const ids = Array.from({ length: 600 }, (_, index) => `${index}`)
    for (const id of ids) send(id, Number(id) % 3 === 0 ? 'bob' : 'carol')
    assert.ok(delivered.length < ids.length, 'the rest has to wait for its turn')
    for (let turns = 0; turns < 1_000 && delivered.length < ids.length; turns++) await turn()
    assert.deepEqual(delivered, ids)
    send('later', 'bob')
    assert.equal(delivered.at(-1), 'later')
    assert.deepEqual(errors, [failure])
  })

  test('a socket that cannot be closed does not keep those of other tokens open', () => {
    const { hub, errors } = open()
    const failure = new Error('this socket is broken')
    const ends: string[] = []
    const revokes: HubConnection['revoke'][] = [
      () => {
        throw failure
      },
      (message) => void ends.push(message),
    ]
    for (const [index, revoke] of revokes.entries()) {
      const connection = { revoke }
      hub.addConnection(connection)
      hub.tie(connection, `token-${index}`, 1)
    }
    hub.closeTokens(['token-0', 'token-1'])
    assert.deepEqual([ends, errors], [['Token has been revoked'], [failure]])
  })
})

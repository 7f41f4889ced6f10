import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { ALICE, endpointTest, inSeconds, join, topicOf } from './endpoint-helper.ts'

const SOON_MS = 1_500

endpointTest('a new token that ends earlier than the one before ends the channel at its own time', async (endpoint) => {
  const client = await endpoint.open()
  await join(client, ALICE, await endpoint.ticket(ALICE, { exp: inSeconds(300) }))
  const exp = inSeconds(2)
  const payload = { access_token: await endpoint.ticket(ALICE, { exp }) }
  client.send({ topic: topicOf(ALICE), event: 'access_token', payload, ref: '2', join_ref: '1' })
  assert.equal(JSON.parse(await client.next()).payload.message, 'Token has expired 0 seconds ago')
  assert.ok(Date.now() / 1000 >= exp)
  client.close()
})

endpointTest(
  'a socket that leaves its last channel is cut off as late as one that never joined, not at the end of its silence',
  async (endpoint) => {
    const client = await endpoint.open()
    await join(client, ALICE, await endpoint.ticket(ALICE))
    await sleep(2 * SOON_MS)
    const leftAt = performance.now()
    client.send({ topic: topicOf(ALICE), event: 'phx_leave', payload: {}, ref: '2', join_ref: '1' })
    assert.equal((await client.closed()).code, 1006)
    const ms = performance.now() - leftAt
    assert.ok(ms >= SOON_MS && ms < 4 * SOON_MS, `${ms} ms`)
  },
  { times: { noChannelMs: SOON_MS } },
)

import assert from 'node:assert/strict'
import {
  ALICE,
  BOB,
  type Endpoint,
  endpointTest,
  inSeconds,
  join,
  joinFrame,
  topicOf,
  wakeFor,
} from './endpoint-helper.ts'

const HEARTBEAT = { topic: 'phoenix', event: 'heartbeat', payload: {}, ref: '2' }
const HEARTBEAT_REPLY = '{"ref":"2","event":"phx_reply","topic":"phoenix","payload":{"status":"ok","response":{}}}'

const okReply = (topic: string, ref = '1') =>
  `{"ref":"${ref}","event":"phx_reply","topic":"${topic}","payload":{"status":"ok","response":{"postgres_changes":[]}}}`
const errorReply = (topic: string, reason: string, ref = '1') =>
  `{"ref":"${ref}","event":"phx_reply","topic":"${topic}","payload":{"status":"error","response":{"reason":"${reason}"}}}`
const systemError = (topic: string, message: string) =>
  `{"ref":null,"event":"system","topic":"${topic}","payload":{"message":"${message}","status":"error",` +
  `"extension":"system","channel":"${topic.slice('realtime:'.length)}"}}`
const closeOf = (topic: string, ref = '"1"') => `{"ref":${ref},"event":"phx_close","topic":"${topic}","payload":{}}`

const topic = topicOf(ALICE)

async function joined(endpoint: Endpoint, claims: object = {}, overrides: object = {}) {
  const client = await endpoint.open()
  assert.equal(await join(client, ALICE, await endpoint.ticket(ALICE, claims), overrides), okReply(topic))
  return client
}

async function refusedJoin(endpoint: Endpoint, accessToken: string | undefined, overrides: object = {}) {
  const client = await endpoint.open()
  client.send(joinFrame(ALICE, accessToken, overrides))
  const reply = JSON.parse(await client.next())
  client.close()
  assert.equal(reply.payload.status, 'error')
  return reply.payload.response.reason as string
}

endpointTest(
  'the agent of a ticket joins its own topic and hears its wakes in the recorded shape',
  async (endpoint) => {
    const client = await joined(endpoint)
    endpoint.hub.deliver({ ...wakeFor(ALICE), thread: 'api' })
    assert.equal(
      await client.next(),
      `{"ref":null,"event":"broadcast","topic":"${topic}","payload":{"event":"wake","meta":{"id":"${wakeFor(ALICE).id}"},` +
        `"payload":{"id": "${wakeFor(ALICE).id}", "to": "bob", "from": "alice", "kind": "message", "thread": "api", ` +
        `"urgency": "normal"},"type":"broadcast"}}`,
    )
    endpoint.hub.deliver(wakeFor(ALICE))
    assert.ok(!('thread' in JSON.parse(await client.next()).payload.payload))
    client.send(HEARTBEAT)
    assert.equal(await client.next(), HEARTBEAT_REPLY)
    client.close()
  },
)

endpointTest('a join may call its token user_token, and one of nobody is refused by either name', async (endpoint) => {
  const client = await endpoint.open()
  const payload = { config: { private: true }, user_token: await endpoint.ticket(ALICE) }
  client.send(joinFrame(ALICE, undefined, { payload }))
  assert.equal(await client.next(), okReply(topic))
  client.close()
  const refused = { payload: { ...payload, user_token: await endpoint.ticket(BOB) } }
  assert.match(await refusedJoin(endpoint, undefined, refused), /^Unauthorized: /)
})

endpointTest('two agents of one namespace never hear each other', async (endpoint) => {
  const alice = await endpoint.open()
  const bob = await endpoint.open()
  await join(alice, ALICE, await endpoint.ticket(ALICE))
  await join(bob, BOB, await endpoint.ticket(BOB))
  for (let index = 0; index < 50; index++) {
    endpoint.hub.deliver(wakeFor(ALICE, `for-alice-${index}`))
    endpoint.hub.deliver(wakeFor(BOB, `for-bob-${index}`))
  }
  for (let index = 0; index < 50; index++) {
    assert.equal(JSON.parse(await alice.next()).payload.payload.id, `for-alice-${index}`)
    assert.equal(JSON.parse(await bob.next()).payload.payload.id, `for-bob-${index}`)
  }
  assert.deepEqual([...endpoint.hub.agentIds()].sort(), [ALICE.agent, BOB.agent].sort())
  assert.deepEqual([...endpoint.hub.tokenIds()].sort(), [ALICE.token, BOB.token].sort())
  alice.close()
  bob.close()
})

endpointTest('the ticket of one agent does not open the topic of another', async (endpoint) => {
  const name = topicOf(BOB).slice('realtime:'.length)
  assert.equal(
    await refusedJoin(endpoint, await endpoint.ticket(ALICE), { topic: topicOf(BOB) }),
    `Unauthorized: You do not have permissions to read from this Channel topic: ${name}`,
  )
})

endpointTest('a join with a bad token is refused with the recorded reason', async (endpoint) => {
  const [expired, noRole, noExp, good] = await Promise.all([
    endpoint.ticket(ALICE, { exp: inSeconds(-30) }),
    endpoint.sign({ exp: inSeconds(60), ...ALICE }),
    endpoint.sign({ role: 'patchcord_ticket', ...ALICE }),
    endpoint.ticket(ALICE),
  ])
  const required = 'InvalidJWTToken: Fields `role` and `exp` are required in JWT'
  assert.match(await refusedJoin(endpoint, expired), /^InvalidJWTToken: Token has expired 3[01] seconds ago$/)
  assert.equal(await refusedJoin(endpoint, noRole), required)
  assert.equal(await refusedJoin(endpoint, noExp), required)
  assert.equal(await refusedJoin(endpoint, 'abc.def'), 'MalformedJWT: The token provided is not a valid JWT')
  const forged = `${good.slice(0, good.lastIndexOf('.'))}.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA`
  assert.equal(await refusedJoin(endpoint, forged), 'JwtSignatureError: Failed to validate JWT signature')
  const none = `eyJhbGciOiJub25lIn0.${good.split('.')[1]}.`
  assert.equal(
    await refusedJoin(endpoint, none),
    'JwtSignerError: Failed to generate JWT signer, check your JWT secret or JWKS configuration',
  )
})

endpointTest(
  'without a token, or with a key in its place, the apikey decides, and it reads nothing',
  async (endpoint) => {
    const unauthorized = /^Unauthorized: You do not have permissions/
    assert.match(await refusedJoin(endpoint, undefined), unauthorized)
    assert.match(await refusedJoin(endpoint, 'sb_publishable_x'), unauthorized)
  },
)

endpointTest('wrong types and a topic without a name are refused with the recorded reasons', async (endpoint) => {
  const token = await endpoint.ticket(ALICE)
  for (const config of [
    { postgres_changes: 'x', broadcast: 5, private: 'maybe' },
    { private: true, postgres_changes: ['x'] },
    { private: true, broadcast: 5 },
  ]) {
    const payload = { config, access_token: token }
    assert.match(await refusedJoin(endpoint, token, { payload }), /^UnknownErrorOnChannel: /)
  }
  assert.match(await refusedJoin(endpoint, token, { payload: 'abc' }), /^UnknownErrorOnChannel: /)
  assert.equal(
    await refusedJoin(endpoint, token, { topic: 'realtime:' }),
    'TopicNameRequired: You must provide a topic name',
  )
  assert.equal(await refusedJoin(endpoint, token, { topic: 'other:m' }), 'unmatched topic')
})

endpointTest('a public channel of an agent is another world: no wake comes there', async (endpoint) => {
  const client = await endpoint.open()
  const payload = { config: { private: false }, access_token: await endpoint.ticket(ALICE) }
  assert.equal(await join(client, ALICE, '', { payload }), okReply(topic))
  assert.deepEqual([...endpoint.hub.agentIds()], [])
  endpoint.hub.deliver(wakeFor(ALICE))
  await new Promise((resolve) => setTimeout(resolve, 50))
  client.send(HEARTBEAT)
  assert.equal(await client.next(), HEARTBEAT_REPLY)
  client.close()
})

for (const isPrivate of [true, false]) {
  endpointTest(
    `what a client broadcasts to a ${isPrivate ? 'private' : 'public'} channel is refused where it asks, and presence always`,
    async (endpoint) => {
      const client = await endpoint.open()
      const other = await endpoint.open()
      const config = { private: isPrivate, broadcast: { ack: true, self: true }, presence: { key: 'k', enabled: true } }
      const payload = { config, access_token: await endpoint.ticket(ALICE) }
      await join(client, ALICE, '', { payload })
      await join(other, ALICE, '', { payload: { ...payload, config: { private: isPrivate } } })
      const push = (event: string, ref: string) => ({ topic, event, payload: { type: event, event: 'track' }, ref })
      client.send(push('broadcast', '2'))
      assert.equal(
        await client.next(),
        `{"ref":"2","event":"phx_reply","topic":"${topic}","payload":{"status":"error","response":"payload_size_exceeded"}}`,
      )
      client.send(push('presence', '3'))
      assert.equal(
        await client.next(),
        `{"ref":"3","event":"phx_reply","topic":"${topic}","payload":{"status":"error","response":{}}}`,
      )
      other.send(push('broadcast', '4'))
      other.send(HEARTBEAT)
      assert.equal(await other.next(), HEARTBEAT_REPLY)
      assert.deepEqual(client.frames, [])
      client.close()
      other.close()
    },
  )
}

endpointTest(
  'a refused join is answered late where a delay is configured',
  async (endpoint) => {
    const client = await endpoint.open()
    const start = performance.now()
    client.send(joinFrame(ALICE, 'abc.def'))
    client.send(HEARTBEAT)
    assert.equal(await client.next(), HEARTBEAT_REPLY)
    assert.match(await client.next(), /MalformedJWT/)
    assert.ok(performance.now() - start >= 140)
    client.close()
  },
  { times: { joinErrorDelayMs: 150 } },
)

endpointTest('phx_leave is answered, closes the channel and ends the wakes', async (endpoint) => {
  const client = await joined(endpoint)
  client.send({ topic, event: 'phx_leave', payload: {}, ref: '3', join_ref: '1' })
  assert.equal(
    await client.next(),
    `{"ref":"3","event":"phx_reply","topic":"${topic}","payload":{"status":"ok","response":{}}}`,
  )
  assert.equal(await client.next(), closeOf(topic))
  endpoint.hub.deliver(wakeFor(ALICE))
  client.send(HEARTBEAT)
  assert.equal(await client.next(), HEARTBEAT_REPLY)
  client.close()
})

endpointTest('a join without join_ref is closed with a null ref', async (endpoint) => {
  const client = await joined(endpoint, {}, { join_ref: undefined })
  client.send({ topic, event: 'phx_leave', payload: {}, ref: '3' })
  await client.next()
  assert.equal(await client.next(), closeOf(topic, 'null'))
  client.close()
})

endpointTest(
  'a second join of a topic closes the first channel after its own reply, and each wake comes once',
  async (endpoint) => {
    const client = await joined(endpoint)
    const token = await endpoint.ticket(ALICE)
    client.send(joinFrame(ALICE, token, { ref: '2', join_ref: '2' }))
    assert.equal(await client.next(), okReply(topic, '2'))
    assert.equal(await client.next(), closeOf(topic))
    endpoint.hub.deliver(wakeFor(ALICE))
    assert.equal(JSON.parse(await client.next()).event, 'broadcast')
    client.send(HEARTBEAT)
    assert.equal(await client.next(), HEARTBEAT_REPLY)
    client.close()
  },
)

endpointTest(
  'a push to a topic that is not joined is unmatched, a leave of it is ok, an unknown event is silent',
  async (endpoint) => {
    const client = await joined(endpoint)
    client.send({ topic: 'realtime:zzz', event: 'broadcast', payload: {}, ref: '4' })
    assert.equal(await client.next(), errorReply('realtime:zzz', 'unmatched topic', '4'))
    client.send({ topic: 'phoenix', event: 'access_token', payload: { access_token: 'x' }, ref: '5' })
    assert.equal(await client.next(), errorReply('phoenix', 'unmatched topic', '5'))
    client.send({ topic: 'realtime:zzz', event: 'phx_leave', payload: {}, ref: '6' })
    assert.match(await client.next(), /"ref":"6".*"status":"ok"/)
    client.send({ topic, event: 'whatever', payload: { a: 1 }, ref: '7', join_ref: '1' })
    client.send({ topic, event: 'broadcast', payload: { type: 'broadcast', event: 'x', payload: {} }, ref: '8' })
    client.send(HEARTBEAT)
    assert.equal(await client.next(), HEARTBEAT_REPLY)
    client.close()
  },
)

endpointTest('frames that are no frames are dropped and the socket lives', async (endpoint) => {
  const client = await endpoint.open()
  for (const frame of [
    '{not json',
    '[]',
    '{"a":1}',
    '"str"',
    'null',
    '',
    '{"topic":5,"event":"x","payload":{},"ref":"1"}',
  ]) {
    client.send(frame)
  }
  client.socket.send(Buffer.from([4, 1, 2, 3]))
  client.send({ ...HEARTBEAT, ref: { a: 1 } })
  client.send(HEARTBEAT)
  assert.equal(await client.next(), HEARTBEAT_REPLY)
  client.close()
})

endpointTest('at exp the channel says so and closes, the socket stays and can join again', async (endpoint) => {
  const exp = inSeconds(2)
  const client = await joined(endpoint, { exp })
  assert.equal(await client.next(), systemError(topic, 'Token has expired 0 seconds ago'))
  assert.ok(Date.now() / 1000 >= exp)
  assert.equal(await client.next(), closeOf(topic))
  client.send({ topic, event: 'access_token', payload: { access_token: await endpoint.ticket(ALICE) }, ref: '3' })
  assert.equal(await client.next(), errorReply(topic, 'unmatched topic', '3'))
  client.send(joinFrame(ALICE, await endpoint.ticket(ALICE), { ref: '4', join_ref: '4' }))
  assert.equal(await client.next(), okReply(topic, '4'))
  endpoint.hub.deliver(wakeFor(ALICE))
  assert.equal(JSON.parse(await client.next()).event, 'broadcast')
  client.close()
})

endpointTest(
  'a wake that comes after exp is not delivered, however late the sweep',
  async (endpoint) => {
    const client = await endpoint.open()
    const exp = inSeconds(2)
    await join(client, ALICE, await endpoint.ticket(ALICE, { exp }))
    while (Date.now() / 1000 < exp) await new Promise((resolve) => setTimeout(resolve, 20))
    endpoint.hub.deliver(wakeFor(ALICE))
    assert.equal(await client.next(), systemError(topic, 'Token has expired 0 seconds ago'))
    assert.equal(await client.next(), closeOf(topic))
    client.close()
  },
  { times: { sweepMs: 60_000 } },
)

endpointTest('a new token extends the channel in silence; null and keys are ignored', async (endpoint) => {
  const exp = inSeconds(2)
  const client = await joined(endpoint, { exp })
  const push = (accessToken: unknown) =>
    client.send({ topic, event: 'access_token', payload: { access_token: accessToken }, ref: '2', join_ref: '1' })
  push(await endpoint.ticket(ALICE))
  push(null)
  push('sb_publishable_x')
  while (Date.now() / 1000 < exp + 0.2) await new Promise((resolve) => setTimeout(resolve, 20))
  endpoint.hub.deliver(wakeFor(ALICE))
  assert.equal(JSON.parse(await client.next()).event, 'broadcast')
  client.close()
})

endpointTest('a bad new token ends the channel with the recorded message, and not the socket', async (endpoint) => {
  const name = topic.slice('realtime:'.length)
  const good = await endpoint.ticket(ALICE)
  const bad: [string, string | RegExp][] = [
    [await endpoint.ticket(ALICE, { exp: inSeconds(-10) }), /^Token has expired 1[01] seconds ago$/],
    [await endpoint.sign({ role: 'patchcord_ticket', ...ALICE }), 'Fields `role` and `exp` are required in JWT'],
    [`${good.slice(0, good.lastIndexOf('.'))}.AAAA`, ':signature_error'],
    ['garbage', 'The token provided is not a valid JWT'],
    [await endpoint.ticket(BOB), `You do not have permissions to read from this Channel topic: ${name}`],
  ]
  for (const [accessToken, expected] of bad) {
    const client = await joined(endpoint)
    client.send({ topic, event: 'access_token', payload: { access_token: accessToken }, ref: '2', join_ref: '1' })
    const frame = await client.next()
    const { message } = JSON.parse(frame).payload
    if (typeof expected === 'string') assert.equal(message, expected)
    else assert.match(message, expected)
    assert.equal(frame, systemError(topic, message))
    assert.equal(await client.next(), closeOf(topic))
    client.send(HEARTBEAT)
    assert.equal(await client.next(), HEARTBEAT_REPLY)
    client.close()
  }
})

endpointTest('frames are handled in their order, a leave right behind a join included', async (endpoint) => {
  const client = await endpoint.open()
  client.send(joinFrame(ALICE, await endpoint.ticket(ALICE)))
  client.send({ topic, event: 'phx_leave', payload: {}, ref: '3', join_ref: '1' })
  client.send(HEARTBEAT)
  assert.equal(await client.next(), okReply(topic))
  assert.match(await client.next(), /"ref":"3".*"status":"ok"/)
  assert.equal(await client.next(), closeOf(topic))
  assert.equal(await client.next(), HEARTBEAT_REPLY)
  client.close()
})

endpointTest('joins without end are refused and close the socket', async (endpoint) => {
  const client = await endpoint.open()
  for (let index = 0; index < 30; index++) client.send(joinFrame(ALICE, 'abc.def', { ref: `${index}` }))
  let frame = ''
  while (!frame.includes('Too many joins')) frame = await client.next()
  assert.match(frame, /"reason":"ClientJoinRateLimitReached: Too many joins per second"/)
  assert.equal((await client.closed()).code, 1000)
})

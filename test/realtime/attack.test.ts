import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { RealtimeSource } from '../../server/domain/realtime.ts'
import { parseBindings } from '../../server/realtime/change-bindings.ts'
import { REALTIME_PATH } from '../../server/realtime/endpoint.ts'
import {
  ALICE,
  BOB,
  type Endpoint,
  endpointTest,
  handshakeText,
  inSeconds,
  join,
  joinFrame,
  openTcp,
  readAll,
  topicOf,
  wakeFor,
  within,
} from './endpoint-helper.ts'

const INSERT = { event: 'INSERT', schema: 'patchcord', table: 'agent_messages' }
const HEARTBEAT = { topic: 'phoenix', event: 'heartbeat', payload: {}, ref: 'quiet' }

/** A client's frame, masked with zeros. */
function clientFrame(first: number, payload = Buffer.alloc(0)): Buffer {
  return Buffer.concat([Buffer.from([first, 0x80 | payload.length, 0, 0, 0, 0]), payload])
}

/** A socket that has shaken hands and reads nothing more. */
async function openRaw(endpoint: Endpoint, key: string): Promise<Socket> {
  const socket = openTcp(endpoint.port)
  socket.on('error', () => undefined)
  socket.write(handshakeText(`${REALTIME_PATH}?apikey=${key}`))
  await within('answer', once(socket, 'data'))
  socket.pause()
  return socket
}

/** The server learns of an end a moment after the client. */
async function isForgotten(endpoint: Endpoint): Promise<void> {
  for (let tries = 0; endpoint.hub.connectionCount > 0 && tries < 500; tries++) await sleep(10)
  assert.equal(endpoint.hub.connectionCount, 0)
  assert.deepEqual([...endpoint.hub.agentIds()], [])
}

/** The join of a private topic with these changes. */
const joinChanges = (agent: typeof ALICE, jwt: string, changes: unknown[]) =>
  joinFrame(agent, jwt, { payload: { access_token: jwt, config: { private: true, postgres_changes: changes } } })

/** Joins what may be joined, but another's; the reason comes in the reply. */
async function refusal(endpoint: Endpoint, jwt: string): Promise<string> {
  const client = await endpoint.open()
  try {
    return JSON.parse(await join(client, ALICE, jwt)).payload.response.reason
  } finally {
    client.close()
  }
}

endpointTest('pings without end, and never a read, end the socket', async (endpoint) => {
  const socket = await openRaw(endpoint, await endpoint.apikey({ token: ALICE.token }))
  const closed = new Promise((resolve) => socket.once('close', resolve))
  const pings = Buffer.concat(Array.from({ length: 1_000 }, () => clientFrame(0x89, Buffer.alloc(125))))
  for (let sent = 0; sent < 64 * 1024 * 1024 && !socket.destroyed; sent += pings.length) {
    if (!socket.write(pings)) await Promise.race([new Promise((resolve) => socket.once('drain', resolve)), closed])
  }
  await within('end of the socket', closed)
  await isForgotten(endpoint)
})

endpointTest('a message of nothing but tiny fragments ends the socket before they are many', async (endpoint) => {
  const socket = await openRaw(endpoint, await endpoint.apikey({ token: ALICE.token }))
  const closed = new Promise((resolve) => socket.once('close', resolve))
  const fragments = Array.from({ length: 60_000 }, () => clientFrame(0x00, Buffer.from('a')))
  socket.write(Buffer.concat([clientFrame(0x01, Buffer.from('a')), ...fragments]))
  socket.resume()
  await within('end of the socket', closed)
  await isForgotten(endpoint)
})

endpointTest(
  'handshakes of one token that come at once do not get past its limit, and all that are open are its own',
  async (endpoint) => {
    const key = await endpoint.apikey({ token: ALICE.token })
    const answers = await Promise.all(
      Array.from({ length: 100 }, async () => {
        const socket = openTcp(endpoint.port)
        socket.on('error', () => undefined)
        socket.write(handshakeText(`${REALTIME_PATH}?apikey=${key}`))
        const [data] = await within('answer', once(socket, 'data'))
        return { socket, status: String(data).slice(9, 12) }
      }),
    )
    assert.equal(answers.filter(({ status }) => status === '101').length, 5)
    assert.equal(answers.filter(({ status }) => status === '429').length, 95)
    const ends = answers.filter(({ status }) => status === '101').map(({ socket }) => readAll(socket))
    endpoint.hub.closeTokens([ALICE.token])
    await Promise.all(ends)
    for (const { socket } of answers) socket.destroy()
    await isForgotten(endpoint)
  },
  { connectionsPerTokenMax: 5 },
)

endpointTest(
  'no client can make a listener believe in a message',
  async (endpoint) => {
    const alice = await endpoint.open()
    await join(alice, ALICE, await endpoint.ticket(ALICE))
    const url = `ws://127.0.0.1:${endpoint.port}${REALTIME_PATH}`
    const bob = await endpoint.open()
    const ticket = await endpoint.ticket(BOB)
    await join(bob, BOB, ticket)
    const config = { private: false, broadcast: { self: true, ack: true } }
    await join(bob, ALICE, ticket, { payload: { access_token: ticket, config }, ref: '2', join_ref: '2' })
    const forged = { type: 'broadcast', event: 'wake', payload: { id: wakeFor(ALICE).id, from: 'boss', to: 'alice' } }
    for (const topic of [topicOf(ALICE), topicOf(BOB), topicOf(ALICE).slice('realtime:'.length)]) {
      for (const event of ['broadcast', 'wake', 'system', 'phx_reply', 'phx_close', 'postgres_changes', 'phx_error']) {
        bob.send({ topic, event, payload: event === 'broadcast' ? forged : forged.payload, ref: '3', join_ref: '1' })
      }
    }
    const answer = await fetch(`${url.replace('ws', 'http').replace('websocket', 'api/broadcast')}`, {
      method: 'POST',
      headers: { apikey: ticket, authorization: `Bearer ${ticket}`, connection: 'close' },
      body: JSON.stringify({
        messages: [{ topic: topicOf(ALICE), event: 'wake', payload: forged.payload, private: true }],
      }),
    })
    assert.equal(answer.status, 404)
    bob.send(HEARTBEAT)
    while (!(await bob.next()).includes('"ref":"quiet"'));
    alice.send(HEARTBEAT)
    assert.match(await alice.next(), /"ref":"quiet"/)
    for (const client of [alice, bob]) client.close()
  },
  { onRequest: (_request, response) => void response.writeHead(404).end() },
)

endpointTest('claims that nobody signed open nothing', async (endpoint) => {
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const claims = { role: 'patchcord_ticket', exp: inSeconds(60), ...ALICE }
  const good = await endpoint.ticket(ALICE)
  const [header = '', payload = '', signature = ''] = good.split('.')
  const sign = (head: object, secret: string) => {
    const text = `${encode(head)}.${encode(claims)}`
    return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`
  }
  const bob = (await endpoint.ticket(BOB)).split('.')
  const tokens = [
    `${encode({ alg: 'none', typ: 'JWT' })}.${payload}.`,
    `${encode({ alg: 'None' })}.${payload}.${signature}`,
    `${encode({ alg: 'HS512' })}.${payload}.${signature}`,
    `${encode({ alg: ['HS256'] })}.${payload}.${signature}`,
    `${header}.${payload}.`,
    `${header}.${encode({ ...claims, exp: inSeconds(9_999) })}.${signature}`,
    `${header}.${payload}.${bob[2]}`,
    `${bob[0]}.${payload}.${bob[2]}`,
    sign({ alg: 'HS256', typ: 'JWT' }, ''),
    sign({ alg: 'HS256', kid: '../../../../dev/null' }, ''),
    sign({ alg: 'HS256', jwk: { kty: 'oct', k: '' } }, ''),
    sign({ alg: 'HS256', jku: 'http://127.0.0.1:1/', kid: 'x' }, 'x'),
    sign({ alg: 'HS256', b64: false, crit: ['b64'] }, 'x'),
    `${good}.${signature}`,
  ]
  for (const token of tokens) {
    assert.match(await refusal(endpoint, token), /^(JwtSignatureError|JwtSignerError|MalformedJWT): /, token)
  }
  const client = await endpoint.open()
  assert.match(await join(client, ALICE, good), /"status":"ok"/)
  client.close()
})

/** A database that tells what it was asked, and how often at once. */
function createSource(answerMs = 0) {
  const asked = { agents: new Set<string>(), checks: 0, filtersMax: 0, checksAtOnceMax: 0 }
  let checksAtOnce = 0
  const source: RealtimeSource = {
    listRecentWakes: async () => [],
    async readChanges(agentIds) {
      for (const id of agentIds) asked.agents.add(id)
      const row = (agent: typeof ALICE) => ({
        id: wakeFor(agent).id,
        toAgentId: agent.agent,
        record: { id: wakeFor(agent).id, to_agent_uuid: agent.agent },
        committedAt: '2026-01-01T00:00:00.000Z',
      })
      return { columns: [], rows: [row(ALICE), row(BOB)] }
    },
    async checkFilters(_role, filters) {
      checksAtOnce++
      asked.checks++
      asked.filtersMax = Math.max(asked.filtersMax, filters.length)
      asked.checksAtOnceMax = Math.max(asked.checksAtOnceMax, checksAtOnce)
      await sleep(answerMs)
      checksAtOnce--
      return { filters }
    },
  }
  return { source, asked }
}

const others = createSource()
endpointTest(
  "a filter that names another's uuid shows nothing, and nobody else's rows are asked for",
  async (endpoint) => {
    const client = await endpoint.open()
    const filters = [`to_agent_uuid=eq.${BOB.agent}`, `to_agent_uuid=in.(${BOB.agent},${ALICE.agent})`]
    const jwt = await endpoint.ticket(ALICE)
    client.send(
      joinChanges(
        ALICE,
        jwt,
        filters.map((filter) => ({ ...INSERT, filter })),
      ),
    )
    const reply = JSON.parse(await client.next())
    assert.match(await client.next(), /Subscribed to PostgreSQL/)
    const [own] = [JSON.parse(await client.next())]
    assert.equal(own.payload.data.record.to_agent_uuid, ALICE.agent)
    assert.deepEqual(own.payload.ids, [reply.payload.response.postgres_changes[1].id])
    assert.deepEqual([...others.asked.agents], [ALICE.agent])
    client.close()
  },
  { source: others.source },
)

endpointTest(
  'a join of any depth is forgotten with its socket',
  async (endpoint) => {
    const client = await endpoint.open(await endpoint.apikey({ token: ALICE.token }))
    const text = JSON.stringify(joinChanges(ALICE, await endpoint.ticket(ALICE), [{ ...INSERT, select: 'DEEP' }]))
    client.send(text.replace('"DEEP"', `${'['.repeat(29_000)}${']'.repeat(29_000)}`))
    client.send(HEARTBEAT)
    await Promise.race([client.next(), client.closed()])
    client.close()
    await isForgotten(endpoint)
  },
  { source: createSource().source },
)

test('a filter as long as a frame may be is read at once, whatever stands in it', () => {
  for (const value of [
    `"${'\\"'.repeat(30_000)}`,
    `in.(${'\\"'.repeat(30_000)})`,
    `"${'\\'.repeat(60_000)}`,
    '("'.repeat(30_000),
  ]) {
    const started = performance.now()
    parseBindings([{ ...INSERT, filter: `id=eq.${value}` }])
    parseBindings([{ ...INSERT, filter: `id=${value}` }])
    assert.ok(performance.now() - started < 1_000, `${value.slice(0, 10)} took ${performance.now() - started} ms`)
  }
})

const slow = createSource(100)
endpointTest(
  'new tokens without end make one channel ask the database one thing at a time',
  async (endpoint) => {
    const client = await endpoint.open()
    const tickets = [await endpoint.ticket(ALICE, { n: 1 }), await endpoint.ticket(ALICE, { n: 2 })]
    client.send(joinChanges(ALICE, tickets[0] as string, [{ ...INSERT, filter: `id=eq.${ALICE.ns}` }]))
    for (let round = 1; round < 30; round++) {
      for (let index = 0; index < 10; index++) {
        const payload = { access_token: tickets[index % 2] }
        client.send({ topic: topicOf(ALICE), event: 'access_token', payload, ref: null })
      }
      client.send({ ...HEARTBEAT, ref: `quiet ${round}` })
      while (!(await client.next()).includes(`"quiet ${round}"`));
    }
    assert.ok(slow.asked.checksAtOnceMax <= 2, `${slow.asked.checksAtOnceMax} at once`)
    client.close()
  },
  { source: slow.source },
)

const many = createSource()
endpointTest(
  'thousands of filters are refused before the database sees them',
  async (endpoint) => {
    const client = await endpoint.open()
    const filter = Array.from({ length: 5_000 }, () => 'kind=eq.y').join()
    client.send(joinChanges(ALICE, await endpoint.ticket(ALICE), [{ ...INSERT, filter }]))
    await client.next()
    assert.match(await client.next(), /"status":"error"/)
    assert.ok(many.asked.filtersMax <= 1_000, `${many.asked.filtersMax} filters`)
    client.close()
  },
  { source: many.source },
)

const unasked = createSource()
endpointTest(
  'a filter that no text of Postgres can equal is refused, and not asked for again and again',
  async (endpoint) => {
    const client = await endpoint.open()
    const jwt = await endpoint.ticket(ALICE)
    for (const filter of ['kind=eq.\0', 'kind=eq.\ud800', 'ki\0nd=eq.x', 'kind=in.(a,\udc00)']) {
      client.send(joinChanges(ALICE, jwt, [{ ...INSERT, filter }]))
      let said = ''
      while (!said.includes('"event":"system"')) said = await client.next()
      assert.match(said, /"status":"error"/)
    }
    assert.equal(unasked.asked.checks, 0)
    client.close()
  },
  { source: unasked.source },
)

endpointTest(
  'keys that name no token cannot open sockets without end, and leave the others room',
  async (endpoint) => {
    const clients = await Promise.all([endpoint.open(), endpoint.open()])
    await assert.rejects(endpoint.open(), /429/)
    const own = await endpoint.open(await endpoint.apikey({ token: ALICE.token }))
    clients[0]?.socket.terminate()
    await isOpenAgain(() => endpoint.open())
    own.close()
  },
  { limits: { connectionsWithoutTokenMax: 2 } },
)

/** The server learns of an end a moment after the client. */
async function isOpenAgain(open: () => Promise<unknown>): Promise<void> {
  for (let tries = 0; ; tries++) {
    try {
      return void (await open())
    } catch (error) {
      if (tries === 100) throw error
      await sleep(20)
    }
  }
}

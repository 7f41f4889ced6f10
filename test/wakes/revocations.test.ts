import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import type { Ticket } from '../../server/domain/tickets.ts'
import { revokeToken } from '../../server/domain/tokens.ts'
import { type EndedToken, startRevocations } from '../../server/wakes/revocations.ts'
import { call, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { startInstance } from '../helpers/instance.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

/** The contract's second, and what a busy machine adds to it. */
const END_MS_MAX = 1_000 + 500
const PATIENCE_MS = 20_000

let database: TestDatabase
let app: TestApp
before(async () => {
  database = await createTestDatabase()
  app = await startInstance(database, { limits: { unauthenticatedPerMinute: 10_000 } })
})
after(async () => {
  await app.close()
  await database.drop()
})

async function getTicket({ token }: SeededAgent): Promise<Ticket> {
  const { status, json } = await call(app, 'GET', '/api/realtime/ticket', { token })
  assert.equal(status, 200)
  return json
}

const ends: [string, (agent: SeededAgent) => Promise<unknown>, string][] = [
  ['revoked', ({ tokenId }) => revokeToken(database.admin, tokenId), 'Token has been revoked'],
  [
    'expired',
    ({ tokenId }) => database.admin`update patchcord.tokens set expires_at = clock_timestamp() where id = ${tokenId}`,
    'Token has expired',
  ],
  [
    'of a deleted agent',
    ({ agentId }) => database.admin`update patchcord.agents set deleted_at = clock_timestamp() where id = ${agentId}`,
    'Agent has been deleted',
  ],
  [
    'of a renamed agent',
    ({ agentId }) => database.admin`update patchcord.agents set name = 'alicia' where id = ${agentId}`,
    'Agent has been renamed',
  ],
]
for (const [index, [what, end, sentence]] of ends.entries()) {
  test(`a token ${what}: a joined channel is told "${sentence}" before its socket is closed`, async () => {
    const { alice } = await seed(database, `end-${index}`, ['alice'])
    const ticket = await getTicket(alice)
    const socket = await open(ticket)
    socket.join(ticket.topics[0], ticket.jwt)
    await socket.until(({ frames }) => frames.length > 0)
    // Both what nobody has asked about yet and what was found good must end.
    if (index % 2 === 0) await sleep(1_200)
    await end(alice)
    const endedAt = performance.now()
    await socket.until(({ code }) => code !== null)
    assert.ok(performance.now() - endedAt < END_MS_MAX)
    const [reply, system, close] = socket.frames
    assert.deepEqual([reply?.payload.status, reply?.payload.response], ['ok', { postgres_changes: [] }])
    const { message, status, extension } = system?.payload ?? {}
    assert.deepEqual([system?.event, message, status, extension], ['system', sentence, 'error', 'system'])
    assert.deepEqual([close?.event, socket.frames.length, socket.code], ['phx_close', 3, 1000])
  })
}

test('an apikey of a token that ended hours ago opens a socket for less than a second, which hears nothing', async () => {
  const { alice, bob } = await seed(database, 'hours', ['alice', 'bob'])
  const { signer } = app.deps
  assert.ok(signer)
  const ticket = await getTicket(alice)
  await database.admin`
    update patchcord.tokens set revoked_at = clock_timestamp() - interval '5 hours' where id = ${alice.tokenId}`
  const openedAt = performance.now()
  const socket = await open(ticket)
  socket.join(ticket.topics[0], undefined)
  const other = { ...ticket.topics[0], name: 'realtime:anything' }
  const changes = { event: 'INSERT', schema: 'patchcord', table: 'agent_messages' }
  socket.join({ ...other, config: { ...other.config, private: false, postgres_changes: [changes] } }, undefined)
  const body = { to: 'alice', content: 'x' }
  assert.equal((await call(app, 'POST', '/api/messages', { token: bob.token, body })).status, 201)
  await socket.until(({ code }) => code !== null)
  assert.ok(performance.now() - openedAt < END_MS_MAX)
  assert.equal(socket.code, 1000)
  const events = new Set(socket.frames.map(({ event }) => event))
  assert.ok(!events.has('broadcast') && !events.has('postgres_changes'), JSON.stringify(socket.frames))
  assert.equal((await open(ticket)).code, 401)
})

test('an apikey alone lives on and reads neither its agent’s private topic nor a row', async () => {
  const { alice, bob } = await seed(database, 'alone', ['alice', 'bob'])
  const ticket = await getTicket(alice)
  const socket = await open(ticket)
  const [topic] = ticket.topics
  const changes = { event: 'INSERT', schema: 'patchcord', table: 'agent_messages' }
  const open_ = {
    ...topic,
    name: 'realtime:open',
    config: { ...topic?.config, private: false, postgres_changes: [changes] },
  }
  for (const token of [undefined, ticket.apikey]) socket.join(open_, token)
  socket.join(topic, ticket.apikey)
  socket.join(topic, undefined)
  const refused = () => socket.frames.filter(({ payload }) => payload.status === 'error')
  await socket.until(() => refused().length >= 2 && socket.frames.some(({ event }) => event === 'system'))
  for (const { topic: name, payload } of refused()) {
    assert.equal(name, topic?.name)
    assert.match(
      payload.response?.reason ?? '',
      /^Unauthorized: You do not have permissions to read from this Channel topic/,
    )
  }
  for (const to of ['alice', 'bob']) {
    const body = { to, content: 'x' }
    assert.equal((await call(app, 'POST', '/api/messages', { token: bob.token, body })).status, 201)
  }
  await sleep(1_500)
  const events = new Set(socket.frames.map(({ event }) => event))
  assert.deepEqual([...events].sort(), ['phx_close', 'phx_reply', 'system'])
  assert.equal(socket.code, null)
  socket.close()
})

interface Asked {
  seconds: number
  tokenIds: string[]
}

function start(answers: (EndedToken[] | Error)[]) {
  const asked: Asked[] = []
  const closed: { tokenIds: string[]; isFinal: boolean; reason: string | undefined }[] = []
  const unvouched = new Set(['a', 'b'])
  const service = startRevocations({
    holders: [
      {
        tokenIds: () => ['a', 'b', 'c'],
        unvouched: () => [...unvouched],
        vouchFor: (tokenIds) => {
          for (const id of tokenIds) unvouched.delete(id)
        },
        closeTokens: (tokenIds, before, reason) => closed.push({ tokenIds, isFinal: before === undefined, reason }),
      },
    ],
    async listRecent(seconds, tokenIds) {
      asked.push({ seconds, tokenIds })
      const answer = answers.shift() ?? []
      if (answer instanceof Error) throw answer
      return answer
    },
    log: { warn: () => undefined },
  })
  return { asked, closed, unvouched, service }
}

async function untilAsked(asked: Asked[], count: number): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS
  while (asked.length < count) {
    assert.ok(performance.now() < deadline)
    await sleep(10)
  }
}

test('a token is asked about by id until an answer came, then known by recent revocations, however long a cut was', async () => {
  const { asked, unvouched, service } = start([new Error('away'), new Error('away'), []])
  await untilAsked(asked, 3)
  unvouched.add('d')
  await untilAsked(asked, 5)
  await service.close()
  assert.deepEqual(
    asked.slice(0, 5).map(({ tokenIds }) => tokenIds),
    [['a', 'b'], ['a', 'b'], ['a', 'b'], ['d'], []],
  )
  const [first = 0, , third = 0, fourth = 0] = asked.map(({ seconds }) => seconds)
  assert.ok(third - first > 0.9 && third - first < 10, `${third - first} s more after two failures`)
  assert.ok(fourth < third)
})

test('what ended is closed for good with its reason, what was renamed by its time', async () => {
  const ended = (tokenId: string, reason: EndedToken['reason'], renamedSecondsAgo: number | null = null) => ({
    tokenId,
    reason,
    renamedSecondsAgo,
  })
  const { asked, closed, service } = start([
    [
      ended('a', 'revoked'),
      ended('b', 'expired'),
      ended('c', 'renamed', 3),
      ended('d', 'revoked'),
      ended('e', 'deleted'),
    ],
  ])
  await untilAsked(asked, 1)
  await service.close()
  assert.deepEqual(closed, [
    { tokenIds: ['a', 'd'], isFinal: true, reason: 'revoked' },
    { tokenIds: ['b'], isFinal: true, reason: 'expired' },
    { tokenIds: ['e'], isFinal: true, reason: 'deleted' },
    { tokenIds: ['c'], isFinal: false, reason: 'renamed' },
  ])
})

interface FrameHeard {
  topic: string
  event: string
  payload: { status?: string; message?: string; extension?: string; response?: { reason?: string } }
}

/** A bare socket on a ticket's apikey. `code`: what it was closed or refused with, null while it is open. */
async function open({ realtime_url, apikey }: Ticket) {
  const socket = new WebSocket(`${realtime_url}?apikey=${apikey}&vsn=1.0.0`)
  let ref = 0
  const client = {
    frames: [] as FrameHeard[],
    code: null as number | null,
    join(topic: { name?: string; config?: object } | undefined, token: string | undefined) {
      const payload = { config: topic?.config, ...(token === undefined ? {} : { access_token: token }) }
      ref += 1
      socket.send(JSON.stringify({ topic: topic?.name, event: 'phx_join', payload, ref: `${ref}`, join_ref: `${ref}` }))
    },
    async until(isTrue: (client: { frames: FrameHeard[]; code: number | null }) => boolean) {
      const deadline = performance.now() + PATIENCE_MS
      while (!isTrue(client)) {
        assert.ok(performance.now() < deadline, `not in time: ${JSON.stringify([client.code, client.frames])}`)
        await sleep(5)
      }
    },
    close: () => socket.close(),
  }
  socket.on('message', (data) => client.frames.push(JSON.parse(String(data))))
  await new Promise<void>((resolve, reject) => {
    socket.on('open', resolve)
    socket.on('close', (code) => {
      client.code ??= code
    })
    socket.on('unexpected-response', (request, response) => {
      client.code = response.statusCode ?? 0
      request.destroy()
      resolve()
    })
    socket.on('error', reject)
  })
  return client
}

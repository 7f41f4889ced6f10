import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { errorAnswer, type JoinScript, type Script, ScriptedServer } from '../helpers/scripted-server.ts'
import { eventually, Home, pause } from './listener-process.ts'

const CONNECTED = /^subscribe: connected$/m

async function start(context: TestContext, script: Script = {}, times = {}) {
  const server = await new ScriptedServer(script).listen()
  const home = await Home.create()
  context.after(async () => {
    await home.remove()
    await server.close()
  })
  await home.connect(server.origin)
  return { server, home, listener: home.start({ times }) }
}

/** After the fault: what came in between is announced, a new connection hears, and nothing is said twice. */
async function assertHeals({ server, listener }: Awaited<ReturnType<typeof start>>, fault: () => void): Promise<void> {
  await listener.logged(CONNECTED)
  const first = server.connections.length
  server.deliver('alice')
  await listener.line('PATCHCORD: 1 new from alice')
  fault()
  server.deliver('missed', { isWoken: false })
  await listener.line('PATCHCORD: 1 new from missed')
  await eventually(() => server.connections.length > first && server.connection.joinRef !== null)
  server.deliver('carol')
  await listener.line('PATCHCORD: 1 new from carol')
  assert.equal(listener.lines.length, 3, listener.stdout)
}

test('a close with 1012 is survived', async (context) => {
  const all = await start(context)
  await assertHeals(all, () => all.server.connection.socket.close(1012))
  await all.listener.logged(/^subscribe: ws closed \(code=1012\)$/m)
  await all.listener.logged(/^subscribe: reconnecting in \d+ms$/m)
})

test('a close with 1002 is no end', async (context) => {
  const all = await start(context)
  await assertHeals(all, () => all.server.connection.socket.close(1002))
})

test('a connection that is cut without a word is survived', async (context) => {
  const all = await start(context)
  await assertHeals(all, () => all.server.connection.socket.terminate())
  await all.listener.logged(/^subscribe: ws closed \(code=1006\)$/m)
})

test('a ticket that expires while the socket lives on is survived', async (context) => {
  const all = await start(context)
  await assertHeals(all, () => all.server.connection.expire())
  await all.listener.logged(/^subscribe: ws error: system: Token has expired 0 seconds ago$/m)
})

test('phx_error and phx_close of a topic are survived', async (context) => {
  for (const event of ['phx_error', 'phx_close']) {
    const all = await start(context)
    await assertHeals(all, () => all.server.connection.send(event, {}, all.server.connection.joinRef))
  }
})

test('a refused join is tried again with a fresh ticket, and the inbox is watched meanwhile', async (context) => {
  const reason = 'Unauthorized: You do not have permissions to read from this Channel topic: agent'
  let decision: JoinScript = { error: reason }
  const { server, listener } = await start(context, { join: () => decision })
  await listener.logged(/^subscribe: ws error: join refused: Unauthorized: You do not/m, 2)
  assert.ok(server.count('GET', '/api/realtime/ticket') >= 2)
  server.deliver('alice', { isWoken: false })
  await listener.line('PATCHCORD: 1 new from alice')
  assert.doesNotMatch(listener.stderr, CONNECTED)
  decision = 'ok'
  await listener.logged(CONNECTED)
})

test('a join that nobody answers is tried again', async (context) => {
  const { listener } = await start(context, { join: (count) => (count === 1 ? 'silent' : 'ok') }, { joinMs: 300 })
  await listener.logged(/^subscribe: ws error: join of realtime:agent:.* timed out$/m)
  await listener.logged(CONNECTED)
})

test('heartbeats without an answer end the connection, whatever else arrives', async (context) => {
  const all = await start(context, { isHeartbeatAnswered: false }, { heartbeatMs: 200, heartbeatReplyMs: 200 })
  await all.listener.logged(CONNECTED)
  const noise = setInterval(() => all.server.connection.send('presence_state', {}), 20)
  context.after(() => clearInterval(noise))
  await all.listener.logged(/^subscribe: ws error: heartbeat was not answered$/m)
  await all.listener.logged(CONNECTED, 2)
})

test('a WebSocket upgrade that is never answered, or refused, is tried again', async (context) => {
  const upgrade = (count: number) => (count === 1 ? 'hang' : count === 2 ? { status: 429 } : 'accept')
  const { listener } = await start(context, { upgrade }, { handshakeMs: 300 })
  await listener.logged(/^subscribe: ws error: handshake timed out$/m)
  await listener.logged(/^subscribe: ws error: HTTP 429$/m)
  await listener.logged(CONNECTED)
})

test('a ticket call that hangs, breaks, or is answered by something else is tried again', async (context) => {
  const html = { status: 403, text: '<html>blocked by a proxy</html>' }
  const answers = [
    'hang',
    'reset',
    html,
    { ...html, status: 401 },
    { ...html, status: 404 },
    { ...html, status: 200 },
  ] as const
  const more = [
    errorAnswer(503, 'unavailable'),
    errorAnswer(403, 'token_rejected'),
    { status: 200, json: { agent_id: '../x' } },
  ]
  const all = [...answers, ...more]
  const { server, listener } = await start(context, { ticket: (count) => all[count - 1] }, { httpMs: 300 })
  await listener.logged(CONNECTED)
  assert.equal(server.count('GET', '/api/realtime/ticket'), all.length + 1)
  await listener.logged(/^subscribe: ticket refresh failed: no answer within 300ms$/m)
  assert.equal(listener.stdout, '')
})

test('Retry-After is waited for, by the ticket and by the inbox', async (context) => {
  const busy = { status: 429, json: { error: { code: 'rate_limited' } }, headers: { 'retry-after': '2' } }
  const once = (count: number) => (count === 1 ? busy : null)
  const startedAt = performance.now()
  const { server, listener } = await start(context, { ticket: once, inbox: once })
  await listener.logged(/^subscribe: reconnecting in 2[0-4]\d\dms$/m)
  await listener.logged(CONNECTED)
  await eventually(() => server.count('GET', '/api/inbox') >= 2)
  assert.ok(performance.now() - startedAt >= 2_000)
})

test('Retry-After of a refused WebSocket handshake is waited for, whatever the inbox tells meanwhile', async (context) => {
  for (const status of [429, 503]) {
    const upgrade = (count: number) => (count === 1 ? { status, headers: { 'Retry-After': '2' } } : 'accept')
    const startedAt = performance.now()
    const { server, listener } = await start(context, { upgrade }, { compareMs: 300 })
    await listener.logged(/^subscribe: reconnecting in 2[0-4]\d\dms$/m)
    server.deliver('alice', { isWoken: false })
    await listener.line('PATCHCORD: 1 new from alice')
    await listener.logged(CONNECTED)
    assert.ok(performance.now() - startedAt >= 2_000)
    assert.equal(server.count('GET', '/api/realtime/ticket'), 2)
  }
})

test('a reconnect is one look into the inbox, after its join', async (context) => {
  for (const kind of ['broadcast', 'postgres_changes'] as const) {
    const { server, listener } = await start(context, { kind }, { compareSoonMs: 20_000 })
    await listener.logged(CONNECTED)
    await pause(500)
    const before = server.count('GET', '/api/inbox')
    assert.equal(before, 2)
    const { connection } = server
    connection.send('system', { message: 'Server requested disconnect', status: 'ok', extension: 'system' })
    connection.socket.close(1012)
    let isJoinedFirst = false
    server.onRequest = ({ path }) => {
      if (path.startsWith('/api/inbox')) isJoinedFirst = server.connection.joinRef !== null
    }
    await listener.logged(CONNECTED, 2)
    await pause(1_500)
    assert.equal(server.count('GET', '/api/inbox') - before, 1)
    assert.equal(isJoinedFirst, true)
  }
})

test('while a connection does not come the inbox is looked into all the same', async (context) => {
  const { server, listener } = await start(context, {}, { joinMs: 60_000, compareSoonMs: 300 })
  await listener.logged(CONNECTED)
  server.script.join = () => 'silent'
  // Both looks of the start are over: at once, and after the join.
  await eventually(() => server.count('GET', '/api/inbox') === 2)
  await pause(500)
  server.deliver('alice', { isWoken: false })
  server.connection.socket.close(1012)
  await listener.line('PATCHCORD: 1 new from alice')
  assert.equal(server.connection.joinRef, null)
})

test('an inbox that asks to be left alone for longer than a back-off step is left alone', async (context) => {
  const busy = { status: 429, json: { error: { code: 'rate_limited' } }, headers: { 'retry-after': '2' } }
  const { server, listener } = await start(context, { inbox: (count) => (count === 1 ? busy : null) })
  await listener.logged(/^subscribe: inbox check failed: HTTP 429 rate_limited$/m)
  server.deliver('alice', { isWoken: false })
  await pause(1_000)
  assert.equal(server.count('GET', '/api/inbox'), 1)
  await listener.line('PATCHCORD: 1 waiting in inbox')
})

test('a fresh ticket comes before the old one ends, on the same socket and without a gap', async (context) => {
  const { server, listener } = await start(context, { expiresInSeconds: 1 })
  await listener.logged(/^subscribe: token refreshed$/m, 2)
  assert.equal(server.connections.length, 1)
  const joins = server.connection.frames.filter((frame) => frame.event === 'phx_join')
  assert.ok(joins.length >= 3)
  assert.equal(new Set(joins.map((frame) => frame.payload.access_token)).size, joins.length)
  server.deliver('alice')
  await listener.line('PATCHCORD: 1 new from alice')
})

test('a refresh that fails is told and tried again while the old ticket still holds', async (context) => {
  const ticket = (count: number) => (count === 2 ? errorAnswer(503, 'unavailable') : null)
  const { server, listener } = await start(context, { expiresInSeconds: 2, ticket })
  await listener.logged(/^subscribe: ticket refresh failed: HTTP 503 unavailable$/m)
  await listener.logged(/^subscribe: token refreshed$/m)
  assert.equal(server.connections.length, 1)
})

test('an inbox call that fails is owed until it succeeds', async (context) => {
  const inbox = (count: number) => (count <= 4 ? ({ status: 502, text: 'bad gateway' } as const) : null)
  const { server, listener } = await start(context, { inbox })
  server.deliver('alice', { isWoken: false })
  await listener.line('PATCHCORD: 1 waiting in inbox')
})

test('what Realtime drops in silence is found by the slow comparison', async (context) => {
  const { server, listener } = await start(context, {}, { compareMs: 400 })
  await listener.logged(CONNECTED)
  await pause(300)
  server.deliver('alice', { isWoken: false })
  await listener.line('PATCHCORD: 1 new from alice')
})

test('what Realtime has not told of makes the listener join anew, once for each time', async (context) => {
  const { server, listener } = await start(context, {}, { compareMs: 1_000 })
  await listener.logged(CONNECTED)
  server.deliver('heard')
  await pause(1_500)
  assert.equal(server.connections.length, 1)
  server.deliver('alice', { isWoken: false })
  await listener.logged(/^subscribe: ws error: 1 new without a word from Realtime$/m)
  await listener.logged(CONNECTED, 2)
  server.deliver('carol')
  await listener.line('PATCHCORD: 1 new from carol')
  await pause(1_500)
  assert.equal(server.connections.length, 2)
})

test('a message that comes between the look into the inbox and the join is not lost', async (context) => {
  const { server, listener } = await start(context, {
    join: () => {
      if (server.pending.length === 0) server.deliver('alice', { isWoken: false })
      return 'ok'
    },
  })
  await eventually(() => listener.lines.length === 1)
  assert.match(listener.lines[0] ?? '', /^PATCHCORD: 1 (?:new from alice|waiting in inbox)$/)
})

test('a server that is gone for a while is waited for, and its return announces what is new', async (context) => {
  const { server, listener } = await start(context)
  await listener.logged(CONNECTED)
  const { port, pending } = server
  await server.close()
  await listener.logged(/^subscribe: ticket refresh failed: connect ECONNREFUSED/m)
  const second = await new ScriptedServer().listen(port)
  context.after(() => second.close())
  second.pending = pending
  second.deliver('alice', { isWoken: false })
  await listener.line('PATCHCORD: 1 new from alice')
  await listener.logged(CONNECTED, 2)
})

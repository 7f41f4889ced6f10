import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { describe, type TestContext, test } from 'node:test'
import { type Script, ScriptedServer } from '../helpers/scripted-server.ts'
import { Home, pause } from '../scripts/listener-process.ts'

const CONNECTED = /^subscribe: connected$/m
const DEEP = '['.repeat(60_000) + ']'.repeat(60_000)
/** What JSON can hold in the place of a text that no String() makes one of. */
const NO_TEXTS: Record<string, string> = {
  'an object that hides toString': '{"toString":0,"valueOf":0}',
  'a deep array': DEEP,
}

async function start(context: TestContext, script: Script = {}, times = {}) {
  const server = await new ScriptedServer(script).listen()
  const home = await Home.create()
  context.after(async () => {
    await home.remove()
    await server.close()
  })
  await home.connect(server.origin)
  return { server, listener: home.start({ times }) }
}

describe('a server that means harm and', { concurrency: 4 }, () => {
  for (const [name, json] of Object.entries(NO_TEXTS)) {
    test(`sends ${name} where a text belongs ends no listener`, async (context) => {
      const { server, listener } = await start(context)
      await listener.logged(CONNECTED)
      const frames = [
        { event: 'system', payload: { status: 'error', extension: 'system', message: '?' } },
        { event: 'system', payload: { status: 'error', extension: '?', message: '?' } },
        { event: 'phx_reply', payload: { status: 'error', response: { reason: '?' } } },
        { event: 'broadcast', payload: { event: '?', payload: { id: '?', from: '?', to: 'bob' } } },
        { event: 'broadcast', payload: { event: 'wake', payload: { id: randomUUID(), from: '?', to: '?' } } },
        {
          event: 'postgres_changes',
          payload: { data: { type: 'INSERT', commit_timestamp: '?', record: { id: '?', wake_at: '?' } } },
        },
        { event: '?', payload: '?' },
      ]
      let connections = server.connections.length
      for (const frame of frames) {
        const { connection } = server
        const text = JSON.stringify({ topic: connection.topic, ref: connection.joinRef, ...frame })
        connection.socket.send(text.replaceAll('"?"', json))
        await pause(100)
        assert.equal(listener.child.exitCode, null, `${frame.event}: ${listener.stderr}`)
        assert.doesNotMatch(listener.stderr, /^subscribe: error:/m, frame.event)
        if (server.connections.length > connections) await listener.logged(CONNECTED, server.connections.length)
        connections = server.connections.length
      }
      server.deliver('alice')
      await listener.line('PATCHCORD: 1 new from alice')
    })
  }

  test('gives a ticket for ever is not asked for the next one at once', async (context) => {
    const { server, listener } = await start(context, { expiresInSeconds: 1e300 })
    await listener.logged(CONNECTED)
    await pause(1_000)
    assert.equal(server.count('GET', '/api/realtime/ticket'), 1)
  })

  test('names a prototype as a topic, an event or a field moves nothing', async (context) => {
    const { server, listener } = await start(context)
    await listener.logged(CONNECTED)
    const { connection } = server
    for (const name of ['__proto__', 'constructor', 'hasOwnProperty', 'toString']) {
      connection.send('broadcast', { event: 'wake', payload: { id: randomUUID(), from: 'eve' } }, null, name)
      connection.send(name, { event: 'wake' })
    }
    const polluted = `{"__proto__":{"isOurs":true},"id":"${randomUUID()}","from":{"__proto__":"eve"},"to":"bob"}`
    connection.socket.send(
      `{"topic":"${connection.topic}","event":"broadcast","ref":null,"payload":{"event":"wake","payload":${polluted}}}`,
    )
    await listener.line('PATCHCORD: 1 new from unknown')
    server.deliver('alice')
    await listener.line('PATCHCORD: 1 new from alice')
    assert.equal(server.connections.length, 1)
  })

  test('tells of a hundred thousand messages costs a few lines, and their sum is right', async (context) => {
    const { server, listener } = await start(context, {}, { lineRefillMs: 100 })
    await listener.logged(CONNECTED)
    const count = 100_000
    for (let index = 0; index < count; index++) {
      server.connection.wake({ id: randomUUID(), from: `eve-${index % 50}`, to: 'bob' })
      if (index % 1_000 === 0) await pause(1)
    }
    const sum = () =>
      listener.lines.reduce((all, line) => all + Number(/^PATCHCORD: (\d+) new/.exec(line)?.[1] ?? 0), 0)
    for (let tries = 0; sum() < count && tries < 300; tries++) await pause(100)
    assert.equal(sum(), count)
    assert.ok(listener.lines.every((line) => line.length <= 200))
    assert.equal(listener.child.exitCode, null)
  })
})

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { sendMessage } from '../../server/domain/messages.ts'
import { startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { createTemporaryFolder, startListener, watchFirstLook } from '../helpers/processes.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

/** Far below the listener's slow comparison: what comes in this time was heard. */
const HEARD_MS = 20_000

/** Passes everything on to the app; its ticket says what a ticket for Supabase's postgres_changes says. */
function startChangesGate(app: TestApp): Server {
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const headers = { authorization: request.headers.authorization ?? '', 'content-type': 'application/json' }
    const body = chunks.length > 0 ? { body: Buffer.concat(chunks) } : {}
    const passed = await fetch(`${app.url}${request.url}`, { method: request.method ?? 'GET', headers, ...body })
    let text = await passed.text()
    if (request.url === '/api/realtime/ticket') {
      const ticket = JSON.parse(text)
      const agentId = ticket.topics[0].name.split(':').at(-1)
      const filter = `to_agent_uuid=eq.${agentId}`
      ticket.topics[0].config.postgres_changes = [
        { event: 'INSERT', schema: 'patchcord', table: 'agent_messages', filter },
      ]
      ticket.topics[0].name = 'realtime:table'
      ticket.topics[0].config.private = false
      text = JSON.stringify(ticket)
    }
    response.writeHead(passed.status, { 'content-type': 'application/json' }).end(text)
  }
  return createServer((request, response) => {
    answer(request, response).catch(() => response.destroy())
  })
}

describe('the listener on changes of the table', () => {
  let database: TestDatabase
  let app: TestApp
  let gate: Server
  let agents: Record<'alice' | 'bob', SeededAgent>
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database, { limits: { turnsUnattendedMax: 2, turnsWindowSeconds: 2 } })
    const limits = { turnsUnattendedMax: 2, turnsWindowSeconds: 2 }
    agents = await seed(database, 'acme', ['alice', 'bob'], { bus: app.deps.bus, limits })
    gate = startChangesGate(app).listen(0, '127.0.0.1')
    await once(gate, 'listening')
  })
  after(async () => {
    gate.closeAllConnections()
    gate.close()
    await app.close()
    await database.drop()
  })

  test('it announces what is due, once, and a held message when its time has come', async () => {
    const { alice, bob } = agents
    const folder = await createTemporaryFolder()
    const url = `http://127.0.0.1:${(gate.address() as AddressInfo).port}`
    const hasLooked = watchFirstLook(gate, bob.token)
    const listener = await startListener({ url, token: bob.token, home: folder.path })
    try {
      await hasLooked()
      const lines = () => listener.lines.map(({ text }) => text)
      const until = async (wanted: number) => {
        const deadline = performance.now() + HEARD_MS
        while (lines().length < wanted) {
          assert.ok(performance.now() < deadline, `${wanted} lines did not come: ${JSON.stringify(lines())}`)
          await sleep(20)
        }
      }
      const send = (from: SeededAgent, to: string) => from((scope) => sendMessage(scope, { to, content: 'hi' }))
      await send(alice, 'bob')
      await until(1)
      await send(bob, 'bob')
      await bob((scope) => fetchInbox(scope, {}))
      let isHeld = false
      for (let turn = 0; turn < 6 && !isHeld; turn++) {
        const [from, to] = turn % 2 === 0 ? [bob, alice] : [alice, bob]
        const sent = await send(from, to.agent)
        isHeld = to === bob && Boolean(sent.recipients[0]?.held_until)
        if (!isHeld) await to((scope) => fetchInbox(scope, {}))
      }
      assert.ok(isHeld)
      const before = lines().length
      await until(before + 1)
      assert.deepEqual([...new Set(lines())], ['PATCHCORD: 1 new from alice'])
    } finally {
      await listener.stop()
      await folder.remove()
    }
  })
})

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { createAgent, renameAgent } from '../../server/domain/agents.ts'
import { issueToken, revokeToken } from '../../server/domain/tokens.ts'
import { call, startTestApp, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { CLIENT_KINDS, connectMcp, idIn } from '../helpers/mcp.ts'
import { watchFirstLook } from '../helpers/processes.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { entry, Home } from '../scripts/listener-process.ts'

/** Whatever a caller might take for the place of a sender. */
const SENDERS = ['from', 'from_agent', 'sender', 'agent', 'agent_id', 'as', 'author', 'namespace', 'namespace_id']
const CONNECTED = /subscribe: connected/

describe('who an agent is', { concurrency: 4, timeout: 120_000 }, () => {
  let database: TestDatabase
  let app: TestApp
  before(async () => {
    database = await createTestDatabase()
    app = await startTestApp(database, { limits: { sendBurst: 1_000, refusalsPerMinuteMax: 10_000 } })
  })
  after(async () => {
    await app.close()
    await database.drop()
  })

  const countNew = async ({ token }: SeededAgent): Promise<number> =>
    (await call(app, 'GET', '/api/inbox?count_only=1', { token })).json.pending_count
  const send = async ({ token }: SeededAgent, to: string, content: string): Promise<string> =>
    (await call(app, 'POST', '/api/messages', { token, body: { to, content, kind: 'report' } })).json.message_id

  test('is said by its token alone: a sender that a call names is refused, and the server stamps its own', async (t) => {
    const { alice, bob, carol } = await seed(database, 'forged', ['alice', 'bob', 'carol'])
    const got = await send(alice, 'bob', 'hello')
    await call(app, 'POST', '/api/inbox/fetch', { token: bob.token, body: {} })
    const calls = [
      ['POST', '/api/messages', { to: 'carol', content: 'x' }],
      ['POST', `/api/messages/${got}/reply`, { content: 'x' }],
      ['POST', '/api/inbox/fetch', {}],
      ['PUT', '/api/presence', { state: 'busy' }],
      ['PUT', '/api/lease', { session: 's', client: 'c', machine: 'm', announced: [] }],
    ] as const
    for (const name of SENDERS) {
      for (const [method, path, body] of calls) {
        const answer = await call(app, method, path, { token: bob.token, body: { ...body, [name]: 'alice' } })
        assert.deepEqual([answer.status, answer.json?.error.code], [400, 'invalid'], `${name} in ${path}`)
      }
    }
    const client = await connectMcp(app, bob.token)
    t.after(() => client.close())
    for (const name of SENDERS) {
      for (const [tool, args] of [
        ['send_message', { to: 'carol', content: 'x' }],
        ['reply', { message_id: got, content: 'x' }],
        ['inbox', {}],
        ['list_agents', {}],
      ] as const) {
        const { code } = await client.call(tool, { ...args, [name]: 'alice' })
        assert.equal(code, 'invalid', `${name} in ${tool}`)
      }
    }
    assert.deepEqual([await countNew(alice), await countNew(carol)], [0, 0])
    const headers = { 'x-agent': 'alice', 'x-patchcord-agent': 'alice', from: 'alice', 'x-user': 'alice' }
    const body = { to: 'carol', content: 'from whom?' }
    await call(app, 'POST', '/api/messages', { token: bob.token, body, headers })
    const { json } = await call(app, 'POST', '/api/inbox/fetch', { token: carol.token, body: {} })
    assert.deepEqual(
      json.new.map(({ from }: { from: string }) => from),
      ['bob'],
    )
  })

  test('is not had by asking for its name: a taken one gives no token, and a lost token is replaced without losing mail', async () => {
    const { alice, bob } = await seed(database, 'taken', ['alice', 'bob'])
    await send(alice, 'bob', 'before the token was lost')
    const again = await createAgent(database.admin, { namespace: 'taken', name: 'bob' }).catch((error) => error)
    assert.deepEqual([again.code, again.status], ['conflict', 409])
    assert.doesNotMatch(JSON.stringify({ ...again, message: again.message }), /pc_/)
    const second = await issueToken(database.admin, { namespace: 'taken', agent: 'bob' })
    await revokeToken(database.admin, bob.tokenId)
    assert.equal((await call(app, 'GET', '/api/inbox', bob)).status, 403)
    const { json } = await call(app, 'POST', '/api/inbox/fetch', { token: second.token, body: {} })
    assert.deepEqual([json.agent, json.new[0].content], ['bob', 'before the token was lost'])
  })

  for (const kind of CLIENT_KINDS) {
    test(`decides where a reply goes: to who sent the message, whoever else is called so, and under its new name (${kind})`, async (t) => {
      const name = kind.replace(' ', '-')
      const here = await seed(database, `here-${name}`, ['anna', 'zoe', 'mia'])
      const there = await seed(database, `there-${name}`, ['anna', 'zoe', 'mia'])
      const [anna, zoe] = [await connectMcp(app, here.anna.token, kind), await connectMcp(app, here.zoe.token, kind)]
      t.after(() => Promise.all([anna.close(), zoe.close()]))
      const sent = idIn((await zoe.call('send_message', { to: '*', content: 'who is there?' })).text)
      await anna.call('inbox')
      await renameAgent(database.admin, { namespace: `here-${name}`, agent: 'zoe', newName: 'zora' })
      const taking = createAgent(database.admin, { namespace: `here-${name}`, name: 'zoe' })
      await assert.rejects(taking, { code: 'conflict' }, 'nobody gets the name that the message carries')
      const reply = await anna.call('reply', { message_id: sent, content: 'only for who asked' })
      assert.match(reply.text, /^Sent to zora /)
      const counts = await Promise.all([...Object.values(here), ...Object.values(there)].map(countNew))
      assert.deepEqual(counts, [0, 1, 1, 0, 0, 0], 'zora has the answer, mia the question, the others nothing')
      assert.match((await zoe.call('wait_for_message', { timeout_seconds: 5 })).text, /\nonly for who asked\n/)
      const strange = await connectMcp(app, there.zoe.token, kind)
      t.after(() => strange.close())
      assert.equal((await strange.call('reply', { message_id: sent, content: 'x' })).code, 'not_found')
    })
  }

  test('keeps two agents of one project apart: each hears of its own messages only', async (t) => {
    const { alice, bob, carol } = await seed(database, 'project', ['alice', 'bob', 'carol'])
    const home = await Home.create()
    t.after(() => home.remove())
    const mcpServers = { patchcord: entry(app.url, bob.token), second: entry(app.url, carol.token) }
    await home.writeMcpJson({ mcpServers })
    const looks = [bob, carol].map(({ token }) => watchFirstLook(app.app.server, token))
    const listener = home.start()
    await listener.logged(CONNECTED, 2)
    for (const hasLooked of looks) await hasLooked()
    const stepsOf = async (id: string) => {
      const { json } = await call(app, 'GET', `/api/messages/${id}/status`, alice)
      return json.recipients.map(({ agent, steps }: { agent: string; steps: { step: string }[] }) => [
        agent,
        ...steps.map(({ step }) => step),
      ])
    }
    const hasSteps = async (id: string, expected: string[][]) => {
      for (let tries = 0; tries < 500; tries++) {
        if (JSON.stringify(await stepsOf(id)) === JSON.stringify(expected)) return
        await sleep(20)
      }
      assert.deepEqual(await stepsOf(id), expected)
    }
    const toCarol = await send(alice, 'carol', 'x')
    await hasSteps(toCarol, [['carol', 'accepted', 'notified']])
    assert.deepEqual([await countNew(bob), await countNew(carol)], [0, 1])
    const toBob = await send(alice, 'bob', 'x')
    await hasSteps(toBob, [['bob', 'accepted', 'notified']])
    assert.deepEqual(listener.lines, ['PATCHCORD: 1 new from alice', 'PATCHCORD: 1 new from alice'])
    await call(app, 'POST', '/api/inbox/fetch', { token: bob.token, body: {} })
    assert.deepEqual([await countNew(bob), await countNew(carol)], [0, 1])
  })

  test('does not begin anew: who was deleted is told so, never of an empty inbox, and nobody gets the name', async (t) => {
    const { alice, bob } = await seed(database, 'deleted', ['alice', 'bob'])
    const client = await connectMcp(app, bob.token)
    t.after(() => client.close())
    const id = await send(alice, 'bob', 'kept')
    await database.admin`update patchcord.agents set deleted_at = clock_timestamp() where id = ${bob.agentId}`
    await assert.rejects(client.call('inbox'), /agent_gone/)
    for (const [method, path, body] of [
      ['GET', '/api/inbox', undefined],
      ['POST', '/api/inbox/fetch', {}],
      ['GET', '/api/messages', undefined],
    ] as const) {
      const { status, json } = await call(app, method, path, { token: bob.token, body })
      assert.deepEqual([status, json.error.code], [404, 'agent_gone'], path)
    }
    await assert.rejects(createAgent(database.admin, { namespace: 'deleted', name: 'bob' }), { code: 'conflict' })
    await assert.rejects(issueToken(database.admin, { namespace: 'deleted', agent: 'bob' }), { code: 'not_found' })
    const { json } = await call(app, 'GET', `/api/messages/${id}/status`, alice)
    assert.equal(json.recipients[0].state, 'new', 'the history is there')
  })
})

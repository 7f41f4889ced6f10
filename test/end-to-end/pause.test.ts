import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { PersonScope } from '../../server/db/scope.ts'
import { hashCode } from '../../server/domain/codes.ts'
import { setPaused } from '../../server/domain/namespaces.ts'
import { createLoginLink, signIn } from '../../server/domain/people.ts'
import { call } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { startInstance } from '../helpers/instance.ts'
import { connectMcp, createTemporaryFolder, startListener } from '../helpers/processes.ts'
import { seed } from '../helpers/seed.ts'

const WAKE_MS_MAX = 20_000
/** Longer than a read-back and a wake take. */
const QUIET_MS = 3_500

/** The kill switch of a namespace, as its agents, their listeners and their hooks meet it. */
describe('a namespace that a person has paused', () => {
  let database: TestDatabase
  let app: Awaited<ReturnType<typeof startInstance>>
  let owner: PersonScope
  before(async () => {
    database = await createTestDatabase()
    app = await startInstance(database)
    const { code } = await createLoginLink(database.admin)
    const { session } = await signIn(database.api, { code, client: 'test' })
    owner = { sql: database.api, sessionHash: hashCode(session) }
  })
  after(async () => {
    await app.close()
    await database.drop()
  })

  const pause = (namespace: string) => setPaused(owner, { namespace, paused: true })
  const resume = (namespace: string) => setPaused(owner, { namespace, paused: false })

  test('takes no message and no answer, over REST and MCP, and says why; what was received can be read and settled', async () => {
    const { alice, bob } = await seed(database, 'stopped', ['alice', 'bob'])
    const { carol, dave } = await seed(database, 'going', ['carol', 'dave'])
    const { json: sent } = await call(app, 'POST', '/api/messages', {
      token: alice.token,
      body: { to: 'bob', content: 'before' },
    })
    const mcp = await connectMcp(app.url, bob.token)
    await pause('stopped')

    const refused = await call(app, 'POST', '/api/messages', { token: alice.token, body: { to: 'bob', content: 'x' } })
    assert.equal(refused.status, 409)
    assert.equal(refused.json.error.code, 'paused')
    assert.match(refused.json.error.message, /^A person has paused this namespace/)
    const inbox = await mcp.call('inbox')
    const [first, second] = inbox.text.split('\n')
    assert.match(first ?? '', /^bob@stopped \| 1 new/)
    assert.match(second ?? '', /^A person has paused this namespace/)
    assert.match(inbox.text, /\nbefore\n/)
    const roster = await mcp.call('list_agents')
    assert.match(roster.text, /^stopped \| .*\nA person has paused this namespace/)
    const answer = await mcp.call('reply', { message_id: sent.message_id, content: 'an answer' })
    assert.ok(answer.isError)
    assert.match(answer.text, /A person has paused this namespace/)
    const wait = await mcp.call('wait_for_message', { timeout_seconds: 30 })
    assert.ok(wait.isError)
    assert.match(wait.text, /A person has paused this namespace/)
    const done = await mcp.call('inbox', { done: [sent.message_id] })
    assert.match(done.text, new RegExp(`${sent.message_id} is done`))
    assert.equal(
      (await call(app, 'POST', '/api/messages', { token: carol.token, body: { to: 'dave', content: 'on' } })).status,
      201,
    )
    const other = await call(app, 'GET', '/api/inbox', { token: dave.token })
    assert.equal(other.json.pending_count, 1)

    await resume('stopped')
    const again = await call(app, 'POST', '/api/messages', {
      token: alice.token,
      body: { to: 'bob', content: 'after' },
    })
    assert.equal(again.status, 201)
    assert.doesNotMatch((await mcp.call('inbox')).text, /paused/)
    await mcp.close()
  })

  test('wakes nobody: neither a listener that starts meanwhile nor by peeks; when it goes on, who has unread mail is woken', async (t) => {
    const { alice, bob } = await seed(database, 'quiet', ['alice', 'bob'])
    const folder = await createTemporaryFolder()
    t.after(() => folder.remove())
    await call(app, 'POST', '/api/messages', { token: alice.token, body: { to: 'bob', content: 'unread' } })
    // As old as a pause of hours makes it: read-back looks at what has come due recently.
    await database.admin`update patchcord.deliveries set wake_at = wake_at - interval '3 hours'`
    await pause('quiet')
    const listener = await startListener({ url: app.url, token: bob.token, home: folder.path })
    t.after(() => listener.stop())
    await sleep(QUIET_MS)
    assert.deepEqual(listener.lines, [])
    const peek = await call(app, 'GET', '/api/inbox?count_only=1', { token: bob.token })
    assert.equal(peek.json.pending_count, 0)

    await resume('quiet')
    const deadline = Date.now() + WAKE_MS_MAX
    while (listener.lines.length === 0 && Date.now() < deadline) await sleep(20)
    assert.deepEqual(
      listener.lines.map(({ text }) => text),
      ['PATCHCORD: 1 new from alice'],
    )
  })

  test('keeps what the loop budget holds until it goes on', async () => {
    const { alice, bob } = await seed(database, 'held', ['alice', 'bob'])
    await call(app, 'POST', '/api/messages', { token: alice.token, body: { to: 'bob', content: 'held' } })
    await database.admin`
      update patchcord.deliveries set held = true, wake_at = clock_timestamp() where to_agent_uuid = ${bob.agentId}`
    const isHeld = async () =>
      (await database.admin`select held from patchcord.deliveries where to_agent_uuid = ${bob.agentId}`)[0]?.held
    await pause('held')
    await sleep(QUIET_MS)
    assert.equal(await isHeld(), true)
    await resume('held')
    const deadline = Date.now() + WAKE_MS_MAX
    while ((await isHeld()) && Date.now() < deadline) await sleep(20)
    assert.equal(await isHeld(), false)
  })
})

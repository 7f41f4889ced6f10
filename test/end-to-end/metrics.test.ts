import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { sendMessage } from '../../server/domain/messages.ts'
import { createPrometheus, type Prometheus } from '../../server/metrics/prometheus.ts'
import { call, type TestApp } from '../helpers/app.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { startInstance } from '../helpers/instance.ts'
import { type Joined, joinOwnTopic } from '../helpers/joined.ts'
import { connectMcp } from '../helpers/mcp.ts'
import { compareSamples, parseSamples } from '../helpers/scrape.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'

const PATIENCE_MS = 20_000
/** Names that stand nowhere else, to be looked for. */
const NAMESPACE = 'zz-odd-namespace'
const [ASKER, ANSWERER, SILENT] = ['qq-odd-asker', 'qq-odd-answerer', 'qq-odd-silent'] as const

/** Two whole servers on one database, each with its own counts, and everything between them. */
describe('the metrics of an instance', () => {
  let database: TestDatabase
  let here: TestApp
  let there: TestApp
  let counts: { here: Prometheus; there: Prometheus }
  let agents: Record<typeof ASKER | typeof ANSWERER | typeof SILENT, SeededAgent>
  const joined: Joined[] = []

  before(async () => {
    database = await createTestDatabase()
    const create = () =>
      createPrometheus({ version: '0.0.0-test', probe: () => database.api`select 1`, withProcess: false })
    counts = { here: await create(), there: await create() }
    const limits = { unauthenticatedPerMinute: 10_000 }
    here = await startInstance(database, { metrics: counts.here, limits })
    there = await startInstance(database, { metrics: counts.there, limits })
    agents = await seed(database, NAMESPACE, [ASKER, ANSWERER, SILENT])
  })
  after(async () => {
    for (const each of joined) await each.close()
    await here.close()
    await there.close()
    await database.drop()
  })

  /** What work adds to a page, once `isThere` holds of it. */
  async function added(
    metrics: Prometheus,
    work: () => Promise<unknown>,
    isThere: (more: Record<string, number>) => boolean = () => true,
  ): Promise<Record<string, number>> {
    const before = await metrics.text()
    await work()
    const deadline = Date.now() + PATIENCE_MS
    for (;;) {
      const more = compareSamples(before, await metrics.text())
      if (isThere(more)) return more
      if (Date.now() > deadline) assert.fail(JSON.stringify(more, null, 1))
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }

  const send = (app: TestApp, { token }: SeededAgent, to: string, content = 'a text that stands nowhere') =>
    call(app, 'POST', '/api/messages', { token, body: { to, content } })

  test('a send is counted where it was sent, and its wake where it was heard, with how long it took', async () => {
    joined.push(await joinOwnTopic(there, agents[ANSWERER].token), await joinOwnTopic(here, agents[ANSWERER].token))
    assert.equal(parseSamples(await counts.there.text()).get('patchcord_sockets_open'), 1)
    assert.equal(parseSamples(await counts.there.text()).get('patchcord_topics_joined'), 1)
    const thereBefore = await counts.there.text()
    const POST = '{method="POST",route="/api/messages",status="2xx"}'
    const more = await added(
      counts.here,
      () => send(here, agents[ASKER], ANSWERER),
      (each) => each[`patchcord_http_request_seconds_count${POST}`] === 1,
    )
    assert.equal(more['patchcord_sends_total{outcome="woke"}'], 1)
    assert.equal(more['patchcord_wakes_total{source="send"}'], 1)
    assert.equal(more.patchcord_wake_frames_total, 1)
    assert.equal(more['patchcord_wake_delivery_seconds_count{source="send"}'], 1)
    assert.ok(more[`patchcord_http_request_seconds_sum${POST}`])
    const deadline = Date.now() + PATIENCE_MS
    let peers: Record<string, number> = {}
    while (!peers['patchcord_wake_delivery_seconds_count{source="peer"}'] && Date.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, 10))
      peers = compareSamples(thereBefore, await counts.there.text())
    }
    assert.equal(peers['patchcord_wakes_total{source="peer"}'], 1)
    assert.equal(peers['patchcord_wake_delivery_seconds_count{source="peer"}'], 1)
    assert.equal(peers.patchcord_wake_frames_total, 1)
    assert.equal(peers['patchcord_sends_total{outcome="woke"}'], undefined)
  })

  test('a note to oneself is quiet, and the same key again is a replay', async () => {
    const { token } = agents[SILENT]
    const body = { to: SILENT, content: 'a note', idempotency_key: 'once' }
    const more = await added(counts.here, async () => {
      await call(here, 'POST', '/api/messages', { token, body })
      await call(here, 'POST', '/api/messages', { token, body })
    })
    assert.equal(more['patchcord_sends_total{outcome="quiet"}'], 1)
    assert.equal(more['patchcord_sends_total{outcome="replayed"}'], 1)
    assert.equal(more['patchcord_wakes_total{source="send"}'], undefined)
  })

  test('refusals are counted by code and by what refused: a route, a tool, the gate', async () => {
    const client = await connectMcp(here, agents[SILENT].token)
    const more = await added(
      counts.here,
      async () => {
        await send(here, agents[SILENT], 'nobody-of-that-name')
        await client.call('send_message', { to: 'nobody-of-that-name', content: 'x' })
        await call(here, 'GET', '/api/whoami')
        await call(here, 'GET', '/a-path-of-nobody')
        await call(here, 'POST', '/api/messages', { token: agents[SILENT].token, body: '{' })
      },
      (each) => each['patchcord_refusals_total{by="http",code="invalid"}'] === 1,
    )
    await client.close()
    assert.equal(more['patchcord_refusals_total{by="http",code="not_found"}'], 2)
    assert.equal(more['patchcord_refusals_total{by="tool",code="not_found"}'], 1)
    assert.equal(more['patchcord_refusals_total{by="http",code="token_missing"}'], 1)
    assert.equal(more['patchcord_mcp_tool_seconds_count{tool="send_message",outcome="not_found"}'], 1)
    assert.equal(more['patchcord_http_request_seconds_count{method="GET",route="none",status="4xx"}'], 1)
  })

  test('what the gate refuses before the router is counted, too', async () => {
    const metrics = await createPrometheus({ version: 'x', probe: async () => undefined, withProcess: false })
    const strict = await startInstance(database, { metrics, limits: { unauthenticatedPerMinute: 1 } })
    for (let index = 0; index < 3; index++) await call(strict, 'GET', '/api/whoami')
    await strict.close()
    const samples = parseSamples(await metrics.text())
    assert.equal(samples.get('patchcord_refusals_total{by="http",code="token_missing"}'), 1)
    assert.equal(samples.get('patchcord_refusals_total{by="gate",code="rate_limited"}'), 2)
  })

  test('a waiting call is seen while it waits, and its wake is one that was taken', async () => {
    const client = await connectMcp(there, agents[SILENT].token)
    const before = await counts.there.text()
    const waiting = client.call('wait_for_message', { timeout_seconds: 60 })
    const deadline = Date.now() + PATIENCE_MS
    while (parseSamples(await counts.there.text()).get('patchcord_waiters_waiting') !== 1) {
      assert.ok(Date.now() < deadline, 'nobody waits')
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
    await send(here, agents[ASKER], SILENT)
    assert.equal((await waiting).isError, false)
    await client.close()
    const more = compareSamples(before, await counts.there.text())
    assert.equal(more.patchcord_wakes_taken_total, 1)
    assert.equal(more['patchcord_mcp_tool_seconds_count{tool="wait_for_message",outcome="ok"}'], 1)
    assert.equal(more.patchcord_waiters_waiting, undefined)
  })

  test('leases are counted by renewal and by statement', async () => {
    const more = await added(counts.here, () =>
      call(here, 'PUT', '/api/lease', {
        token: agents[ASKER].token,
        body: { session: 's', client: 'c', machine: 'qq-odd-machine', announced: [] },
      }),
    )
    assert.equal(more.patchcord_lease_renewals_total, 1)
    assert.equal(more['patchcord_lease_batch_rows_bucket{le="1"}'], 1)
    assert.equal(more.patchcord_lease_batch_seconds_count, 1)
  })

  test('a wake that only the read-back found is told apart from one that became due', async () => {
    const { token } = agents[ANSWERER]
    const silent = { ...agents[ASKER].scope, bus: { ...agents[ASKER].scope.bus, publish: () => undefined } }
    await call(here, 'POST', '/api/inbox/fetch', { token, body: {} })
    const lost = await added(
      counts.here,
      () => sendMessage(silent, { to: ANSWERER, content: 'its wake is lost' }),
      (each) => each['patchcord_wakes_total{source="read_back"}'] === 1,
    )
    assert.equal(lost['patchcord_wakes_total{source="due"}'], undefined)
    const { message_id } = await sendMessage(silent, { to: ANSWERER, content: 'held' })
    const due = await added(
      counts.here,
      () => database.superuser`
        update patchcord.deliveries set wake_at = clock_timestamp() + interval '2 s' where message_id = ${message_id}`,
      (each) => each['patchcord_wakes_total{source="due"}'] === 1,
    )
    assert.equal(due['patchcord_wakes_total{source="read_back"}'], undefined)
  })

  test('what an instance does by itself is counted, with when it worked last', async () => {
    const samples = parseSamples(await counts.here.text())
    for (const job of ['read_back', 'peers']) {
      assert.ok(samples.get(`patchcord_job_runs_total{job="${job}",outcome="ok"}`), job)
      const last = samples.get(`patchcord_job_last_success_timestamp_seconds{job="${job}"}`) ?? 0
      assert.ok(Math.abs(Date.now() / 1000 - last) < 60, job)
    }
    assert.equal(samples.get('patchcord_database_up'), 1)
  })

  test('no name, id, token, address or text of anybody is on the page', async () => {
    const login = await call(here, 'GET', `/login/${'c'.repeat(43)}`)
    assert.ok(login.status >= 200)
    await call(here, 'GET', `/n/${NAMESPACE}/agents`)
    await call(here, 'GET', '/api/messages?thread=qq-odd-thread', { token: agents[ASKER].token })
    const page = `${await counts.here.text()}${await counts.there.text()}`
    assert.ok(page.length > 1_000)
    for (const text of ['odd', 'nobody-of', 'path-of', 'ccccc', 'stands nowhere', 'pc_', '127.0.0.1', 'lost', 'eyJ']) {
      assert.ok(!page.includes(text), text)
    }
    for (const { agentId, namespaceId, tokenId, tokenHash } of Object.values(agents)) {
      for (const id of [agentId, namespaceId, tokenId, tokenHash]) assert.ok(!page.includes(id))
    }
    assert.ok(!/[\da-f]{8}-[\da-f]{4}-7/.test(page), 'no message id')
  })

  test('the public address has no such page: the path is one like any other that there is none of', async () => {
    const forwarded = { 'x-forwarded-for': '127.0.0.1', 'x-real-ip': '127.0.0.1', forwarded: 'for=127.0.0.1' }
    for (const headers of [{}, forwarded]) {
      const answers = [
        await call(here, 'GET', '/metrics', { headers }),
        await call(here, 'GET', '/metricz', { headers }),
      ]
      assert.equal(answers[0]?.status, 404)
      assert.deepEqual(answers[0]?.json, answers[1]?.json)
    }
  })
})

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { sendMessage } from '../../server/domain/messages.ts'
import { createRealtimeSource, type RealtimeSource } from '../../server/domain/realtime.ts'
import { PatchcordError } from '../../server/errors.ts'
import { asTicket, tryAs } from '../db/rls/world.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { claimsOf, drain, INSERT, QUIET_MS, send, subscribe, TOPIC, withWorld } from './changes-helper.ts'
import { type Client, inSeconds, startEndpoint } from './endpoint-helper.ts'

describe('changes of the table', () => {
  let database: TestDatabase
  before(async () => {
    database = await createTestDatabase()
  })
  after(() => database.drop())

  test('a row is sent as Postgres prints it for the role of a ticket', () =>
    withWorld(database, async ({ endpoint, alice, bob }) => {
      const { client, said } = await subscribe(endpoint, bob)
      assert.equal(said, 'Subscribed to PostgreSQL')
      await alice((scope) => sendMessage(scope, { to: 'bob', content: 'hi', thread: 'deploy', urgency: 'urgent' }))
      const frame = await client.next()
      const [row] = await tryAs(
        database.superuser,
        asTicket(bob, 60),
        (sql) => sql`
          select to_jsonb(m)::text as record,
            to_char(sent_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at from patchcord.agent_messages m`,
      )
      const [catalog] = await database.admin`
        select jsonb_agg(jsonb_build_object('name', column_name, 'type', udt_name) order by ordinal_position)::text as columns
        from information_schema.columns where table_schema = 'patchcord' and table_name = 'agent_messages'`
      const [, ids] = /"ids":(\[\d+\])\}\}$/.exec(frame) ?? []
      assert.equal(
        frame,
        `{"ref":null,"event":"postgres_changes","topic":"${TOPIC}","payload":{"data":{"table":"agent_messages","type":"INSERT",` +
          `"record":${row?.record},"columns":${catalog?.columns},"errors":null,"schema":"patchcord","commit_timestamp":"${row?.at}"},` +
          `"ids":${ids}}}`,
      )
      assert.ok(!frame.includes('"content"'))
      client.close()
    }))

  test('each ticket hears exactly the rows that the policy shows it: silent, held and taken ones too', () =>
    withWorld(
      database,
      async ({ endpoint, alice, bob, carol }) => {
        const [forBob, forAlice, forCarol] = await Promise.all([bob, alice, carol].map((a) => subscribe(endpoint, a)))
        const anonymous = await subscribe(endpoint, bob, [INSERT], { role: 'anon' })
        await send(alice, bob)
        await send(bob, bob)
        for (let turn = 0; turn < 4; turn++) {
          const [from, to] = turn % 2 === 0 ? [bob, alice] : [alice, bob]
          await from((scope) => fetchInbox(scope, {}))
          await send(from as SeededAgent, to as SeededAgent)
        }
        await alice((scope) => sendMessage(scope, { to: '*', content: 'all', kind: 'report' }))
        const visible = async (agent: SeededAgent) =>
          await tryAs(
            database.superuser,
            asTicket(agent, 60),
            (sql) => sql`select id, wake_at > sent_at as held, wake_at is null as silent from patchcord.agent_messages`,
          )
        const rows = await visible(bob)
        assert.ok(rows.some((row) => row.held) && rows.some((row) => row.silent))
        for (const [agent, heard] of [
          [bob, forBob],
          [alice, forAlice],
          [carol, forCarol],
        ] as [SeededAgent, { client: Client }][]) {
          const expected = (await visible(agent)).map((row) => row.id)
          assert.ok(expected.length > 0)
          assert.deepEqual((await drain(heard.client)).sort(), expected.sort())
          const { rows: read } = await createRealtimeSource(database.api).readChanges([agent.agentId], 60, [])
          assert.deepEqual(read.map((row) => row.id).sort(), expected)
          heard.client.close()
        }
        assert.deepEqual(await drain(anonymous.client), [])
        anonymous.client.close()
      },
      { isDeaf: true, limits: { turnsUnattendedMax: 1, turnsWindowSeconds: 60 } },
    ))

  test('eq and in filters choose rows by the value, however it is written, and one row comes once', () =>
    withWorld(database, async ({ endpoint, alice, bob, carol }) => {
      const filters: [string, boolean][] = [
        [`to_agent_uuid=eq.${bob.agentId.toUpperCase()}`, true],
        [`to_agent_uuid=in.(${alice.agentId},${bob.agentId})`, true],
        [`from_agent=in.("alice","x,y"),kind=eq.message`, true],
        ['from_agent=eq.carol', false],
        ['from_agent=in.()', false],
        ['thread=eq.null', false],
        [`from_agent=eq.alice,kind=eq.report`, false],
      ]
      for (const [filter, isHeard] of filters) {
        const { client, said } = await subscribe(endpoint, bob, [{ ...INSERT, filter }])
        assert.equal(said, 'Subscribed to PostgreSQL')
        await bob((scope) => fetchInbox(scope, {}))
        const { message_id } = await send(alice, bob)
        assert.deepEqual(await drain(client), isHeard ? [message_id] : [], filter)
        client.close()
      }
      const bindings = [
        { ...INSERT, filter: 'from_agent=eq.carol' },
        { ...INSERT, event: '*' },
      ]
      const { client } = await subscribe(endpoint, bob, bindings)
      await send(carol, bob)
      const { ids } = JSON.parse(await client.next()).payload
      assert.equal(new Set(ids).size, 2)
      client.close()
    }))

  test('what is not published, or cannot be read, is refused with the recorded sentence', () =>
    withWorld(database, async ({ endpoint, bob }) => {
      const unable = /^Unable to subscribe to changes with given parameters\. Please check Realtime is enabled/
      const cases: [object, RegExp][] = [
        [{ ...INSERT, event: 'UPDATE' }, unable],
        [{ ...INSERT, event: 'DELETE' }, unable],
        [{ ...INSERT, table: 'message_bodies' }, unable],
        [{ ...INSERT, schema: 'public' }, unable],
        [{ event: 'INSERT', table: 'agent_messages' }, unable],
        [{ ...INSERT, filter: 'kind=neq.report' }, /^Error parsing `filter` params: \["neq", "report"\]$/],
        [
          { ...INSERT, filter: 'sent_at=eq.yesterdayish' },
          /ERROR 22007 \(invalid_datetime_format\) invalid input syntax/,
        ],
        [{ ...INSERT, filter: 'content=eq.x' }, /\(raise_exception\) invalid column for filter content$/],
        [{ ...INSERT, table: 'nope', filter: 'content=eq.x' }, unable],
        // It is the parameters of the wrong one that are named, whose filter is not the first.
        [
          { ...INSERT, event: '*', filter: 'content=eq.x' },
          /parameters: \[event: \*, .*invalid column for filter content$/,
        ],
      ]
      for (const [binding, expected] of cases) {
        const { client, said } = await subscribe(endpoint, bob, [{ ...INSERT, filter: 'kind=eq.message' }, binding])
        assert.match(said, expected)
        client.close()
      }
    }))

  test('columns that the role of a ticket may not select are neither shown nor to be filtered by', async () => {
    const other = await createTestDatabase()
    const endpoint = await startEndpoint({ source: createRealtimeSource(other.api) })
    try {
      await other.admin`revoke select on patchcord.agent_messages from patchcord_ticket`
      await other.admin`grant select (id, to_agent_uuid, kind) on patchcord.agent_messages to patchcord_ticket`
      const { alice, bob } = await seed(other, 'acme', ['alice', 'bob'])
      const { client } = await subscribe(endpoint, bob)
      await send(alice, bob)
      const { data } = JSON.parse(await client.next()).payload
      assert.deepEqual(Object.keys(data.record), ['id', 'kind', 'to_agent_uuid'])
      assert.deepEqual(
        data.columns.map((column: { name: string }) => column.name),
        ['id', 'to_agent_uuid', 'kind'],
      )
      client.close()
      const filtered = await subscribe(endpoint, bob, [{ ...INSERT, filter: 'from_agent=eq.alice' }])
      assert.match(filtered.said, /invalid column for filter from_agent$/)
      filtered.client.close()
    } finally {
      await endpoint.stop()
      await other.drop()
    }
    assert.deepEqual(endpoint.errors, [])
  })

  test('new tokens in the middle of a stream lose no row and double none', () =>
    withWorld(database, async ({ endpoint, alice, bob }) => {
      const { client } = await subscribe(endpoint, bob)
      const sent: string[] = []
      for (let index = 0; index < 25; index++) {
        const exp = inSeconds(100 + index)
        const accessToken = await endpoint.sign({ role: 'patchcord_ticket', exp, ...claimsOf(bob) })
        client.send({
          topic: TOPIC,
          event: 'access_token',
          payload: { access_token: accessToken },
          ref: '2',
          join_ref: '1',
        })
        sent.push((await send(alice, bob)).message_id)
      }
      assert.deepEqual(await drain(client), sent)
      client.close()
    }))

  test('a token of another agent decides from its "Subscribed" on, and what was committed before is still told', () =>
    withWorld(
      database,
      async ({ endpoint, alice, bob, carol }) => {
        const { client } = await subscribe(endpoint, bob)
        const early = await send(alice, bob)
        const exp = inSeconds(60)
        const accessToken = await endpoint.sign({ role: 'patchcord_ticket', exp, ...claimsOf(carol) })
        client.send({ topic: TOPIC, event: 'access_token', payload: { access_token: accessToken }, ref: '2' })
        assert.equal(JSON.parse(await client.next()).payload.data.record.id, early.message_id)
        assert.match(await client.next(), /Subscribed to PostgreSQL/)
        await send(alice, bob)
        const late = await send(bob, carol)
        for (const wake of bob.wakes) endpoint.hub.deliver(wake)
        assert.deepEqual(await drain(client), [late.message_id])
        client.close()
      },
      { isDeaf: true, times: { changesPollMs: 60_000 } },
    ))

  test('of chosen columns the key is always among them, and of the others nothing is shown', () =>
    withWorld(database, async ({ endpoint, alice, bob }) => {
      const { client } = await subscribe(endpoint, bob, [{ ...INSERT, select: ['from_agent'] }])
      await send(alice, bob)
      const { data } = JSON.parse(await client.next()).payload
      const shown = ['from_agent', 'id', 'to_agent_uuid']
      assert.deepEqual(Object.keys(data.record).sort(), shown)
      assert.deepEqual(data.columns.map(({ name }: { name: string }) => name).sort(), shown)
      client.close()
    }))

  test("a token of another agent that is outrun by the next one, or by a leave, shows none of that agent's rows", async () => {
    const source = createRealtimeSource(database.api)
    let onRead = async (_agentIds: string[]) => {}
    const watched: RealtimeSource = {
      ...source,
      async readChanges(...given) {
        await onRead(given[0])
        return await source.readChanges(...given)
      },
    }
    const work = (isLeaving: boolean) => async (world: Parameters<Parameters<typeof withWorld>[1]>[0]) => {
      const { endpoint, alice, bob, carol } = world
      const { client } = await subscribe(endpoint, bob)
      const push = (event: string, payload: object) =>
        client.send({ topic: TOPIC, event, payload, ref: '2', join_ref: '1' })
      const refresh = async (agent: SeededAgent, more: object) => {
        const claims = { role: 'patchcord_ticket', exp: inSeconds(60), ...claimsOf(agent), ...more }
        push('access_token', { access_token: await endpoint.sign(claims) })
      }
      onRead = async (agentIds) => {
        if (!agentIds.includes(carol.agentId)) return
        onRead = async () => {}
        if (isLeaving) push('phx_leave', {})
        else await refresh(bob, { n: 2 })
        await sleep(QUIET_MS)
      }
      await refresh(carol, {})
      assert.match(await client.next(), isLeaving ? /phx_reply/ : /Subscribed to PostgreSQL/)
      await sleep(QUIET_MS)
      await send(alice, carol)
      const { message_id } = await send(alice, bob)
      assert.deepEqual(await drain(client), isLeaving ? [] : [message_id])
      client.close()
    }
    for (const isLeaving of [false, true]) await withWorld(database, work(isLeaving), { source: watched })
  })

  test('while the database is away nothing is lost, and a subscription is tried again', async () => {
    const source = createRealtimeSource(database.api)
    let isAway = false
    const flaky = <T>(work: () => Promise<T>) =>
      isAway ? Promise.reject(new PatchcordError('unavailable', 'away')) : work()
    const faulty: RealtimeSource = {
      listRecentWakes: (...given) => flaky(() => source.listRecentWakes(...given)),
      readChanges: (...given) => flaky(() => source.readChanges(...given)),
      checkFilters: (...given) => flaky(() => source.checkFilters(...given)),
    }
    await withWorld(
      database,
      async ({ endpoint, alice, bob }) => {
        const { client } = await subscribe(endpoint, bob)
        isAway = true
        const late = await endpoint.open()
        const jwt = await endpoint.sign({ role: 'patchcord_ticket', exp: inSeconds(60), ...claimsOf(bob) })
        const payload = { config: { postgres_changes: [INSERT] }, access_token: jwt }
        late.send({ topic: TOPIC, event: 'phx_join', payload, ref: '1', join_ref: '1' })
        assert.equal(JSON.parse(await late.next()).payload.status, 'ok')
        const sent = [(await send(alice, bob)).message_id]
        await sleep(QUIET_MS)
        assert.deepEqual([client.frames, late.frames], [[], []])
        isAway = false
        assert.match(await late.next(), /Subscribed to PostgreSQL/)
        sent.push((await send(alice, bob)).message_id)
        assert.deepEqual(await drain(client), sent)
        assert.deepEqual(await drain(late), sent.slice(1))
        client.close()
        late.close()
      },
      { source: faulty, times: { subscribeRetryMs: 50 } },
    )
  })

  test('after the last leave nothing is read any more, nor sent', async () => {
    const source = createRealtimeSource(database.api)
    let reads = 0
    const counting: RealtimeSource = {
      ...source,
      readChanges(...given) {
        reads++
        return source.readChanges(...given)
      },
    }
    await withWorld(
      database,
      async ({ endpoint, alice, bob }) => {
        const { client } = await subscribe(endpoint, bob)
        client.send({ topic: TOPIC, event: 'phx_leave', payload: {}, ref: '2', join_ref: '1' })
        assert.match(await client.next(), /"ref":"2"/)
        assert.match(await client.next(), /phx_close/)
        await sleep(QUIET_MS)
        const before = reads
        await send(alice, bob)
        assert.deepEqual(await drain(client), [])
        assert.equal(reads, before)
        assert.deepEqual([...endpoint.hub.agentIds()], [])
        client.close()
      },
      { source: counting },
    )
  })
})

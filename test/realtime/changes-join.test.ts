import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { createRealtimeSource, type RealtimeSource } from '../../server/domain/realtime.ts'
import { PatchcordError } from '../../server/errors.ts'
import { parseJoin } from '../../server/realtime/phoenix.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import type { SeededAgent } from '../helpers/seed.ts'
import { claimsOf, drain, INSERT, QUIET_MS, send, subscribe, TOPIC, withWorld } from './changes-helper.ts'
import { type Endpoint, inSeconds } from './endpoint-helper.ts'

/** Several round trips to the database. */
const SLOW_MS = 100
const SUBSCRIBED =
  `{"ref":null,"event":"system","topic":"${TOPIC}","payload":{"message":"Subscribed to PostgreSQL","status":"ok",` +
  '"extension":"postgres_changes","channel":"m"}}'

/** A source whose every answer is late, or that is away while `isAway()`. */
function troubled(source: RealtimeSource, { lateMs = 0, isAway = () => false }): RealtimeSource {
  const pass = async <T>(work: () => Promise<T>): Promise<T> => {
    if (isAway()) throw new PatchcordError('unavailable', 'away')
    await sleep(lateMs, undefined, { ref: false })
    return await work()
  }
  return {
    listRecentWakes: (...given) => pass(() => source.listRecentWakes(...given)),
    readChanges: (...given) => pass(() => source.readChanges(...given)),
    checkFilters: (...given) => pass(() => source.checkFilters(...given)),
  }
}

async function joinFrame(endpoint: Endpoint, agent: SeededAgent, options: object, bindings: object[] = [INSERT]) {
  const jwt = await endpoint.sign({ role: 'patchcord_ticket', exp: inSeconds(60), ...claimsOf(agent) })
  const config = { private: false, postgres_changes: bindings, ...options }
  return { topic: TOPIC, event: 'phx_join', payload: { config, access_token: jwt }, ref: '1', join_ref: '1' }
}

describe('a join with changes of the table', () => {
  let database: TestDatabase
  before(async () => {
    database = await createTestDatabase()
  })
  after(() => database.drop())

  test('what is committed between its ok and "Subscribed to PostgreSQL" comes behind that, once, as recorded', () =>
    withWorld(
      database,
      async ({ endpoint, alice, bob }) => {
        const early = await send(alice, bob)
        const client = await endpoint.open()
        client.send(await joinFrame(endpoint, bob, {}))
        assert.match(await client.next(), /"status":"ok"/)
        const between = await send(alice, bob)
        assert.equal(await client.next(), SUBSCRIBED)
        const late = await send(alice, bob)
        assert.deepEqual(await drain(client), [between.message_id, late.message_id])
        // What came before the ok is in the inbox, which a listener compares once it is subscribed.
        const inbox = await bob((scope) => fetchInbox(scope, {}))
        assert.deepEqual(
          inbox.new.map(({ message_id }) => message_id),
          [early.message_id, between.message_id, late.message_id],
        )
        client.close()
      },
      { source: troubled(createRealtimeSource(database.api), { lateMs: SLOW_MS }) },
    ))

  test('while rows come, joining the same topic again loses none and doubles none', () =>
    withWorld(
      database,
      async ({ endpoint, alice, bob }) => {
        const { client } = await subscribe(endpoint, bob)
        const join = await joinFrame(endpoint, bob, {})
        const sent: string[] = []
        let isJoining = true
        const sending = (async () => {
          while (isJoining) {
            sent.push((await send(alice, bob)).message_id)
            await sleep(5)
          }
        })()
        for (let turn = 2; turn < 12; turn++) {
          client.send({ ...join, ref: `${turn}`, join_ref: `${turn}` })
          const before = sent.length
          while (sent.length === before) await sleep(20)
        }
        isJoining = false
        await sending
        assert.deepEqual((await drain(client)).sort(), sent.sort())
        client.close()
      },
      { source: troubled(createRealtimeSource(database.api), { lateMs: 5 }), limits: { sendBurst: 1_000 } },
    ))

  test('a client that waits for its changes is answered once they are subscribed to', async () => {
    let isAway = true
    await withWorld(
      database,
      async ({ endpoint, alice, bob }) => {
        const client = await endpoint.open()
        client.send(await joinFrame(endpoint, bob, { postgres_changes_options: { wait: true } }))
        await sleep(QUIET_MS)
        assert.deepEqual(client.frames, [])
        isAway = false
        assert.match(await client.next(), /"status":"ok","response":\{"postgres_changes":\[\{"id":/)
        const { message_id } = await send(alice, bob)
        assert.equal(await client.next(), SUBSCRIBED)
        assert.deepEqual(await drain(client), [message_id])
        client.close()
      },
      { source: troubled(createRealtimeSource(database.api), { isAway: () => isAway }) },
    )
  })
  test('the join of a client that waits is refused for what others are only told, and when its time is over', () =>
    withWorld(
      database,
      async ({ endpoint, bob }) => {
        const options = { postgres_changes_options: { wait: true, timeout: 100 } }
        const refusals: [object[], string][] = [
          [
            [INSERT],
            'PostgresChangesSubscribeTimeout: Timed out after 100ms waiting for the postgres_changes subscription',
          ],
          [[{ ...INSERT, filter: 'foo' }], 'RealtimeDisabledForConfiguration: Error parsing `filter` params: ["foo"]'],
        ]
        for (const [bindings, reason] of refusals) {
          const client = await endpoint.open()
          client.send(await joinFrame(endpoint, bob, options, bindings))
          const { payload } = JSON.parse(await client.next())
          assert.deepEqual(payload, { status: 'error', response: { reason } })
          client.send({ topic: TOPIC, event: 'access_token', payload: {}, ref: '2' })
          assert.match(await client.next(), /"ref":"2".*"reason":"unmatched topic"/)
          client.close()
        }
      },
      { source: troubled(createRealtimeSource(database.api), { isAway: () => true }) },
    ))

  test('while the database gives no answer, joins are answered in their time, and what comes behind them too', () =>
    withWorld(
      database,
      async ({ endpoint, bob }) => {
        const client = await endpoint.open()
        const options = { postgres_changes_options: { wait: true, timeout: 300 } }
        client.send(await joinFrame(endpoint, bob, options))
        assert.match(await client.next(), /"reason":"PostgresChangesSubscribeTimeout: Timed out after 300ms/)
        client.send({ ...(await joinFrame(endpoint, bob, {})), ref: '2', join_ref: '2' })
        client.send({ topic: 'phoenix', event: 'heartbeat', payload: {}, ref: 'alive' })
        assert.match(await client.next(), /"ref":"2".*"status":"ok"/)
        assert.match(await client.next(), /"ref":"alive","event":"phx_reply","topic":"phoenix"/)
        client.close()
      },
      { source: troubled(createRealtimeSource(database.api), { lateMs: 60_000 }), times: { joinWaitMs: 300 } },
    ))
})

test('how long a join waits is read as Supabase Realtime reads it', () => {
  const cases: [unknown, number | null][] = [
    [undefined, null],
    [{}, null],
    [{ wait: false, timeout: 5 }, null],
    ['wait', null],
    [{ wait: true }, 15_000],
    [{ wait: 'true', timeout: 5 }, 5],
    [{ wait: true, timeout: 'soon' }, 15_000],
    [{ wait: true, timeout: 60_000 }, 20_000],
  ]
  for (const [options, waitMs] of cases) {
    assert.equal(parseJoin({ config: { postgres_changes_options: options } })?.waitMs, waitMs, JSON.stringify(options))
  }
})

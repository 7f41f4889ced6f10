import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { after, before, describe, test } from 'node:test'
import { connect, type TransactionSql } from '../../server/db/connect.ts'
import { getMessageStatus, settleMessages, unsendMessage } from '../../server/domain/delivery.ts'
import { fetchInbox, peekInbox } from '../../server/domain/inbox.ts'
import { recallMessages, replyToMessage, sendMessage } from '../../server/domain/messages.ts'
import { renewLease } from '../../server/domain/presence.ts'
import { revokeToken } from '../../server/domain/tokens.ts'
import type { PatchcordError } from '../../server/errors.ts'
import { createTestDatabase, type TestDatabase } from '../helpers/database.ts'
import { type SeededAgent, seed } from '../helpers/seed.ts'
import { callEntries, ENTRIES, LIMITS } from './rls/entries.ts'

const PROBES = 200
const SECRET = 'the secret text'

describe('an enemy with a token, or with the connection of the API', () => {
  let database: TestDatabase
  before(async () => {
    database = await createTestDatabase()
  })
  after(() => database.drop())

  /** SQL under the rights of an agent, as after enter_agent in a transaction of the server; undone at the end. */
  const asSql = async <T>(agent: SeededAgent, work: (sql: TransactionSql) => Promise<T>) => {
    let answer: T | undefined
    const undo = new Error('undo')
    await database.api
      .begin(async (sql) => {
        await sql`select patchcord.enter_agent(${agent.tokenHash})`
        answer = await work(sql)
        throw undo
      })
      .catch((error: unknown) => {
        if (error !== undo) throw error
      })
    return answer as T
  }

  test('neither claims nor role leak to the next of 200 pipelined statements, with errors between them', async () => {
    const { alice } = await seed(database, 'leak', ['alice', 'bob'], { limits: { sendBurst: 1_000 } })
    const sql = connect(database.apiTarget, { max: 1, applicationName: 'test-leak' })
    try {
      const work: Promise<unknown>[] = []
      const probes: Promise<{ who: string; role: string; claims: string }[]>[] = []
      for (let i = 0; i < PROBES; i++) {
        const content = i % 3 === 0 ? '' : 'x'
        work.push(
          sql`select patchcord.send_message(${alice.tokenHash}, ${['bob']}::text[], ${[null]}::text[], ${content}, null,
            'report', 'normal', null, 'h', ${LIMITS}::text::jsonb)`.catch(() => 'failed'),
          sql`select patchcord.enter_agent(${alice.tokenHash}), 1 / ${i % 2}::int`.catch(() => 'failed'),
        )
        probes.push(sql`
          select current_user as who, current_setting('role') as role,
            coalesce(current_setting('request.jwt.claims', true), '') as claims`)
      }
      const seen = (await Promise.all(probes)).flat().map((row) => JSON.stringify(row))
      const clean = JSON.stringify({ who: 'patchcord_api', role: 'none', claims: '' })
      assert.deepEqual([...new Set(seen)], [clean])
      const failed = (await Promise.all(work)).filter((each) => each === 'failed').length
      assert.ok(failed > PROBES / 2 && failed < PROBES * 2, `${failed} of ${work.length} failed`)
    } finally {
      await sql.end()
    }
  })

  test('claims and a role set by hand before an entry function change nothing for it', async () => {
    const { alice, bob } = await seed(database, 'by-hand', ['alice', 'bob'])
    const sql = connect(database.apiTarget, { max: 1, applicationName: 'test-by-hand' })
    try {
      const claims = { ns: bob.namespaceId, agent: bob.agentId, token: bob.tokenId }
      await sql`select set_config('request.jwt.claims', ${JSON.stringify(claims)}, false)`
      await alice(async (scope) => sendMessage({ ...scope, sql }, { to: 'bob', content: 'hi' }))
      const wrong = await sql`select patchcord.peek_inbox(${randomBytes(32).toString('hex')}, 'new', 10) as answer`
      assert.equal(wrong[0]?.answer.outcome, 'token_rejected')
      assert.doesNotMatch(JSON.stringify(wrong), /alice|bob/)
      await sql`set role patchcord_agent`
      await assert.rejects(sql`select patchcord.peek_inbox(${alice.tokenHash}, 'new', 10)`, { code: '42501' })
    } finally {
      await sql.end()
    }
    const inbox = await bob((scope) => fetchInbox(scope, {}))
    assert.deepEqual(
      inbox.new.map((message) => message.from),
      ['alice'],
    )
  })

  test('types that the caller has put into pg_temp never run with the rights of a definer', async () => {
    const { alice, bob } = await seed(database, 'temp-types', ['alice', 'bob'])
    const sql = connect(database.apiTarget, { max: 1, applicationName: 'test-temp-types' })
    try {
      await sql.unsafe(plantTypes(['uuid', 'text', 'jsonb', 'timestamptz', 'float8', 'bytea', 'record']))
      await sql.begin(async (transaction) => {
        await transaction`select patchcord.recent_revocations(10, '{}')`
        await transaction`select patchcord.read_back(10, null)`
        await transaction`select patchcord.enter_agent(${alice.tokenHash}::pg_catalog.text)`
        await transaction`select patchcord.lock_pairs(array[${bob.agentId}::pg_catalog.uuid])`
        await transaction`select * from patchcord.count_turns(array[${bob.agentId}::pg_catalog.uuid],
          ${LIMITS}::pg_catalog.text::pg_catalog.jsonb)`
        await transaction`select patchcord.full_inboxes(array[${bob.agentId}::pg_catalog.uuid], 1)`
        await transaction`select * from patchcord.reach_of(array[${bob.agentId}::pg_catalog.uuid])`
        await transaction.unsafe(insertMessage(alice, bob))
      })
      const [seen] = await sql`select pg_catalog.current_setting('test.ran_as', true) as roles`
      assert.doesNotMatch(seen?.roles ?? '', /postgres|supabase/)
    } finally {
      await sql.end()
    }
  })

  test('a sender cannot be forged: neither its id, nor its namespace, nor the name that a wake shows', async () => {
    const { alice, bob, carol } = await seed(database, 'forge', ['alice', 'bob', 'carol'])
    const insert = (statement: string) => asSql(bob, (sql) => sql.unsafe(statement)).then(() => 'stored', codeOf)
    assert.equal(await insert(insertMessage(bob, carol)), 'stored')
    assert.equal(await insert(insertMessage(alice, carol)), '42501')
    assert.equal(await insert(insertMessage(bob, carol, { from: 'alice' })), '42501')
    assert.equal(await insert(insertMessage(bob, carol, { to: 'alice' })), '42501')
    assert.equal(await insert(insertMessage(bob, carol, { namespace: 'other' })), '42501')
  })

  test('nobody gets at the text of another by hanging a row of its own on the id', async () => {
    const { alice, bob, carol } = await seed(database, 'hang', ['alice', 'bob', 'carol'])
    const { eve } = await seed(database, 'hang-other', ['eve'])
    const { message_id: id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: SECRET }))
    for (const enemy of [carol, eve]) {
      const texts = await asSql(enemy, async (sql) => {
        await sql.unsafe(insertRow(enemy, enemy, id))
        return await sql`select content from patchcord.message_bodies where id = ${id}`
      }).catch(codeOf)
      assert.doesNotMatch(JSON.stringify(texts), new RegExp(SECRET), enemy.agent)
    }
    const own = await asSql(bob, (sql) => sql`select content from patchcord.message_bodies where id = ${id}`)
    assert.equal(own[0]?.content, SECRET)
  })

  test('a thread of others cannot be blocked by one who takes its key', async () => {
    const { alice, bob, eve } = await seed(database, 'squat', ['alice', 'bob', 'eve'])
    const participants = [alice.agentId, bob.agentId].sort().join(',')
    const squat = asSql(eve, async (sql) => {
      await sql`insert into patchcord.threads (namespace_uuid, slug, participants, participants_key)
        values (${eve.namespaceId}, 'deploy', ${[eve.agentId]}::uuid[], md5(${participants}))`
    })
    await assert.rejects(squat, (error: { code?: string }) => error.code === '42501' || error.code === '23514')
  })

  test('pairs are locked with agents of the own namespace only, whatever id is given', async () => {
    const { alice } = await seed(database, 'pair', ['alice', 'bob'])
    const { eve } = await seed(database, 'pair-other', ['eve'])
    const lock = (id: string) =>
      asSql(alice, async (sql) => (await sql`select patchcord.lock_pairs(${[id]}::uuid[])`).count)
    const [foreign, unknown] = await Promise.all([eve.agentId, randomUUID()].map((id) => lock(id).catch(codeOf)))
    assert.deepEqual(foreign, unknown)
  })

  test('the answer about a message of others is the answer about one that does not exist', async () => {
    const { alice, bob, carol } = await seed(database, 'ids', ['alice', 'bob', 'carol'])
    const { eve, mallory } = await seed(database, 'ids-other', ['eve', 'mallory'])
    const send = async (from: SeededAgent, to: string) =>
      (await from((scope) => sendMessage(scope, { to, content: SECRET }))).message_id
    const foreign = await send(eve, 'mallory')
    const between = await send(alice, 'bob')
    await bob((scope) => fetchInbox(scope, {}))
    await mallory((scope) => fetchInbox(scope, {}))
    const unknown = await askAll(carol, randomUUID())
    assert.deepEqual(await askAll(carol, foreign), unknown)
    assert.deepEqual(await askAll(carol, between), unknown)
    assert.doesNotMatch(JSON.stringify(unknown), new RegExp(SECRET))
    const [row] = await database.admin`select state from patchcord.deliveries where message_id = ${between}`
    assert.equal(row?.state, 'open')
  })

  test('an idempotency key is of its agent: the same key of another is free, and no answer of another comes back', async () => {
    const { alice, bob } = await seed(database, 'key', ['alice', 'bob', 'carol'])
    const send = (from: SeededAgent) =>
      from((scope) => sendMessage(scope, { to: 'carol', content: 'same', idempotency_key: 'k' }))
    const [mine, theirs] = [await send(alice), await send(bob)]
    assert.notEqual(mine.message_id, theirs.message_id)
    assert.equal(theirs.replayed, false)
    const taken = asSql(
      bob,
      (sql) => sql`
      insert into patchcord.idempotency_keys (agent_uuid, key, body_hash) values (${alice.agentId}, 'poison', 'x')`,
    )
    await assert.rejects(taken, { code: '42501' })
  })

  test('SQL in a text, a name, a thread or a key is text, or refused by its pattern', async () => {
    const { alice, bob } = await seed(database, 'inject', ['alice', 'bob'])
    const evil = `'; drop table patchcord.tokens; -- \\' $$ \${x} %s "} {"a":1} \u0001`
    const sent = await alice((scope) =>
      sendMessage(scope, { to: 'bob', content: evil, idempotency_key: evil, kind: 'report' }),
    )
    assert.equal((await bob((scope) => fetchInbox(scope, {}))).new[0]?.content, evil)
    await assert.rejects(
      alice((scope) => sendMessage(scope, { to: evil, content: 'x' })),
      { code: 'invalid' },
    )
    assert.deepEqual((await bob((scope) => recallMessages(scope, { from: evil }))).messages, [])
    await assert.rejects(
      bob((scope) => getMessageStatus(scope, { message_id: evil })),
      { code: '22P02' },
    )
    const thread = alice((scope) => sendMessage(scope, { to: 'bob', content: 'x', kind: 'report', thread: evil }))
    await assert.rejects(thread, { code: '23514' })
    assert.equal(
      (await alice((scope) => getMessageStatus(scope, { message_id: sent.message_id }))).recipients.length,
      1,
    )
  })

  test('a sender cannot move or date what its recipient has, and takes back only what is new', async () => {
    const { alice, bob } = await seed(database, 'sender', ['alice', 'bob'])
    const { message_id: id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: SECRET }))
    const set = (assignment: string) =>
      asSql(alice, async (sql) => {
        return (await sql.unsafe(`update patchcord.deliveries set ${assignment} where message_id = '${id}'`)).count
      }).catch(codeOf)
    for (const state of ['open', 'done', 'answered', 'deferred', 'new']) {
      assert.equal(await set(`state = '${state}'`), '42501', state)
    }
    assert.equal(await set('fetched_at = now()'), '42501')
    assert.equal(await set(`state = 'unsent', fetched_at = now()`), '42501')
    assert.equal(await set(`state = 'unsent', settled_at = now()`), 1)
    await bob((scope) => fetchInbox(scope, {}))
    assert.equal(await set(`state = 'unsent'`), 0)
  })

  test('a message that was taken back stays so, and its text is in no answer to its recipient', async () => {
    const { alice, bob } = await seed(database, 'unsent', ['alice', 'bob'])
    const { message_id: id } = await alice((scope) => sendMessage(scope, { to: 'bob', content: SECRET, thread: 't' }))
    await alice((scope) => unsendMessage(scope, { message_id: id }))
    assert.deepEqual(await askAll(bob, id), await askAll(bob, randomUUID()))
    await bob((scope) => renewLease(scope, { session: 's', client: 'c', machine: 'm', announced: [id] }))
    for (const state of ['new', 'open', 'unsent', 'done']) {
      const [row] = await database.api`select patchcord.peek_inbox(${bob.tokenHash}, ${state}, 10) as answer`
      assert.doesNotMatch(JSON.stringify(row), new RegExp(SECRET), state)
    }
    for (const state of ['new', 'open', 'done']) {
      const { count } = await asSql(
        bob,
        (sql) => sql`
        update patchcord.deliveries set state = ${state} where message_id = ${id}`,
      )
      assert.equal(count, 0)
    }
    const shown = await bob((scope) => fetchInbox(scope, { done: [id] }))
    assert.doesNotMatch(JSON.stringify(shown), new RegExp(SECRET))
    const peeked = await bob((scope) => peekInbox(scope, { status: 'new', limit: 10, count_only: '0' }))
    assert.equal(peeked.pending_count, 0)
  })

  test('every entry function that takes a token is attacked below', async () => {
    const rows = await database.admin`
      select proname from pg_catalog.pg_proc where pronamespace = 'patchcord'::regnamespace
        and has_function_privilege('patchcord_api', oid, 'execute') and proargnames && array['p_hash', 'p_hashes', 'p_rows']`
    assert.deepEqual(rows.map((row) => row.proname).sort(), Object.keys(ENTRIES).sort())
  })

  test('a token that is unknown, revoked, expired or of a deleted agent enters nowhere and leaves no trace', async () => {
    const names = ['revoked', 'expired', 'gone', 'live'] as const
    const { revoked, expired, gone, live } = await seed(database, 'tokens', names)
    await live((scope) => sendMessage(scope, { to: 'revoked, expired, gone', content: SECRET }))
    await revokeToken(database.admin, revoked.tokenId)
    await database.admin`update patchcord.tokens set expires_at = clock_timestamp() where id = ${expired.tokenId}`
    await database.admin`update patchcord.agents set deleted_at = clock_timestamp() where id = ${gone.agentId}`
    const before = await snapshot(live.namespaceId)
    const expectations = [
      [randomBytes(32).toString('hex'), 'token_rejected'],
      [revoked.tokenHash, 'token_revoked'],
      [expired.tokenHash, 'token_rejected'],
      [gone.tokenHash, 'agent_gone'],
    ] as const
    for (const [hash, outcome] of expectations) {
      for (const [name, answer] of await callEntries(database.api, hash, 'live')) {
        assert.equal(answer.outcome, outcome, name)
        assert.doesNotMatch(JSON.stringify(answer), new RegExp(SECRET), name)
      }
    }
    assert.deepEqual(await snapshot(live.namespaceId), before)
    const [live2] = await callEntries(database.api, live.tokenHash, 'live')
    assert.equal(live2?.[1].outcome, 'ok')
  })

  /** What a refused token must not have moved; last use is what the presence of its agent is read from. */
  const snapshot = async (namespaceId: string) => {
    const [row] = await database.admin`
      select (select count(*) from patchcord.message_bodies)::int as bodies,
        (select count(*) from patchcord.leases)::int as leases, (select count(*) from patchcord.presence)::int as presence,
        (select string_agg(d.state || d.message_id, ',' order by d.message_id, d.to_agent_uuid) from patchcord.deliveries d)
          as states,
        (
          select jsonb_agg(t.last_used_at order by t.id) from patchcord.tokens t
          where t.namespace_uuid = ${namespaceId} and (t.revoked_at is not null or t.expires_at is not null)
        ) as uses`
    return { ...row }
  }
})

/** What the domain says about one id, through everything that takes an id; the id itself is cut out. */
async function askAll(agent: SeededAgent, id: string): Promise<unknown[]> {
  const asks: Promise<unknown>[] = [
    agent((scope) => settleMessages(scope, { message_ids: [id], state: 'done' })),
    agent((scope) => settleMessages(scope, { message_ids: [id], state: 'deferred' })),
    agent((scope) => unsendMessage(scope, { message_id: id })),
    agent((scope) => replyToMessage(scope, { message_id: id, content: 'x' })),
    agent((scope) => replyToMessage(scope, { message_id: id, resolve: true })),
    agent((scope) => recallMessages(scope, { message_id: id })),
    agent((scope) => getMessageStatus(scope, { message_id: id })),
    agent((scope) => fetchInbox(scope, { done: [id] })).then((inbox) => inbox.settled),
  ]
  const answers = await Promise.all(
    asks.map((ask) =>
      ask.catch((error: PatchcordError) => ({ code: error.code, message: error.message, hint: error.hint })),
    ),
  )
  return JSON.parse(JSON.stringify(answers).replaceAll(id, 'id')) as unknown[]
}

function codeOf(error: { code?: string }): string {
  return error.code ?? 'unknown'
}

/** Domains of pg_temp that write down who checks them. */
function plantTypes(names: string[]): string {
  const domains = names
    .filter((name) => name !== 'record')
    .map((name) => {
      return `create domain pg_temp.${name} as pg_catalog.${name} check (pg_temp.note());`
    })
  return `
    create function pg_temp.note() returns pg_catalog.bool language plpgsql as $$
    begin
      perform pg_catalog.set_config('test.ran_as',
        pg_catalog.concat(pg_catalog.current_setting('test.ran_as', true), ' ', current_user), false);
      return true;
    end $$;
    ${domains.join('\n')}`
}

interface Names {
  from?: string
  to?: string
  namespace?: string
}

/** A body and its row, as one statement of an agent's own making. */
function insertMessage(from: SeededAgent, to: SeededAgent, names: Names = {}): string {
  const id = randomUUID()
  return `insert into patchcord.message_bodies (id, from_namespace_uuid, from_agent_uuid, content)
    values ('${id}', '${from.namespaceId}', '${from.agentId}', 'x'); ${insertRow(from, to, id, names)}`
}

function insertRow(from: SeededAgent, to: SeededAgent, id: string, names: Names = {}): string {
  const { from: fromName = from.agent, to: toName = to.agent, namespace = to.namespace } = names
  return `insert into patchcord.agent_messages (id, from_namespace_uuid, to_namespace_uuid, from_agent_uuid, to_agent_uuid,
      namespace_id, from_agent, to_agent, kind, urgency, wake_at)
    values ('${id}', '${from.namespaceId}', '${to.namespaceId}', '${from.agentId}', '${to.agentId}', '${namespace}',
      '${fromName}', '${toName}', 'message', 'normal', pg_catalog.now())`
}

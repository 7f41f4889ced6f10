import type { Sql } from '../../server/db/connect.ts'

export interface ManyMessages {
  namespaceId: string
  agents: string[]
}

/**
 * A namespace with as many messages as asked for, made in the database, a second apart up to now: of twelve agents, in threads
 * and without, in every state and kind, some to three, with their words noted.
 */
export async function seedMessages(admin: Sql, namespace: string, count: number): Promise<ManyMessages> {
  const agents = Array.from({ length: 12 }, (_, index) => `agent-${String(index + 1).padStart(2, '0')}`)
  const [row] = await admin`insert into patchcord.namespaces (name) values (${namespace}) returning id`
  const namespaceId = row?.id as string
  await admin`
    insert into patchcord.agents (namespace_uuid, name) select ${namespaceId}, unnest(${agents}::text[])`
  await admin`
    insert into patchcord.threads (namespace_uuid, slug, participants, participants_key, created_at, last_message_at)
    select ${namespaceId}, 'thread-' || t, array(
        select a.id from patchcord.agents a where a.namespace_uuid = ${namespaceId} order by a.id),
      'seeded-' || t, clock_timestamp() - make_interval(secs => t * 60), clock_timestamp() - make_interval(secs => t * 60)
    from generate_series(1, 400) t`
  for (let from = 1; from <= count; from += 20_000) {
    await seedRows(admin, namespaceId, namespace, { from, to: Math.min(count, from + 19_999), count })
  }
  await indexAll(admin)
  // As the database does by itself, a little later.
  await admin.unsafe(
    'vacuum analyze patchcord.message_bodies, patchcord.agent_messages, patchcord.deliveries, patchcord.threads, patchcord.message_words',
  )
  return { namespaceId, agents }
}

export async function indexAll(admin: Sql): Promise<void> {
  for (;;) {
    const [row] = await admin`select patchcord.index_words(20000) as count`
    if (row?.count === 0) return
  }
}

async function seedRows(
  admin: Sql,
  namespaceId: string,
  namespace: string,
  { from, to, count }: { from: number; to: number; count: number },
): Promise<void> {
  await admin`
    with agent as (
      select a.id, a.name, row_number() over (order by a.name) - 1 as place from patchcord.agents a
      where a.namespace_uuid = ${namespaceId}
    ), thread as (
      select t.id, t.slug, row_number() over (order by t.created_at) as place from patchcord.threads t
      where t.namespace_uuid = ${namespaceId}
    ), message as (
      select i, (i * 7) % 12 as sender,
        clock_timestamp() - make_interval(secs => ${count}::integer - i) as at
      from generate_series(${from}::integer, ${to}::integer) i
    ), dated as (
      select m.*, encode(substring(int8send((extract(epoch from m.at) * 1000)::bigint) from 3)
        || decode('7000', 'hex') || decode('8000', 'hex') || int8send(m.i)::bytea, 'hex') as raw
      from message m
    ), made as (
      select d.*, left(d.raw, 20)::text || right(d.raw, 12) as hex from dated d
    ), body as (
      insert into patchcord.message_bodies (id, from_namespace_uuid, from_agent_uuid, content, sent_at)
      select m.hex::uuid, ${namespaceId}, a.id,
        format('Step %s of the migration is done: the tests of service%s pass, and deploy %s waits for review. ', m.i, m.i % 97, m.i % 1009)
          || case when m.i % 5000 = 0 then 'needle' else '' end || repeat('Nothing else to say about it here. ', (m.i % 9)::integer),
        m.at
      from made m join agent a on a.place = m.sender
    ), row_of as (
      insert into patchcord.agent_messages (
        id, from_namespace_uuid, to_namespace_uuid, from_agent_uuid, to_agent_uuid, namespace_id, from_agent, to_agent,
        thread_uuid, thread, kind, urgency, sent_at, wake_at
      )
      select m.hex::uuid, ${namespaceId}, ${namespaceId}, f.id, r.id, ${namespace}, f.name, r.name,
        t.id, t.slug, (case m.i % 50 when 0 then 'report' when 1 then 'question' when 2 then 'heads-up' else 'message' end),
        'normal', m.at, m.at
      from made m join agent f on f.place = m.sender
        join generate_series(1, 3) n on n = 1 or m.i % 20 = 0
        join agent r on r.place = (m.sender + n) % 12
        left join thread t on m.i % 3 = 0 and t.place = 1 + m.i % 400
    )
    insert into patchcord.deliveries (
      message_id, to_agent_uuid, from_agent_uuid, state, wake_at, notified_at, fetched_at, answered_at, done_at, settled_at
    )
    select m.hex::uuid, r.id, f.id, s.state, m.at, m.at + interval '20 ms',
      case when s.state not in ('new', 'unsent', 'expired') then m.at + interval '2 s' end,
      case when s.state = 'answered' then m.at + make_interval(secs => 10 + m.i % 60) end,
      case when s.state = 'done' then m.at + interval '9 s' end,
      case when s.state not in ('new', 'open', 'deferred') then m.at + interval '70 s' end
    from made m join agent f on f.place = m.sender
      join generate_series(1, 3) n on n = 1 or m.i % 20 = 0
      join agent r on r.place = (m.sender + n) % 12
      cross join lateral (select case
        when m.i % 997 = 0 then 'expired' when m.i % 991 = 0 then 'unsent' when m.i % 101 = 0 then 'resolved'
        when m.i % 89 = 0 then 'new' when m.i % 83 = 0 then 'open' when m.i % 79 = 0 then 'deferred'
        when m.i % 2 = 0 then 'answered' else 'done' end as state) s`
}

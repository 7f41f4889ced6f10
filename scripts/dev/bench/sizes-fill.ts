import type { Sql } from '../../../server/db/connect.ts'

/** Agents of each namespace. The last one has written little, long ago. */
export const AGENTS = 20
/** Of the measured namespace: agents that send, fetch and recall. The first half of them has messages open and deferred. */
export const WORKERS = 10
export const MAIN = 'main'
const SIDES = ['side-1', 'side-2', 'side-3']
/** A thread of which every size has as many messages; and one that grows with it. */
export const TOPIC = 'topic-1'
export const GENERAL = 'general'
const BATCH = 100_000
const TABLES = ['message_bodies', 'agent_messages', 'deliveries', 'threads']
  .map((table) => `patchcord.${table}`)
  .join(', ')

/**
 * So many messages in a migrated database whose agents exist (`agent-01` to `agent-20` of each namespace), a second apart up to
 * now: 85 of 100 in one namespace, the rest in three beside it; most to one agent, some to three or to everybody; a third in
 * threads. All are settled but for the latest few of each agent, as many at every size. As superuser: foreign keys are not
 * checked and triggers do not fire, since what is written fits. Texts are not searchable: no row in `message_words`.
 */
export async function fill(superuser: Sql, count: number, log: (line: string) => void): Promise<void> {
  const startedAt = performance.now()
  await superuser.begin(async (sql) => {
    await sql`set local synchronous_commit = off`
    await fillThreads(sql as unknown as Sql, count)
  })
  for (let from = 1; from <= count; from += BATCH) {
    const to = Math.min(count, from + BATCH - 1)
    await superuser.begin(async (sql) => {
      await sql`set local session_replication_role = replica`
      await sql`set local synchronous_commit = off`
      await fillMessages(sql as unknown as Sql, from, to, count)
    })
    if (to % (5 * BATCH) === 0) log(`${to} of ${count} after ${Math.round((performance.now() - startedAt) / 1000)} s`)
  }
  await leaveUnsettled(superuser)
  await superuser.unsafe(`vacuum (freeze, analyze) ${TABLES}`)
  log(`${count} messages took ${Math.round((performance.now() - startedAt) / 1000)} s`)
}

/** The names that `fill` expects in each namespace. */
export function agentNames(): string[] {
  return Array.from({ length: AGENTS }, (_, index) => `agent-${String(index + 1).padStart(2, '0')}`)
}

export function namespaceNames(): string[] {
  return [MAIN, ...SIDES]
}

/** How many topics there are, so that each has about as many messages at every size. */
function topicsOf(count: number): number {
  return Math.max(4, Math.round(count / 200))
}

async function fillThreads(sql: Sql, count: number): Promise<void> {
  await sql`
    insert into patchcord.threads (namespace_uuid, slug, participants, participants_key, created_at, last_message_at)
    select n.id, t.slug, p.ids, md5(array_to_string(p.ids, ',')),
      clock_timestamp() - make_interval(secs => ${count}), clock_timestamp()
    from patchcord.namespaces n
      cross join lateral (
        select array(select a.id from patchcord.agents a where a.namespace_uuid = n.id order by a.id) as ids) p
      cross join (
        select ${GENERAL} as slug union all select 'topic-' || i from generate_series(1, ${topicsOf(count)}::integer) i) t`
}

async function fillMessages(sql: Sql, from: number, to: number, count: number): Promise<void> {
  await sql`
    with agent as materialized (
      select a.id, a.name, n.id as namespace_id, n.name as namespace,
        array_position(${namespaceNames()}::text[], n.name) - 1 as home,
        row_number() over (partition by n.id order by a.name) - 1 as place
      from patchcord.agents a join patchcord.namespaces n on n.id = a.namespace_uuid
    ), seed as materialized (
      select i, abs(hashint8(i)::bigint) as h, greatest(0, i % 20 - 16) as home,
        clock_timestamp() - make_interval(secs => ${count}::integer - i) as at
      from generate_series(${from}::integer, ${to}::integer) i
    ), message as materialized (
      select s.*, overlay(encode(int8send((extract(epoch from s.at) * 1000)::bigint), 'hex') placing '' from 1 for 4)
          || '7000' || '8000' || lpad(to_hex(s.i), 12, '0') as hex,
        -- The last agent of each namespace has written forty messages, whatever the size.
        case when s.i % greatest(1, ${count}::integer / 40) = 0 then ${AGENTS - 1} else s.h % ${AGENTS - 1} end as sender,
        case when s.h / 8000 % 50 = 0 then ${AGENTS - 1} when s.h / 400 % 20 = 0 then 3 else 1 end as recipients,
        case when s.h / 16 % 3 <> 0 then null when s.h / 48 % 5 = 0 then ${GENERAL}
          else 'topic-' || 1 + s.h / 240 % ${topicsOf(count)} end as slug
      from seed s
    ), row_of as materialized (
      select m.hex::uuid as id, m.i, m.h, m.at, m.slug, f.namespace_id, f.namespace, f.id as from_id, f.name as from_name,
        r.id as to_id, r.name as to_name, n = 1 as is_first
      from message m
        join agent f on f.home = m.home and f.place = m.sender
        cross join lateral generate_series(1, m.recipients) n
        join agent r on r.home = m.home and r.place = (m.sender + 1 + (m.h / 20 + n) % ${AGENTS - 1}) % ${AGENTS}
    ), body as (
      insert into patchcord.message_bodies (id, from_namespace_uuid, from_agent_uuid, content, sent_at)
      select id, namespace_id, from_id,
        format('Step %s of the migration is done: the tests of service %s pass, and deploy %s waits. ', i, i % 97, i % 1009)
          || repeat('Nothing else to say about it here. ', (h % 9)::integer), at
      from row_of where is_first order by id
    ), told as (
      insert into patchcord.agent_messages (
        id, from_namespace_uuid, to_namespace_uuid, from_agent_uuid, to_agent_uuid, namespace_id, from_agent, to_agent,
        thread_uuid, thread, kind, urgency, sent_at, wake_at
      )
      select r.id, r.namespace_id, r.namespace_id, r.from_id, r.to_id, r.namespace, r.from_name, r.to_name, t.id, r.slug,
        case r.i % 50 when 0 then 'report' when 1 then 'question' when 2 then 'heads-up' else 'message' end,
        'normal', r.at, r.at
      from row_of r left join patchcord.threads t on t.namespace_uuid = r.namespace_id and t.slug = r.slug
      order by r.id
    )
    insert into patchcord.deliveries (
      message_id, to_agent_uuid, from_agent_uuid, state, wake_at, notified_at, fetched_at, answered_at, done_at, settled_at
    )
    select r.id, r.to_id, r.from_id, s.state, r.at, r.at + interval '20 ms',
      case when s.state not in ('unsent', 'expired') then r.at + interval '2 s' end,
      case when s.state = 'answered' then r.at + interval '40 s' end,
      case when s.state = 'done' then r.at + interval '9 s' end,
      r.at + interval '70 s'
    from row_of r cross join lateral (
      select case when r.i % 997 = 0 then 'expired' when r.i % 991 = 0 then 'unsent' when r.i % 101 = 0 then 'resolved'
        when r.i % 2 = 0 then 'answered' else 'done' end as state
    ) s
    order by r.id`
}

/** Half of the workers and every other agent have three messages open and three deferred; who is no worker, ten new ones. */
async function leaveUnsettled(superuser: Sql): Promise<void> {
  await superuser`
    with latest as (
      select r.id, a.id as to_id, row_number() over (partition by a.id order by r.id desc) - 1 as place, a.name
      from patchcord.agents a cross join lateral (
        select m.id from patchcord.agent_messages m where m.to_agent_uuid = a.id order by m.sent_at desc limit 16
      ) r
    ), state as (
      select l.*, case when l.place < 3 then 'open' when l.place < 6 then 'deferred'
        when substr(l.name, 7)::integer > ${WORKERS} then 'new' end as state
      from latest l where substr(l.name, 7)::integer not between ${WORKERS / 2 + 1} and ${WORKERS}
    )
    update patchcord.deliveries d set state = s.state, answered_at = null, done_at = null, settled_at = null,
      deferred_at = case when s.state = 'deferred' then clock_timestamp() end,
      fetched_at = case when s.state <> 'new' then clock_timestamp() - interval '1 hour' end
    from state s where s.state is not null and d.message_id = s.id and d.to_agent_uuid = s.to_id`
}

import type { TransactionSql } from '../db/connect.ts'
import { asMember, type PersonScope } from '../db/scope.ts'
import { type ListedMessage, readMessages } from './message-list.ts'

/** Times are those of the latest so many deliveries. */
const DELIVERIES_MAX = 2_000
const EVENTS_MAX = 20
const PREVIEW_CHARACTERS = 160

export const ACTIVITY_HOURS = { '24h': 24, '7d': 168 } as const
export type ActivityRange = keyof typeof ACTIVITY_HOURS

export interface StepTime {
  step: 'notified' | 'fetched' | 'answered'
  /** Deliveries that came to this step. */
  count: number
  /** Milliseconds after it was accepted; null: none came to it. */
  median_ms: number | null
  p95_ms: number | null
  /** How many of them took less than each of UNDER_MS. */
  under: number[]
}

/** A tenth of a second to an hour. */
export const UNDER_MS = [100, 1_000, 10_000, 60_000, 600_000, 3_600_000] as const

export interface ActivityEvent {
  event: 'expired' | 'unsent' | 'held' | 'waiting'
  at: string
  /** The agent that it was for. */
  agent: string
  message: ListedMessage
}

export interface Activity {
  /** One for each hour, oldest first, also without messages; the last is under way. */
  hours: { hour: string; messages: number }[]
  /** Deliveries that the times are of. */
  deliveries: number
  times: StepTime[]
  events: ActivityEvent[]
  paused_at: string | null
}

/** What went through a namespace in the last 24 hours or 7 days, how fast, and what did not get through. */
export async function getActivity(
  scope: PersonScope,
  input: { namespace: string; range: ActivityRange },
): Promise<Activity> {
  return await asMember(scope, input.namespace, async (sql, me) => {
    const { deliveries, times } = await readTimes(sql)
    const events = await readEvents(sql)
    return {
      hours: await readHours(sql, ACTIVITY_HOURS[input.range]),
      deliveries,
      times,
      events,
      paused_at: me.pausedAt,
    }
  })
}

async function readHours(sql: TransactionSql, hours: number): Promise<Activity['hours']> {
  // An hour at a time: each is a stretch of the index, while over all of them Postgres may rather read the whole table.
  const rows = await sql`
    select to_jsonb(h.hour) as hour, c.count as messages
    from generate_series(
        date_trunc('hour', clock_timestamp(), 'UTC') - make_interval(hours => ${hours - 1}::integer),
        clock_timestamp(), interval '1 hour'
      ) as h (hour)
      cross join lateral (
        select count(*) as count from patchcord.message_bodies b
        where b.from_namespace_uuid = (select patchcord.claim_namespace())
          and b.sent_at >= h.hour and b.sent_at < h.hour + interval '1 hour'
      ) c
    order by h.hour`
  return [...rows] as unknown as Activity['hours']
}

async function readTimes(sql: TransactionSql): Promise<Pick<Activity, 'deliveries' | 'times'>> {
  const [row] = await sql`select patchcord.measure_deliveries(${DELIVERIES_MAX}) as answer`
  return row?.answer as Pick<Activity, 'deliveries' | 'times'>
}

/** Under row-level security each index of states serves, agent by agent: a namespace of 100,000 messages has few such. */
async function readEvents(sql: TransactionSql): Promise<ActivityEvent[]> {
  const rows = await sql`
    with agent as materialized (
      select a.id, a.name from patchcord.agents a where a.namespace_uuid = (select patchcord.claim_namespace())
    ), event as (
      select s.state as event, d.settled_at as at, d.message_id, a.name as agent
      from agent a cross join (values ('expired'), ('unsent')) as s (state) cross join lateral (
        select x.message_id, x.settled_at from patchcord.deliveries x
        where x.to_agent_uuid = a.id and x.state = s.state and x.state not in ('new', 'open', 'deferred')
        order by x.message_id desc limit ${EVENTS_MAX}
      ) d
      union all
      select case when d.held and d.wake_at > clock_timestamp() then 'held' else 'waiting' end, d.wake_at, d.message_id, a.name
      from agent a cross join lateral (
        select x.message_id, x.wake_at, x.held from patchcord.deliveries x
        where x.to_agent_uuid = a.id and x.state = 'new' and x.notified_at is null and x.wake_at is not null
          and (x.held and x.wake_at > clock_timestamp() or x.wake_at < clock_timestamp() - interval '2 minutes')
        order by x.message_id desc limit ${EVENTS_MAX}
      ) d
    )
    select e.event, to_jsonb(e.at) as at, e.message_id, e.agent from event e order by e.at desc, e.message_id limit ${EVENTS_MAX}`
  const messages = await readMessages(
    sql,
    [...new Set(rows.map((row) => row.message_id as string))],
    PREVIEW_CHARACTERS,
  )
  const messageOf = new Map(messages.map((message) => [message.id, message]))
  return rows.flatMap(({ event, at, agent, message_id }) => {
    const message = messageOf.get(message_id)
    return message ? [{ event, at, agent, message }] : []
  })
}

import { asMember, type PersonScope } from '../db/scope.ts'
import { type ListedMessage, readMessages } from './message-list.ts'

/** Times are those of the latest so many deliveries. */
const DELIVERIES_MAX = 5_000
const EVENTS_MAX = 15

export const ACTIVITY_HOURS = { '24h': 24, '7d': 168 } as const
export type ActivityRange = keyof typeof ACTIVITY_HOURS

export interface StepTime {
  step: 'notified' | 'fetched' | 'answered'
  /** Deliveries that came to this step. */
  count: number
  /** Milliseconds after it was accepted; null: none came to it. */
  median_ms: number | null
  p95_ms: number | null
  /** How many took less than each of BUCKETS_MS, and more than the one before; the last: longer. */
  buckets: number[]
}

/** Ends of the bars of a distribution: a tenth of a second to a day. */
export const BUCKETS_MS = [100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000] as const

export interface ActivityEvent {
  event: 'expired' | 'unsent' | 'held' | 'waiting'
  at: string
  /** The agent that it was for. */
  agent: string
  message: ListedMessage
}

export interface Activity {
  now: string
  /** One for each hour, oldest first, also without messages; the last is under way. */
  hours: { hour: string; messages: number }[]
  /** Deliveries that the times are of. */
  deliveries: number
  times: StepTime[]
  events: ActivityEvent[]
}

/** What went through a namespace in the last 24 hours or 7 days, how fast, and what did not get through. */
export async function getActivity(
  scope: PersonScope,
  input: { namespace: string; range: ActivityRange },
): Promise<Activity> {
  return await asMember(scope, input.namespace, async (sql) => {
    const hours = ACTIVITY_HOURS[input.range]
    const [row] = await sql`
      select to_jsonb(clock_timestamp()) as now, (
        select jsonb_agg(jsonb_build_object('hour', h.hour, 'messages', coalesce(c.count, 0)) order by h.hour)
        from generate_series(
            date_trunc('hour', clock_timestamp(), 'UTC') - make_interval(hours => ${hours - 1}::integer),
            clock_timestamp(), interval '1 hour'
          ) as h (hour)
          left join (
            select date_trunc('hour', b.sent_at, 'UTC') as hour, count(*) as count from patchcord.message_bodies b
            where b.from_namespace_uuid = (select patchcord.claim_namespace())
              and b.sent_at >= date_trunc('hour', clock_timestamp(), 'UTC') - make_interval(hours => ${hours - 1}::integer)
            group by 1
          ) c on c.hour = h.hour
      ) as hours`
    const [times] = await sql`
      with recent as materialized (
        select b.id, b.sent_at from patchcord.message_bodies b
        where b.from_namespace_uuid = (select patchcord.claim_namespace())
        order by b.sent_at desc, b.id desc limit ${DELIVERIES_MAX}
      ), delivery as materialized (
        select extract(epoch from d.notified_at - b.sent_at)::float8 * 1000 as notified,
          extract(epoch from d.fetched_at - b.sent_at)::float8 * 1000 as fetched,
          extract(epoch from d.answered_at - b.sent_at)::float8 * 1000 as answered
        from recent b join patchcord.deliveries d on d.message_id = b.id
        order by b.sent_at desc limit ${DELIVERIES_MAX}
      )
      select (select count(*) from delivery) as deliveries, jsonb_agg(s order by s.place) as times
      from (
        select v.place, v.step, count(v.ms) as count,
          percentile_cont(0.5) within group (order by v.ms) as median_ms,
          percentile_cont(0.95) within group (order by v.ms) as p95_ms,
          array_agg(width_bucket(v.ms, ${BUCKETS_MS.join(',')}::text::float8[])) filter (where v.ms is not null) as at
        from delivery d cross join lateral (
          values (1, 'notified', d.notified), (2, 'fetched', d.fetched), (3, 'answered', d.answered)
        ) as v (place, step, ms)
        group by v.place, v.step
      ) s`
    const events = await sql`${''}`
    return { row, times, events } as never
  })
}

create function patchcord.measure_deliveries(p_max integer) returns jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ns uuid := patchcord.check_member();
begin
  -- Definer: a policy that is asked for each of thousands of rows takes longer than they do. Only numbers come out.
  return (
    with recent as materialized (
      select b.id, b.sent_at from patchcord.message_bodies b
      where b.from_namespace_uuid = v_ns
      order by b.sent_at desc, b.id desc limit p_max
    ), delivery as materialized (
      select extract(epoch from d.notified_at - b.sent_at)::float8 * 1000 as notified,
        extract(epoch from d.fetched_at - b.sent_at)::float8 * 1000 as fetched,
        extract(epoch from d.answered_at - b.sent_at)::float8 * 1000 as answered
      from recent b join patchcord.deliveries d on d.message_id = b.id
      -- A note to oneself goes nowhere.
      where d.to_agent_uuid <> d.from_agent_uuid
      order by b.sent_at desc, b.id desc limit p_max
    )
    select jsonb_build_object(
      'deliveries', (select count(*) from delivery), 'times', coalesce(jsonb_agg(to_jsonb(s) - 'place' order by s.place), '[]'))
    from (
      select v.place, v.step, count(v.ms) as count,
        percentile_cont(0.5) within group (order by v.ms) as median_ms,
        percentile_cont(0.95) within group (order by v.ms) as p95_ms,
        jsonb_build_array(
          count(*) filter (where v.ms < 100),
          count(*) filter (where v.ms < 1000),
          count(*) filter (where v.ms < 10000),
          count(*) filter (where v.ms < 60000),
          count(*) filter (where v.ms < 600000),
          count(*) filter (where v.ms < 3600000)
        ) as under
      from delivery d cross join lateral (
        values (1, 'notified', d.notified), (2, 'fetched', d.fetched), (3, 'answered', d.answered)
      ) as v (place, step, ms)
      group by v.place, v.step
    ) s
  );
end
$$;
comment on function patchcord.measure_deliveries(integer) is
  'How long after they were accepted the latest p_max deliveries of the caller''s namespace were notified, fetched and answered: median, 95th percentile, and how many took less than 0.1, 1, 10 s, 1, 10 min, 1 h.';
revoke execute on function patchcord.measure_deliveries(integer) from public;
grant execute on function patchcord.measure_deliveries(integer) to patchcord_person;

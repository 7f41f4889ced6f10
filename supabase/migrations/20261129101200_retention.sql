create index deliveries_settled on patchcord.deliveries (settled_at) where settled_at is not null;
create index idempotency_keys_created on patchcord.idempotency_keys (created_at);

create function patchcord.purge(p_days integer, p_max integer) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
  -- Whoever calls this can delete nothing of today.
  v_before timestamptz := v_now - make_interval(days => greatest(p_days, 1));
  v_threads uuid[];
  v_count integer;
  v_rows integer;
  v_counts jsonb := '{}';
begin
  -- Whatever another transaction holds is left for the next time: nobody waits for this, and it waits for nobody.
  with old as (
    select d.message_id from patchcord.deliveries d
    where d.settled_at < v_before and d.state not in ('new', 'open', 'deferred')
      and not exists (
        select from patchcord.deliveries o
        where o.message_id = d.message_id
          and (o.state in ('new', 'open', 'deferred') or coalesce(o.settled_at >= v_before, true))
      )
    order by d.settled_at limit p_max
  ), locked as (
    select d.message_id, d.to_agent_uuid from patchcord.deliveries d
    where d.message_id in (select message_id from old)
      and d.settled_at < v_before and d.state not in ('new', 'open', 'deferred')
    order by d.message_id, d.to_agent_uuid
    for update skip locked
  ), whole as (
    select l.message_id, count(*) as rows from locked l group by l.message_id
    having count(*) = (select count(*) from patchcord.deliveries d where d.message_id = l.message_id)
  ), gone as (
    delete from patchcord.message_bodies b using whole w where b.id = w.message_id returning w.rows
  )
  -- A message to many is one, and a batch is full by its rows: whoever asks whether there is more has to know both.
  select count(*), coalesce(sum(g.rows), 0) from gone g into v_count, v_rows;
  v_counts := v_counts || jsonb_build_object('messages', v_count, 'deliveries', v_rows);

  delete from patchcord.idempotency_keys k using (
    select o.agent_uuid, o.key from patchcord.idempotency_keys o
    where o.created_at < v_now - interval '24 hours'
    order by o.created_at limit p_max
    for update skip locked
  ) old
  where k.agent_uuid = old.agent_uuid and k.key = old.key;
  get diagnostics v_count = row_count;
  v_counts := v_counts || jsonb_build_object('keys', v_count);

  delete from patchcord.leases l using (
    -- One that was given back is kept for as long as a renewal from before can be on its way.
    select o.agent_uuid, o.session from patchcord.leases o
    where o.expires_at < v_now - interval '10 minutes'
    order by o.expires_at limit p_max
    for update skip locked
  ) old
  where l.agent_uuid = old.agent_uuid and l.session = old.session;
  get diagnostics v_count = row_count;
  v_counts := v_counts || jsonb_build_object('leases', v_count);

  delete from patchcord.security_log s where s.id in (
    select o.id from patchcord.security_log o
    where o.logged_at < v_now - interval '1 year'
    order by o.logged_at limit p_max
    for update skip locked
  );
  get diagnostics v_count = row_count;
  v_counts := v_counts || jsonb_build_object('events', v_count);

  -- Every thread is looked at, so only in the last of many batches.
  if v_rows < p_max then
    v_threads := array(
      select t.id from patchcord.threads t
      where t.created_at < v_before
        and not exists (select from patchcord.agent_messages m where m.thread_uuid = t.id)
      order by t.id limit p_max
      for update skip locked
    );
    -- Once more, now that nobody can open it again: a message may have come between the look and the lock.
    delete from patchcord.threads t
    where t.id = any (v_threads) and not exists (select from patchcord.agent_messages m where m.thread_uuid = t.id);
    get diagnostics v_count = row_count;
    v_counts := v_counts || jsonb_build_object('threads', v_count);
  end if;
  return v_counts;
end
$$;
comment on function patchcord.purge(integer, integer) is
  'Entry: deletes p_max of each of: deliveries settled p_days ago, with their messages, where every recipient''s are, keys older than 24 hours, expired leases, events of a year ago, threads without messages. How many of each; never what is new, open or deferred.';
revoke execute on function patchcord.purge(integer, integer) from public;
grant execute on function patchcord.purge(integer, integer) to patchcord_api;

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

  v_counts := v_counts || patchcord.purge_people(p_max);

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
  'Entry: deletes p_max of each of: deliveries settled p_days ago, with their messages, where every recipient''s are, keys older than 24 hours, expired leases, events of a year ago, sessions, login links and invites that ended a month ago, threads without messages. How many of each; never what is new, open or deferred.';

create function patchcord.purge_people(p_max integer) returns jsonb
language plpgsql
as $$
declare
  v_before timestamptz := clock_timestamp() - interval '1 month';
  v_count integer;
  v_counts jsonb := '{}';
begin
  delete from patchcord.sessions s where s.id in (
    select o.id from patchcord.sessions o
    where least(o.expires_at, o.ended_at) < v_before
    order by least(o.expires_at, o.ended_at) limit p_max
    for update skip locked
  );
  get diagnostics v_count = row_count;
  v_counts := v_counts || jsonb_build_object('sessions', v_count);

  delete from patchcord.login_links l where l.id in (
    select o.id from patchcord.login_links o
    where o.expires_at < v_before
    order by o.expires_at limit p_max
    for update skip locked
  );
  get diagnostics v_count = row_count;
  v_counts := v_counts || jsonb_build_object('links', v_count);

  delete from patchcord.invites i where i.id in (
    select o.id from patchcord.invites o
    where o.expires_at < v_before
    order by o.expires_at limit p_max
    for update skip locked
  );
  get diagnostics v_count = row_count;
  return v_counts || jsonb_build_object('invites', v_count);
end
$$;
comment on function patchcord.purge_people(integer) is
  'The part of purge that is about people: p_max each of sessions, login links and invites that ended a month ago.';

create function patchcord.purge_deleted(p_max integer) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_namespace uuid;
  v_agents uuid[];
  v_count integer;
begin
  -- One instance at a time has a namespace; whoever enters one that lives never waits for this.
  select n.id from patchcord.namespaces n where n.deleted_at is not null
  order by n.deleted_at limit 1 for update skip locked into v_namespace;
  if v_namespace is null then
    return 0;
  end if;
  v_agents := array(select a.id from patchcord.agents a where a.namespace_uuid = v_namespace);
  -- From the leaves to the root, so that no row takes an unbounded number of others with it.
  delete from patchcord.agent_messages m using (
    select o.id, o.to_agent_uuid from patchcord.agent_messages o where o.to_agent_uuid = any (v_agents)
    limit p_max for update skip locked
  ) old
  where m.id = old.id and m.to_agent_uuid = old.to_agent_uuid;
  get diagnostics v_count = row_count;
  if v_count > 0 then
    return v_count;
  end if;
  delete from patchcord.message_bodies b where b.id in (
    select o.id from patchcord.message_bodies o where o.from_agent_uuid = any (v_agents) limit p_max for update skip locked
  );
  get diagnostics v_count = row_count;
  if v_count > 0 then
    return v_count;
  end if;
  delete from patchcord.threads t where t.id in (
    select o.id from patchcord.threads o where o.namespace_uuid = v_namespace limit p_max for update skip locked
  );
  get diagnostics v_count = row_count;
  if v_count > 0 then
    return v_count;
  end if;
  delete from patchcord.idempotency_keys k using (
    select o.agent_uuid, o.key from patchcord.idempotency_keys o where o.agent_uuid = any (v_agents)
    limit p_max for update skip locked
  ) old
  where k.agent_uuid = old.agent_uuid and k.key = old.key;
  get diagnostics v_count = row_count;
  if v_count > 0 then
    return v_count;
  end if;
  return patchcord.purge_deleted_agents(v_namespace, v_agents, p_max);
end
$$;
comment on function patchcord.purge_deleted(integer) is
  'Entry: deletes at most p_max rows of the namespace that was deleted first, its name last. How many: 0 when nothing is left, or others hold what is.';

create function patchcord.purge_deleted_agents(p_namespace uuid, p_agents uuid[], p_max integer) returns integer
language plpgsql
as $$
declare
  v_count integer;
begin
  delete from patchcord.pairs p using (
    select o.low_uuid, o.high_uuid from patchcord.pairs o where o.low_uuid = any (p_agents)
    limit p_max for update skip locked
  ) old
  where p.low_uuid = old.low_uuid and p.high_uuid = old.high_uuid;
  get diagnostics v_count = row_count;
  if v_count > 0 then
    return v_count;
  end if;
  delete from patchcord.tokens t where t.id in (
    select o.id from patchcord.tokens o where o.namespace_uuid = p_namespace limit p_max for update skip locked
  );
  get diagnostics v_count = row_count;
  if v_count > 0 then
    return v_count;
  end if;
  delete from patchcord.agents a where a.id in (
    select o.id from patchcord.agents o where o.namespace_uuid = p_namespace limit p_max for update skip locked
  );
  get diagnostics v_count = row_count;
  if v_count > 0 then
    return v_count;
  end if;
  delete from patchcord.namespaces n where n.id = p_namespace;
  return 1;
end
$$;
comment on function patchcord.purge_deleted_agents(uuid, uuid[], integer) is
  'The rest of purge_deleted, once no message is left.';

revoke execute on function
  patchcord.purge(integer, integer), patchcord.purge_people(integer), patchcord.purge_deleted(integer),
  patchcord.purge_deleted_agents(uuid, uuid[], integer)
from public;
grant execute on function patchcord.purge(integer, integer), patchcord.purge_deleted(integer) to patchcord_api;

create function patchcord.read_back(p_seconds float8, p_after jsonb) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_since timestamptz := clock_timestamp() - make_interval(secs => p_seconds);
  v_paused uuid[];
begin
  -- The loop budget's wakes come due: whoever of the instances comes first takes each one to Supabase Realtime.
  perform patchcord.release_held();
  perform patchcord.expire_due();
  v_paused := patchcord.paused_agents();
  return (
    with page as (
      select d.message_id, d.to_agent_uuid, d.wake_at from patchcord.deliveries d
      where d.state = 'new' and d.notified_at is null and coalesce(d.expires_at > clock_timestamp(), true)
        and d.wake_at >= coalesce((p_after ->> 'wakeAt')::timestamptz, v_since) and d.wake_at <= clock_timestamp()
        and d.to_agent_uuid <> all (v_paused)
        and (p_after is null or (d.wake_at, d.message_id, d.to_agent_uuid) > (
          (p_after ->> 'wakeAt')::timestamptz, (p_after ->> 'id')::uuid, (p_after ->> 'toAgentId')::uuid
        ))
      order by d.wake_at, d.message_id, d.to_agent_uuid limit 1000
    )
    select coalesce(jsonb_agg(jsonb_build_object(
      'id', m.id, 'toNamespaceId', m.to_namespace_uuid, 'toAgentId', m.to_agent_uuid, 'from', m.from_agent,
      'to', m.to_agent, 'namespace', m.namespace_id, 'kind', m.kind, 'urgency', m.urgency, 'thread', m.thread,
      'wakeAt', p.wake_at, 'isRepeated', p.wake_at > m.wake_at
    ) order by p.wake_at, p.message_id, p.to_agent_uuid), '[]')
    from page p join patchcord.agent_messages m on m.id = p.message_id and m.to_agent_uuid = p.to_agent_uuid
  );
end
$$;
comment on function patchcord.read_back(float8, jsonb) is
  'Entry: wakes by state (new, due within p_seconds, not yet notified), 1,000 at a time, the first of them after the wake p_after. Ids and names only.';

create function patchcord.paused_agents() returns uuid[]
language sql stable
as $$
  select array(
    select a.id from patchcord.namespaces n join patchcord.agents a on a.namespace_uuid = n.id where n.paused_at is not null
  )
$$;
comment on function patchcord.paused_agents() is 'Agents that nobody wakes, since a person has paused their namespace.';

create function patchcord.on_namespace_resumed() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  -- What came due meanwhile is due from now on, so that read-back, which looks at the recent only, finds it.
  update patchcord.deliveries d set wake_at = clock_timestamp()
  from (
    select o.message_id, o.to_agent_uuid from patchcord.deliveries o
      join patchcord.agents a on a.id = o.to_agent_uuid and a.namespace_uuid = new.id
    where o.state = 'new' and o.notified_at is null and o.wake_at <= clock_timestamp()
    order by o.message_id, o.to_agent_uuid
    for update of o skip locked
  ) due
  where d.message_id = due.message_id and d.to_agent_uuid = due.to_agent_uuid;
  return null;
end
$$;
comment on function patchcord.on_namespace_resumed() is 'Wakes again whoever has unread messages when a namespace is no longer paused.';
create trigger on_namespace_resumed after update of paused_at on patchcord.namespaces
  for each row when (old.paused_at is not null and new.paused_at is null) execute function patchcord.on_namespace_resumed();

create function patchcord.release_held() returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  m patchcord.agent_messages;
  v_paused uuid[] := patchcord.paused_agents();
begin
  if not exists (select from patchcord.deliveries d where d.held and d.wake_at <= clock_timestamp()) then
    return;
  end if;
  for m in
    with due as (
      select d.message_id, d.to_agent_uuid from patchcord.deliveries d
      where d.held and d.wake_at <= clock_timestamp() and d.to_agent_uuid <> all (v_paused)
      order by d.message_id, d.to_agent_uuid
      limit 500
      for update skip locked
    ), released as (
      update patchcord.deliveries d set held = false
      from due
      where d.message_id = due.message_id and d.to_agent_uuid = due.to_agent_uuid
      returning d.message_id, d.to_agent_uuid, d.state
    )
    select a.* from released r
      join patchcord.agent_messages a on a.id = r.message_id and a.to_agent_uuid = r.to_agent_uuid
    where r.state = 'new' and (select s.sends_broadcast from patchcord.settings s)
  loop
    perform patchcord.broadcast_wake(m);
  end loop;
end
$$;
comment on function patchcord.release_held() is 'Marks held wakes that are due and sends them through Supabase Realtime where that is on.';

create function patchcord.expire_due() returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_paused uuid[] := patchcord.paused_agents();
begin
  if not exists (
    select from patchcord.deliveries d
    where d.state = 'new' and d.expires_at <= v_now and d.to_agent_uuid <> all (v_paused)
  ) then
    return;
  end if;
  with due as (
    select d.message_id from patchcord.deliveries d
    -- The notice wakes whoever inserts are told to: in a paused namespace it waits. Nobody is shown the message meanwhile.
    where d.state = 'new' and d.expires_at <= v_now and d.to_agent_uuid <> all (v_paused)
    order by d.expires_at limit 500
  ), body as (
    -- One instance at a time has a message.
    select b.id from patchcord.message_bodies b where b.id in (select message_id from due)
    order by b.id
    for no key update skip locked
  ), locked as (
    -- A fetch holds its rows while it takes older ones: waiting for it here could deadlock.
    select d.message_id, d.to_agent_uuid from patchcord.deliveries d join body on body.id = d.message_id
    where d.state = 'new' and d.expires_at <= v_now
    order by d.message_id, d.to_agent_uuid
    for update of d skip locked
  ), whole as (
    -- All recipients of a message at once, so that there is one notice of it; whoever holds a row has fetched it by the next time.
    select l.message_id from locked l group by l.message_id
    having count(*) = (
      select count(*) from patchcord.deliveries d
      where d.message_id = l.message_id and d.state = 'new' and d.expires_at <= v_now
    )
  ), expired as (
    update patchcord.deliveries d set state = 'expired', settled_at = d.expires_at
    from locked l join whole using (message_id)
    where d.message_id = l.message_id and d.to_agent_uuid = l.to_agent_uuid
    returning d.message_id, d.to_agent_uuid
  ), notice as (
    select patchcord.uuid_v7() as id, m.id as about, m.from_agent_uuid, m.from_namespace_uuid, m.thread_uuid, m.thread,
      patchcord.list_names(array_agg(a.name order by a.name))
        || format(' did not fetch message %s in time: it has expired, and nobody is shown it any more.', m.id) as content
    from expired e
      join patchcord.agent_messages m on m.id = e.message_id and m.to_agent_uuid = e.to_agent_uuid
      join patchcord.agents a on a.id = e.to_agent_uuid
      join patchcord.agents s on s.id = m.from_agent_uuid and s.deleted_at is null
    group by m.id, m.from_agent_uuid, m.from_namespace_uuid, m.thread_uuid, m.thread
  ), notice_body as (
    insert into patchcord.message_bodies (id, from_namespace_uuid, from_agent_uuid, content, sent_at)
    select n.id, n.from_namespace_uuid, n.from_agent_uuid, n.content, v_now from notice n
  ), notice_row as (
    insert into patchcord.agent_messages (
      id, from_namespace_uuid, to_namespace_uuid, from_agent_uuid, to_agent_uuid, namespace_id, from_agent, to_agent,
      thread_uuid, thread, kind, urgency, reply_to, sent_at, wake_at
    )
    select n.id, n.from_namespace_uuid, n.from_namespace_uuid, n.from_agent_uuid, n.from_agent_uuid, s.name, 'patchcord',
      a.name, n.thread_uuid, n.thread, 'expired', 'normal', n.about, v_now, v_now
    from notice n
      join patchcord.agents a on a.id = n.from_agent_uuid
      join patchcord.namespaces s on s.id = n.from_namespace_uuid
  )
  insert into patchcord.deliveries (message_id, to_agent_uuid, from_agent_uuid, wake_at)
  select n.id, n.from_agent_uuid, n.from_agent_uuid, v_now from notice n;
end
$$;
comment on function patchcord.expire_due() is
  'Ends messages that were still new at their deadline, and tells each sender in one notice of the server who did not fetch which.';

create function patchcord.list_names(p_names text[]) returns text
language sql immutable
as $$
  select array_to_string(p_names[1:20], ', ')
    || case when cardinality(p_names) > 20 then format(' and %s more', cardinality(p_names) - 20) else '' end
$$;
comment on function patchcord.list_names(text[]) is 'Names in a sentence, the first 20 of them.';

revoke execute on function
  patchcord.read_back(float8, jsonb), patchcord.paused_agents(), patchcord.on_namespace_resumed(), patchcord.release_held(), patchcord.expire_due(), patchcord.list_names(text[])
from public;
grant execute on function patchcord.read_back(float8, jsonb) to patchcord_api;

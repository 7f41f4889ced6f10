create function patchcord.read_back(p_seconds float8, p_after jsonb) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_since timestamptz := clock_timestamp() - make_interval(secs => p_seconds);
begin
  -- The loop budget's wakes come due: whoever of the instances comes first takes each one to Supabase Realtime.
  perform patchcord.release_held();
  return (
    with page as (
      select d.message_id, d.to_agent_uuid, d.wake_at from patchcord.deliveries d
      where d.state = 'new' and d.notified_at is null
        and d.wake_at >= coalesce((p_after ->> 'wakeAt')::timestamptz, v_since) and d.wake_at <= clock_timestamp()
        and (p_after is null or (d.wake_at, d.message_id, d.to_agent_uuid) > (
          (p_after ->> 'wakeAt')::timestamptz, (p_after ->> 'id')::uuid, (p_after ->> 'toAgentId')::uuid
        ))
      order by d.wake_at, d.message_id, d.to_agent_uuid limit 1000
    )
    select coalesce(jsonb_agg(jsonb_build_object(
      'id', m.id, 'toNamespaceId', m.to_namespace_uuid, 'toAgentId', m.to_agent_uuid, 'from', m.from_agent,
      'to', m.to_agent, 'namespace', m.namespace_id, 'kind', m.kind, 'urgency', m.urgency, 'thread', m.thread,
      'wakeAt', p.wake_at
    ) order by p.wake_at, p.message_id, p.to_agent_uuid), '[]')
    from page p join patchcord.agent_messages m on m.id = p.message_id and m.to_agent_uuid = p.to_agent_uuid
  );
end
$$;
comment on function patchcord.read_back(float8, jsonb) is
  'Entry: wakes by state (new, due within p_seconds, not yet notified), 1,000 at a time, the first of them after the wake p_after. Ids and names only.';

create function patchcord.release_held() returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  m patchcord.agent_messages;
begin
  if not exists (select from patchcord.deliveries d where d.held and d.wake_at <= clock_timestamp()) then
    return;
  end if;
  for m in
    with due as (
      select d.message_id, d.to_agent_uuid from patchcord.deliveries d
      where d.held and d.wake_at <= clock_timestamp()
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

revoke execute on function patchcord.read_back(float8, jsonb), patchcord.release_held() from public;
grant execute on function patchcord.read_back(float8, jsonb) to patchcord_api;

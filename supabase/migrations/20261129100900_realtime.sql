create table patchcord.settings (
  is_only boolean primary key default true check (is_only),
  sends_broadcast boolean not null default true
);
comment on table patchcord.settings is
  'One row. sends_broadcast: whether an insert also calls realtime.send(); off where Patchcord''s own endpoint is the only Realtime.';
insert into patchcord.settings default values;
alter table patchcord.settings enable row level security;
alter table patchcord.settings force row level security;
create policy owner_all on patchcord.settings to current_user using (true) with check (true);

create function patchcord.broadcast_wake(m patchcord.agent_messages) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  -- realtime.send() swallows its errors, and its insert passes RLS only for its owner's rights: hence a definer.
  perform realtime.send(
    jsonb_strip_nulls(jsonb_build_object(
      'id', m.id, 'from', m.from_agent, 'to', m.to_agent, 'kind', m.kind, 'urgency', m.urgency, 'thread', m.thread)),
    'wake', 'agent:' || m.to_namespace_uuid || ':' || m.to_agent_uuid, true
  );
end
$$;
comment on function patchcord.broadcast_wake(patchcord.agent_messages) is
  'The wake of one row through Supabase Realtime: names and ids, never text, into the private topic of the recipient.';

create function patchcord.on_message() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.wake_at <= clock_timestamp() and (select s.sends_broadcast from patchcord.settings s) then
    perform patchcord.broadcast_wake(new);
  end if;
  return null;
end
$$;
create trigger on_message after insert on patchcord.agent_messages
  for each row execute function patchcord.on_message();

-- Only policies on realtime.messages are ours to make. A ticket reads its own agent's topic while it lives.
create policy patchcord_ticket_reads_own_topic on realtime.messages for select to patchcord_ticket
  using (
    extension = 'broadcast'
    and topic = realtime.topic()
    and realtime.topic() = 'agent:' || (auth.jwt() ->> 'ns') || ':' || (auth.jwt() ->> 'agent')
    and (auth.jwt() ->> 'exp')::float8 > extract(epoch from now())
  );

do $$
begin
  if exists (select from pg_catalog.pg_publication where pubname = 'supabase_realtime') then
    alter publication supabase_realtime add table patchcord.agent_messages;
  end if;
end
$$;

revoke execute on function patchcord.broadcast_wake(patchcord.agent_messages), patchcord.on_message() from public;

-- For Patchcord's own endpoint: what Supabase Realtime reads from its publication and from realtime.messages.
create function patchcord.recent_wakes(p_agent uuid, p_since_ms float8, p_limit integer) returns jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(jsonb_agg(jsonb_build_object(
    'id', m.id, 'toNamespaceId', m.to_namespace_uuid, 'toAgentId', m.to_agent_uuid, 'from', m.from_agent,
    'to', m.to_agent, 'namespace', m.namespace_id, 'kind', m.kind, 'urgency', m.urgency, 'thread', m.thread
  ) order by m.wake_at, m.id), '[]')
  from (
    select * from patchcord.agent_messages m
    where m.to_agent_uuid = p_agent and m.wake_at <= clock_timestamp()
      -- Supabase keeps broadcasts for three days; a held wake is sent later than its row.
      and m.wake_at >= greatest(to_timestamp(greatest(p_since_ms, 0) / 1000), clock_timestamp() - interval '72 hours')
    order by m.wake_at desc, m.id desc
    limit least(p_limit, 25)
  ) m
$$;
comment on function patchcord.recent_wakes(uuid, float8, integer) is
  'Entry: the newest wakes of an agent since a time, oldest first, for the replay of its private topic. Ids and names only.';

create function patchcord.read_changes(p_agents uuid[], p_seconds float8, p_seen text[], p_limit integer) returns jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  with col as (
    select a.attname::text as name, t.typname::text as type, a.attnum,
      has_column_privilege('patchcord_ticket', a.attrelid, a.attnum, 'select') as shown
    from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = 'patchcord.agent_messages'::regclass and a.attnum > 0 and not a.attisdropped
  ), hidden as (
    select coalesce(array_agg(c.name) filter (where not c.shown), '{}') as names from col c
  ), row_of as (
    select m.* from patchcord.agent_messages m
    where m.to_agent_uuid = any (p_agents) and m.sent_at > clock_timestamp() - make_interval(secs => p_seconds)
      and m.id || ' ' || m.to_agent_uuid <> all (p_seen)
    order by m.sent_at, m.id limit p_limit
  )
  select jsonb_build_object(
    'columns', (
      select coalesce(jsonb_agg(jsonb_build_object('name', c.name, 'type', c.type) order by c.attnum), '[]')
      from col c where c.shown
    ),
    'rows', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'id', m.id, 'toAgentId', m.to_agent_uuid, 'record', to_jsonb(m) - h.names,
        'committedAt', to_char(m.sent_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
      ) order by m.sent_at, m.id), '[]')
      from row_of m cross join hidden h
    )
  )
$$;
comment on function patchcord.read_changes(uuid[], float8, text[], integer) is
  'Entry: rows that the policy ticket_reads_own shows to live tickets of these agents, with the columns that their role may select.';

create function patchcord.check_filters(p_role text, p_filters jsonb) returns jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  f record;
  v_type text;
  v_shown jsonb := '[]';
  v_values jsonb;
begin
  if not exists (select from pg_roles r where r.rolname = p_role) then
    return jsonb_build_object('index', -1, 'state', '42704', 'message', format('role "%s" does not exist', p_role));
  end if;
  for f in
    select e.place - 1 as index, e.filter ->> 'column' as name, e.filter ->> 'op' as op, e.filter -> 'values' as list
    from jsonb_array_elements(p_filters) with ordinality as e (filter, place)
  loop
    select format_type(a.atttypid, a.atttypmod) into v_type from pg_attribute a
    where a.attrelid = 'patchcord.agent_messages'::regclass and a.attnum > 0 and not a.attisdropped and a.attname = f.name
      and has_column_privilege('patchcord_ticket', a.attrelid, a.attnum, 'select');
    if v_type is null then
      return jsonb_build_object('index', f.index, 'state', 'P0001', 'message', 'invalid column for filter ' || f.name);
    end if;
    if jsonb_array_length(f.list) > 100 then
      return jsonb_build_object(
        'index', f.index, 'state', 'P0001', 'message', 'too many values for `in` filter. Maximum 100');
    end if;
    begin
      execute format('select jsonb_agg(to_jsonb(v::%s) #>> ''{}'') from jsonb_array_elements_text($1) v', v_type)
      using f.list into v_values;
    exception when data_exception then
      return jsonb_build_object('index', f.index, 'state', sqlstate, 'message', sqlerrm);
    end;
    v_shown := v_shown || jsonb_build_object('column', f.name, 'op', f.op, 'values', coalesce(v_values, '[]'));
  end loop;
  return jsonb_build_object('filters', v_shown);
end
$$;
comment on function patchcord.check_filters(text, jsonb) is
  'Entry: whether a role exists and may filter agent_messages by these columns and values, which come back as a record shows them.';

revoke execute on function
  patchcord.recent_wakes(uuid, float8, integer), patchcord.read_changes(uuid[], float8, text[], integer),
  patchcord.check_filters(text, jsonb)
from public;
grant execute on function
  patchcord.recent_wakes(uuid, float8, integer), patchcord.read_changes(uuid[], float8, text[], integer),
  patchcord.check_filters(text, jsonb)
to patchcord_api;

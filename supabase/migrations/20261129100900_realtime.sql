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

create table patchcord.security_log (
  id bigint generated always as identity primary key,
  logged_at timestamptz not null default clock_timestamp(),
  event text not null check (event in (
    'token_created', 'token_rotated', 'token_revoked', 'token_restored', 'token_deleted', 'token_banned',
    'agent_created', 'agent_renamed', 'agent_deleted', 'namespace_created', 'namespace_renamed', 'namespace_deleted'
  )),
  namespace text,
  agent text,
  token_uuid uuid,
  detail text,
  by_role text not null default session_user
);
comment on table patchcord.security_log is
  'Who may enter, and what changed about it, by whatever path it changed. Names are as of then; nothing in it is secret.';
create index security_log_logged on patchcord.security_log (logged_at);
alter table patchcord.security_log enable row level security;
alter table patchcord.security_log force row level security;
create policy owner_all on patchcord.security_log to current_user using (true) with check (true);

create function patchcord.log_token(p_event text, p_token uuid, p_detail text) returns void
language sql
as $$
  insert into patchcord.security_log (event, namespace, agent, token_uuid, detail)
  select p_event, n.name, a.name, t.id, p_detail
  from patchcord.tokens t
    left join patchcord.agents a on a.id = t.agent_uuid
    left join patchcord.namespaces n on n.id = t.namespace_uuid
  where t.id = p_token
$$;

create function patchcord.on_token_changed() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' then
    insert into patchcord.security_log (event, token_uuid, detail) values ('token_deleted', old.id, old.label);
  elsif tg_op = 'INSERT' then
    perform patchcord.log_token(case when new.rotated_from is null then 'token_created' else 'token_rotated' end, new.id,
      new.label || coalesce(' in place of ' || new.rotated_from, ''));
  elsif new.revoked_at is not null and old.revoked_at is null then
    perform patchcord.log_token('token_revoked', new.id, new.label);
  elsif new.revoked_at is null and old.revoked_at is not null then
    perform patchcord.log_token('token_restored', new.id, new.label);
  end if;
  return null;
end
$$;
comment on function patchcord.on_token_changed() is 'Notes tokens that are made, rotated, revoked, restored and deleted.';
create trigger on_token_changed after insert or delete or update of revoked_at on patchcord.tokens
  for each row execute function patchcord.on_token_changed();

create function patchcord.on_agent_changed() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_namespace text := (
    select n.name from patchcord.namespaces n where n.id = case when tg_op = 'DELETE' then old.namespace_uuid else new.namespace_uuid end);
begin
  if tg_op = 'INSERT' then
    insert into patchcord.security_log (event, namespace, agent) values ('agent_created', v_namespace, new.name);
  elsif tg_op = 'DELETE' then
    insert into patchcord.security_log (event, namespace, agent) values ('agent_deleted', v_namespace, old.name);
  else
    if new.name <> old.name then
      insert into patchcord.security_log (event, namespace, agent, detail)
      values ('agent_renamed', v_namespace, new.name, 'was ' || old.name);
    end if;
    if new.deleted_at is not null and old.deleted_at is null then
      insert into patchcord.security_log (event, namespace, agent) values ('agent_deleted', v_namespace, new.name);
    end if;
  end if;
  return null;
end
$$;
comment on function patchcord.on_agent_changed() is 'Notes agents that are made, renamed and deleted.';
create trigger on_agent_changed after insert or delete or update of name, deleted_at on patchcord.agents
  for each row execute function patchcord.on_agent_changed();

create function patchcord.on_namespace_changed() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'INSERT' then
    insert into patchcord.security_log (event, namespace) values ('namespace_created', new.name);
  elsif tg_op = 'DELETE' then
    insert into patchcord.security_log (event, namespace) values ('namespace_deleted', old.name);
  elsif new.name <> old.name then
    insert into patchcord.security_log (event, namespace, detail) values ('namespace_renamed', new.name, 'was ' || old.name);
  end if;
  return null;
end
$$;
comment on function patchcord.on_namespace_changed() is 'Notes namespaces that are made, renamed and deleted.';
create trigger on_namespace_changed after insert or delete or update of name on patchcord.namespaces
  for each row execute function patchcord.on_namespace_changed();

revoke execute on function
  patchcord.log_token(text, uuid, text), patchcord.on_token_changed(), patchcord.on_agent_changed(),
  patchcord.on_namespace_changed()
from public;

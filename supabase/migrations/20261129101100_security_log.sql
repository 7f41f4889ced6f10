create table patchcord.security_log (
  id bigint generated always as identity primary key,
  logged_at timestamptz not null default clock_timestamp(),
  event text not null check (event in (
    'token_created', 'token_rotated', 'token_revoked', 'token_restored', 'token_deleted', 'token_banned',
    'agent_created', 'agent_renamed', 'agent_deleted', 'agent_restored',
    'namespace_created', 'namespace_renamed', 'namespace_paused', 'namespace_resumed', 'namespace_deleted',
    'namespace_restored', 'namespace_purged',
    'member_added', 'member_role_changed', 'member_removed', 'invite_created', 'invite_used', 'invite_revoked',
    'person_created', 'person_renamed', 'login_link_created', 'signed_in'
  )),
  namespace text,
  namespace_uuid uuid,
  agent text,
  token_uuid uuid,
  detail text,
  by_role text not null default session_user,
  by_person_uuid uuid default patchcord.claim('person')::uuid,
  by_name text default coalesce(
    patchcord.claim('person_name'), case when session_user <> 'patchcord_api' then 'operator' end)
);
comment on table patchcord.security_log is
  'Who may enter, and what changed about it, by whatever path it changed. Names are as of then; nothing in it is secret.';
comment on column patchcord.security_log.namespace_uuid is 'Members of this namespace read it. No foreign key: it outlives what it is about.';
comment on column patchcord.security_log.by_name is
  'The person, by the name of then; operator: the operator''s command line; null: an agent, or the server itself.';
create index security_log_namespace on patchcord.security_log (namespace_uuid, id desc) where namespace_uuid is not null;
create index security_log_logged on patchcord.security_log (logged_at);
alter table patchcord.security_log enable row level security;
alter table patchcord.security_log force row level security;
create policy owner_all on patchcord.security_log to current_user using (true) with check (true);

create function patchcord.log_token(p_event text, p_token uuid, p_detail text) returns void
language sql
as $$
  insert into patchcord.security_log (event, namespace, namespace_uuid, agent, token_uuid, detail)
  select p_event, n.name, t.namespace_uuid, a.name, t.id, p_detail
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
    -- Of a deleted namespace everything goes: its own event says so.
    insert into patchcord.security_log (event, namespace_uuid, token_uuid, detail)
    select 'token_deleted', old.namespace_uuid, old.id, old.label
    where not exists (select from patchcord.namespaces n where n.id = old.namespace_uuid and n.deleted_at is not null);
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

create function patchcord.log_agent(p_event text, p_agent patchcord.agents, p_detail text) returns void
language sql
as $$
  insert into patchcord.security_log (event, namespace, namespace_uuid, agent, detail)
  select p_event, n.name, p_agent.namespace_uuid, p_agent.name, p_detail
  from (select) x left join patchcord.namespaces n on n.id = p_agent.namespace_uuid
$$;

create function patchcord.on_agent_changed() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_gone boolean := exists (
    select from patchcord.namespaces n
    where n.id = case when tg_op = 'DELETE' then old.namespace_uuid else new.namespace_uuid end and n.deleted_at is not null);
begin
  if tg_op = 'INSERT' then
    perform patchcord.log_agent('agent_created', new, null);
  elsif v_gone then
    -- Its namespace's own event says that all of it went.
    return null;
  elsif tg_op = 'DELETE' then
    perform patchcord.log_agent('agent_deleted', old, null);
  else
    if new.name <> old.name then
      perform patchcord.log_agent('agent_renamed', new, 'was ' || old.name);
    end if;
    if (new.deleted_at is null) <> (old.deleted_at is null) then
      perform patchcord.log_agent(case when new.deleted_at is null then 'agent_restored' else 'agent_deleted' end, new, null);
    end if;
  end if;
  return null;
end
$$;
comment on function patchcord.on_agent_changed() is 'Notes agents that are made, renamed, deleted and restored.';
create trigger on_agent_changed after insert or delete or update of name, deleted_at on patchcord.agents
  for each row execute function patchcord.on_agent_changed();

create function patchcord.on_namespace_changed() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'DELETE' then
    insert into patchcord.security_log (event, namespace, namespace_uuid)
    values (case when old.deleted_at is null then 'namespace_deleted' else 'namespace_purged' end, old.name, old.id);
    return null;
  end if;
  insert into patchcord.security_log (event, namespace, namespace_uuid, detail)
  select e.event, new.name, new.id, e.detail
  from (values
    (1, tg_op = 'INSERT', 'namespace_created', null),
    (2, tg_op = 'UPDATE' and new.name <> old.name, 'namespace_renamed', 'was ' || old.name),
    (3, tg_op = 'UPDATE' and old.paused_at is null and new.paused_at is not null, 'namespace_paused', null),
    (4, tg_op = 'UPDATE' and old.paused_at is not null and new.paused_at is null, 'namespace_resumed', null),
    (5, tg_op = 'UPDATE' and old.deleted_at is null and new.deleted_at is not null, 'namespace_deleted', null),
    (6, tg_op = 'UPDATE' and old.deleted_at is not null and new.deleted_at is null, 'namespace_restored', null)
  ) as e (place, happened, event, detail)
  where e.happened
  order by e.place;
  return null;
end
$$;
comment on function patchcord.on_namespace_changed() is 'Notes namespaces that are made, renamed, paused, resumed, deleted and purged.';
create trigger on_namespace_changed after insert or delete or update of name, paused_at, deleted_at on patchcord.namespaces
  for each row execute function patchcord.on_namespace_changed();

revoke execute on function
  patchcord.log_token(text, uuid, text), patchcord.log_agent(text, patchcord.agents, text), patchcord.on_token_changed(),
  patchcord.on_agent_changed(), patchcord.on_namespace_changed()
from public;

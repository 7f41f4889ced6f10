create table patchcord.agents (
  id uuid primary key default patchcord.uuid_v7(),
  namespace_uuid uuid not null references patchcord.namespaces (id),
  -- The server's own notices are from `patchcord`.
  name text not null check (patchcord.is_name(name) and name <> 'patchcord'),
  created_at timestamptz not null default clock_timestamp(),
  deleted_at timestamptz,
  renamed_at timestamptz,
  unique (namespace_uuid, name),
  unique (id, namespace_uuid)
);
comment on table patchcord.agents is
  'Who sends and receives. Everything keys on the id: a name is for people and not reusable while its row or messages under it exist.';
create index agents_deleted on patchcord.agents (deleted_at) where deleted_at is not null;
create index agents_renamed on patchcord.agents (renamed_at) where renamed_at is not null;

create function patchcord.on_rename() returns trigger
language plpgsql
as $$
begin
  -- Whoever renames, by whatever path: sockets, waits and leases of the old name end by this time stamp.
  new.renamed_at := clock_timestamp();
  return new;
end
$$;
comment on function patchcord.on_rename() is 'Notes when an agent got another name.';
create trigger on_rename before update of name on patchcord.agents
  for each row when (old.name is distinct from new.name) execute function patchcord.on_rename();
revoke execute on function patchcord.on_rename() from public;

create table patchcord.former_names (
  name text not null,
  namespace_uuid uuid not null references patchcord.namespaces (id) on delete cascade,
  agent_uuid uuid references patchcord.agents (id) on delete cascade,
  unique nulls not distinct (name, namespace_uuid, agent_uuid)
);
comment on table patchcord.former_names is
  'Names that an agent had, or (agent_uuid null) its namespace: nobody else gets one while messages carry it.';
create index former_names_namespace on patchcord.former_names (namespace_uuid);
create index former_names_agent on patchcord.former_names (agent_uuid);
alter table patchcord.former_names enable row level security;
alter table patchcord.former_names force row level security;
create policy owner_all on patchcord.former_names to current_user using (true) with check (true);

create function patchcord.on_agent_named() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'UPDATE' then
    insert into patchcord.former_names (name, namespace_uuid, agent_uuid) values (old.name, old.namespace_uuid, old.id)
    on conflict do nothing;
  else
    -- Whoever deletes the namespace meanwhile is waited for, or waits: no agent is left alive in it.
    perform from patchcord.namespaces n where n.id = new.namespace_uuid and n.deleted_at is null for share;
    if not found then
      raise exception using errcode = 'PC404', message = 'The namespace of this agent was deleted.';
    end if;
  end if;
  if exists (
    select from patchcord.former_names f
    where f.name = new.name and f.namespace_uuid = new.namespace_uuid and f.agent_uuid <> new.id
      and (
        exists (select from patchcord.agent_messages m where m.to_agent_uuid = f.agent_uuid and m.to_agent = f.name)
        or exists (select from patchcord.agent_messages m where m.from_agent_uuid = f.agent_uuid and m.from_agent = f.name)
      )
  ) then
    raise unique_violation using constraint = 'former_name', hint = 'Choose another name.',
      message = format('The name %s stands in messages of an agent that had it before.', new.name);
  end if;
  return null;
end
$$;
comment on function patchcord.on_agent_named() is
  'Notes the name that an agent gives up, and refuses one under which messages of another agent are kept.';
-- After the row, not before: by then whoever else was giving this name up or taking it has been waited for, and is seen.
create trigger on_agent_named after insert on patchcord.agents
  for each row execute function patchcord.on_agent_named();
create trigger on_agent_renamed after update of name on patchcord.agents
  for each row when (old.name is distinct from new.name) execute function patchcord.on_agent_named();

create function patchcord.on_namespace_named() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'UPDATE' then
    insert into patchcord.former_names (name, namespace_uuid) values (old.name, old.id) on conflict do nothing;
    -- Its agents have another address from now on: what was opened under the old one ends.
    update patchcord.agents set renamed_at = clock_timestamp() where namespace_uuid = new.id;
  end if;
  if exists (
    select from patchcord.former_names f
      join patchcord.agents a on a.namespace_uuid = f.namespace_uuid
      join patchcord.agent_messages m on m.to_agent_uuid = a.id and m.namespace_id = f.name
    where f.name = new.name and f.agent_uuid is null and f.namespace_uuid <> new.id
  ) then
    raise unique_violation using constraint = 'former_name', hint = 'Choose another name.',
      message = format('The name %s stands in messages of a namespace that had it before.', new.name);
  end if;
  return null;
end
$$;
comment on function patchcord.on_namespace_named() is
  'As on_agent_named, for a namespace.';
create trigger on_namespace_named after insert on patchcord.namespaces
  for each row execute function patchcord.on_namespace_named();
create trigger on_namespace_renamed after update of name on patchcord.namespaces
  for each row when (old.name is distinct from new.name) execute function patchcord.on_namespace_named();

create function patchcord.on_namespace_deleted() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update patchcord.agents set deleted_at = new.deleted_at where namespace_uuid = new.id and deleted_at is null;
  return null;
end
$$;
comment on function patchcord.on_namespace_deleted() is 'Its agents go with it: their tokens, sockets and waits end.';
create trigger on_namespace_deleted after update of deleted_at on patchcord.namespaces
  for each row when (old.deleted_at is null and new.deleted_at is not null) execute function patchcord.on_namespace_deleted();
revoke execute on function
  patchcord.on_agent_named(), patchcord.on_namespace_named(), patchcord.on_namespace_deleted()
from public;

alter table patchcord.agents enable row level security;
alter table patchcord.agents force row level security;
create policy owner_all on patchcord.agents to current_user using (true) with check (true);
create policy agent_reads_namespace on patchcord.agents for select to patchcord_agent
  using (namespace_uuid = (select patchcord.claim_namespace()));
grant select on patchcord.agents to patchcord_agent;

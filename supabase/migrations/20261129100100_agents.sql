create table patchcord.agents (
  id uuid primary key default patchcord.uuid_v7(),
  namespace_uuid uuid not null references patchcord.namespaces (id),
  name text not null check (patchcord.is_name(name)),
  created_at timestamptz not null default clock_timestamp(),
  deleted_at timestamptz,
  renamed_at timestamptz,
  unique (namespace_uuid, name),
  unique (id, namespace_uuid)
);
comment on table patchcord.agents is
  'Who sends and receives. Everything keys on the id: a name is for people and not reusable while its row exists.';
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

alter table patchcord.agents enable row level security;
alter table patchcord.agents force row level security;
create policy owner_all on patchcord.agents to current_user using (true) with check (true);
create policy agent_reads_namespace on patchcord.agents for select to patchcord_agent
  using (namespace_uuid = (select patchcord.claim_namespace()));
grant select on patchcord.agents to patchcord_agent;

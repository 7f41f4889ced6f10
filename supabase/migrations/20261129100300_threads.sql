create table patchcord.threads (
  id uuid primary key default patchcord.uuid_v7(),
  namespace_uuid uuid not null references patchcord.namespaces (id),
  slug text not null check (slug ~ '^[a-z0-9-]{1,64}$'),
  participants uuid[] not null check (cardinality(participants) >= 1),
  -- A digest of the sorted set, because the set itself may be too long for an index row.
  participants_key text not null,
  created_at timestamptz not null default clock_timestamp(),
  last_message_at timestamptz not null default clock_timestamp(),
  resolved_at timestamptz,
  resolved_by_uuid uuid references patchcord.agents (id),
  unique (namespace_uuid, participants_key, slug)
);
comment on table patchcord.threads is
  'A slug belongs to the set of its participants: the same slug among other agents is another thread.';
create index threads_latest on patchcord.threads (namespace_uuid, last_message_at desc, id desc);
create index threads_slug on patchcord.threads (namespace_uuid, slug);
create index threads_resolved_by on patchcord.threads (resolved_by_uuid) where resolved_by_uuid is not null;
alter table patchcord.threads enable row level security;
alter table patchcord.threads force row level security;
create policy owner_all on patchcord.threads to current_user using (true) with check (true);
create policy agent_reads_own on patchcord.threads for select to patchcord_agent
  using (
    namespace_uuid = (select patchcord.claim_namespace())
    and (select patchcord.claim_agent()) = any (participants)
  );
create policy agent_starts on patchcord.threads for insert to patchcord_agent
  with check (
    namespace_uuid = (select patchcord.claim_namespace())
    and (select patchcord.claim_agent()) = any (participants)
    and resolved_at is null
    and participants_key = md5(array_to_string(participants, ','))
  );
create policy agent_resolves_own on patchcord.threads for update to patchcord_agent
  using ((select patchcord.claim_agent()) = any (participants))
  with check (
    (select patchcord.claim_agent()) = any (participants)
    and (resolved_by_uuid is null or resolved_by_uuid = (select patchcord.claim_agent()))
  );
grant select, insert, update (last_message_at, resolved_at, resolved_by_uuid) on patchcord.threads to patchcord_agent;

create function patchcord.open_thread(p_slug text, p_others uuid[]) returns uuid
language plpgsql
as $$
declare
  v_participants uuid[] := array(
    select distinct u from unnest(p_others || patchcord.claim_agent()) as u order by u);
  v_id uuid;
begin
  insert into patchcord.threads as t (namespace_uuid, slug, participants, participants_key)
  values (patchcord.claim_namespace(), p_slug, v_participants, md5(array_to_string(v_participants, ',')))
  on conflict (namespace_uuid, participants_key, slug)
    do update set last_message_at = clock_timestamp(), resolved_at = null, resolved_by_uuid = null
  returning t.id into v_id;
  return v_id;
end
$$;
comment on function patchcord.open_thread(text, uuid[]) is
  'The thread of this slug among the caller and p_others: found or begun, and open again if it was resolved.';
revoke execute on function patchcord.open_thread(text, uuid[]) from public;
grant execute on function patchcord.open_thread(text, uuid[]) to patchcord_agent;

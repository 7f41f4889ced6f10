-- The schema, its roles, the helpers that everything stands on, and namespaces.
-- Roles are cluster-wide and migrations of several databases may run at once: an existing role is fine.
do $$
declare
  v_role text;
begin
  foreach v_role in array array['patchcord_api', 'patchcord_agent', 'patchcord_person', 'patchcord_ticket'] loop
    begin
      if not exists (select from pg_catalog.pg_roles where rolname = v_role) then
        execute format('create role %I noinherit', v_role);
      end if;
    exception when duplicate_object or unique_violation then
      null;
    end;
  end loop;
  -- A migration cannot give the login role a password: `admin api-role` does. The time-out bounds how late a commit can be.
  if not (select rolcanlogin from pg_catalog.pg_roles where rolname = 'patchcord_api') then
    alter role patchcord_api login;
  end if;
  if not exists (
    select from pg_catalog.pg_db_role_setting s join pg_catalog.pg_roles r on r.oid = s.setrole
    where r.rolname = 'patchcord_api' and s.setdatabase = 0
  ) then
    alter role patchcord_api set statement_timeout = '8s';
    alter role patchcord_api set idle_in_transaction_session_timeout = '15s';
  end if;
  if not pg_catalog.pg_has_role('patchcord_api', 'patchcord_agent', 'member') then
    grant patchcord_agent to patchcord_api;
  end if;
  if not pg_catalog.pg_has_role('patchcord_api', 'patchcord_person', 'member') then
    grant patchcord_person to patchcord_api;
  end if;
  -- A role without INHERIT would not get the grants of `authenticated` that Realtime's tables are reached with; before the
  -- grant, since Postgres 16 fixes it there.
  if not (select rolinherit from pg_catalog.pg_roles where rolname = 'patchcord_ticket') then
    alter role patchcord_ticket inherit;
  end if;
  if not pg_catalog.pg_has_role('patchcord_ticket', 'authenticated', 'member') then
    -- Realtime sets the role of a ticket; PostgREST, Storage and Functions may not (not granted to `authenticator`).
    grant authenticated to patchcord_ticket;
  end if;
  -- Newer Realtime connects as this role, which is no superuser and can set the roles only that it is a member of.
  if exists (select from pg_catalog.pg_roles where rolname = 'supabase_realtime_admin')
    and not pg_catalog.pg_has_role('supabase_realtime_admin', 'patchcord_ticket', 'member') then
    begin
      grant patchcord_ticket to supabase_realtime_admin;
    exception when insufficient_privilege then
      raise warning 'patchcord_ticket could not be granted to supabase_realtime_admin: Realtime may refuse tickets';
    end;
  end if;
end
$$;

create schema patchcord;
comment on schema patchcord is
  'Messages between coding agents. Not exposed by PostgREST; patchcord_api executes entry functions, RLS decides the rest.';
grant usage on schema patchcord to patchcord_api, patchcord_agent, patchcord_person, patchcord_ticket;

-- Every definer below sets `search_path = pg_catalog, pg_temp`: with an empty one, or without pg_temp named last, Postgres looks
-- for types in pg_temp first, and whoever may make temporary objects could have code of theirs run as the owner.
create function patchcord.uuid_v7() returns uuid
language plpgsql volatile parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
  -- RFC 9562, section 5.7: 48 bits of Unix milliseconds, version 7, 74 random bits. Built in only from Postgres 18 on.
  return encode(
    set_bit(
      set_bit(
        overlay(
          uuid_send(gen_random_uuid())
          placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
          from 1 for 6
        ), 52, 1
      ), 53, 1
    ), 'hex'
  )::uuid;
end
$$;
comment on function patchcord.uuid_v7() is 'A time-ordered UUID. Its order is not commit order: never read by an id cursor.';

-- What the caller is, as its entry function or its ticket says. A reset setting reads '' and not null.
create function patchcord.claim(p_name text) returns text
language sql stable parallel safe
as $$
  select nullif(current_setting('request.jwt.claims', true), '')::json ->> p_name
$$;
comment on function patchcord.claim(text) is 'One claim of the current request, null when there is none.';

create function patchcord.claim_agent() returns uuid
language sql stable parallel safe
as $$
  select patchcord.claim('agent')::uuid
$$;

create function patchcord.claim_namespace() returns uuid
language sql stable parallel safe
as $$
  select patchcord.claim('ns')::uuid
$$;

create function patchcord.claim_is_live() returns boolean
language sql stable
as $$
  select coalesce(patchcord.claim('exp')::float8 > extract(epoch from clock_timestamp()), false)
$$;
comment on function patchcord.claim_is_live() is 'Whether the exp of a ticket lies ahead; tickets without one are dead.';

create function patchcord.is_name(p_name text) returns boolean
language sql immutable parallel safe
as $$
  select p_name ~ '^[a-z0-9](?:[a-z0-9._-]{0,38}[a-z0-9])?$'
$$;

create function patchcord.schema_version() returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (select max(m.version) from supabase_migrations.schema_migrations m);
end
$$;
comment on function patchcord.schema_version() is
  'Entry: the newest migration of this database, so that a server can refuse one that is behind or ahead of it.';

revoke execute on function
  patchcord.schema_version(), patchcord.uuid_v7(), patchcord.claim(text), patchcord.claim_agent(),
  patchcord.claim_namespace(), patchcord.claim_is_live(), patchcord.is_name(text)
from public;
grant execute on function patchcord.claim(text), patchcord.claim_agent(), patchcord.claim_namespace()
  to patchcord_agent, patchcord_ticket;
grant execute on function patchcord.uuid_v7(), patchcord.is_name(text) to patchcord_agent;
grant execute on function patchcord.schema_version() to patchcord_api;
grant execute on function patchcord.claim_is_live() to patchcord_ticket;

create table patchcord.namespaces (
  id uuid primary key default patchcord.uuid_v7(),
  name text not null unique check (patchcord.is_name(name)),
  created_at timestamptz not null default clock_timestamp(),
  paused_at timestamptz,
  deleted_at timestamptz
);
comment on table patchcord.namespaces is 'A tenant: agents see agents and messages of their own namespace only.';
comment on column patchcord.namespaces.paused_at is 'Since when its agents send nothing and are not woken; null: they are.';
comment on column patchcord.namespaces.deleted_at is
  'From then on nobody enters it. Its rows go in batches (migration `retention`), and last of all its name.';
create index namespaces_deleted on patchcord.namespaces (deleted_at) where deleted_at is not null;
alter table patchcord.namespaces enable row level security;
alter table patchcord.namespaces force row level security;
create policy owner_all on patchcord.namespaces to current_user using (true) with check (true);
create policy agent_reads_own on patchcord.namespaces for select to patchcord_agent
  using (id = (select patchcord.claim_namespace()));
grant select on patchcord.namespaces to patchcord_agent;

-- What every Supabase project has and a bare Postgres lacks, as far as the migrations and Realtime's clients can tell:
-- the roles, auth.jwt() and its kin, and the database side of Realtime with its real owners, grants and row-level security.
-- Never run on Supabase itself. Written after supabase/postgres (init scripts) and supabase/realtime (tenant migrations).
-- Runs as the superuser, in two parts; the marker lines cut the file.

-- == once per cluster ==
do $$
declare
  v_role text;
  v_roles constant jsonb := jsonb_build_object(
    'anon', 'nologin inherit',
    'authenticated', 'nologin inherit',
    'service_role', 'nologin inherit bypassrls',
    'authenticator', 'login noinherit',
    'supabase_auth_admin', 'login noinherit createrole',
    -- Realtime connects as this role and sets the role of a ticket from it: a ticket's role must be granted to it.
    'supabase_realtime_admin', 'login noinherit createrole replication',
    -- On Supabase the owner of a project's migrations is no superuser.
    'postgres', 'login inherit createdb createrole replication bypassrls'
  );
begin
  for v_role in select jsonb_object_keys(v_roles) loop
    begin
      if to_regrole(v_role) is null then
        execute format('create role %I %s', v_role, v_roles ->> v_role);
      end if;
    exception when duplicate_object or unique_violation then
      null; -- Another database of this cluster was faster.
    end;
  end loop;
end
$$;
grant anon, authenticated, service_role to authenticator, supabase_realtime_admin;
grant anon, authenticated, service_role to postgres with admin option;
-- Supabase lets `postgres` make policies on realtime.messages through its extension supautils; here it is a member of the owner.
grant supabase_realtime_admin to postgres;

-- == once per database ==
create schema auth;
grant usage on schema auth to postgres, anon, authenticated, service_role, supabase_realtime_admin;
grant all on schema auth to supabase_auth_admin;

create function auth.jwt() returns jsonb
language sql stable
as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim', true), ''),
    nullif(current_setting('request.jwt.claims', true), '')
  )::jsonb
$$;

create function auth.uid() returns uuid
language sql stable
as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim.sub', true), ''),
    nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub'
  )::uuid
$$;

create function auth.role() returns text
language sql stable
as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim.role', true), ''),
    nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'role'
  )
$$;

create function auth.email() returns text
language sql stable
as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim.email', true), ''),
    nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'email'
  )
$$;

alter function auth.jwt() owner to supabase_auth_admin;
alter function auth.uid() owner to supabase_auth_admin;
alter function auth.role() owner to supabase_auth_admin;
alter function auth.email() owner to supabase_auth_admin;

create schema realtime;
grant usage on schema realtime to postgres with grant option;
grant usage on schema realtime to anon, authenticated, service_role;
grant all on schema realtime to supabase_realtime_admin with grant option;

create table realtime.messages (
  topic text not null,
  extension text not null,
  payload jsonb,
  event text,
  private boolean default false,
  updated_at timestamp without time zone default now() not null,
  inserted_at timestamp without time zone default now() not null,
  id uuid default gen_random_uuid() not null,
  primary key (id, inserted_at)
) partition by range (inserted_at);
create index messages_inserted_at_topic_index on only realtime.messages (inserted_at desc, topic)
  where extension = 'broadcast' and private is true;
-- Supabase adds a partition per day and this one for what falls between.
create table realtime.messages_default partition of realtime.messages default;
alter table realtime.messages enable row level security;
alter table realtime.messages owner to supabase_realtime_admin;
alter table realtime.messages_default owner to supabase_realtime_admin;
grant select, insert, update on realtime.messages to postgres, anon, authenticated, service_role;
grant delete, truncate, references, trigger on realtime.messages to postgres;

create function realtime.topic() returns text
language sql stable
as $$
  select nullif(current_setting('realtime.topic', true), '')
$$;

-- An invoker that turns every failure into a warning: who calls it without rights on realtime.messages loses the broadcast.
create function realtime.send(payload jsonb, event text, topic text, private boolean default true) returns void
language plpgsql
as $$
declare
  message_id constant uuid := gen_random_uuid();
begin
  perform set_config('realtime.topic', topic, true);
  insert into realtime.messages (id, payload, event, topic, private, extension)
  values (
    message_id,
    case when payload ? 'id' then payload else jsonb_set(payload, '{id}', to_jsonb(message_id)) end,
    event, topic, private, 'broadcast'
  );
exception when others then
  raise warning 'ErrorSendingBroadcastMessage: %', sqlerrm;
end
$$;

alter function realtime.topic() owner to supabase_realtime_admin;
alter function realtime.send(jsonb, text, text, boolean) owner to supabase_realtime_admin;

-- The membership above would let a migration do in schema realtime what Supabase refuses; only policies are ours to make.
create function realtime.refuse_foreign_ddl() returns event_trigger
language plpgsql
as $$
declare
  v_command record;
begin
  if current_user in ('supabase_admin', 'supabase_realtime_admin')
    or (select rolsuper from pg_catalog.pg_roles where rolname = current_user) then
    return;
  end if;
  for v_command in select * from pg_catalog.pg_event_trigger_ddl_commands() loop
    if v_command.object_identity ~ '(^| on )realtime\.'
      and v_command.command_tag not in ('CREATE POLICY', 'ALTER POLICY', 'DROP POLICY') then
      raise exception 'Supabase refuses % on % to %', v_command.command_tag, v_command.object_identity, current_user
        using errcode = 'insufficient_privilege';
    end if;
  end loop;
end
$$;
create event trigger refuse_foreign_ddl on ddl_command_end execute function realtime.refuse_foreign_ddl();

create publication supabase_realtime;
alter publication supabase_realtime owner to postgres;

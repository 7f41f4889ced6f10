-- Who belongs to a namespace, as what, and all that a member may see and change there.
create table patchcord.members (
  namespace_uuid uuid not null references patchcord.namespaces (id) on delete cascade,
  person_uuid uuid not null references patchcord.people (id) on delete cascade,
  role text not null check (role in ('owner', 'admin', 'member')),
  created_at timestamptz not null default clock_timestamp(),
  primary key (namespace_uuid, person_uuid)
);
comment on table patchcord.members is 'People of a namespace: members read, admins manage agents and tokens, owners people.';
create index members_person on patchcord.members (person_uuid);

create table patchcord.invites (
  id uuid primary key default patchcord.uuid_v7(),
  hash bytea not null unique check (octet_length(hash) = 32),
  namespace_uuid uuid not null references patchcord.namespaces (id) on delete cascade,
  role text not null check (role in ('owner', 'admin', 'member')),
  created_by uuid not null references patchcord.people (id) on delete cascade,
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null default clock_timestamp() + interval '7 days',
  used_at timestamptz,
  used_by uuid references patchcord.people (id) on delete cascade,
  revoked_at timestamptz
);
comment on table patchcord.invites is 'Each makes one person a member, once; void when whoever made it is no owner any more.';
create index invites_namespace on patchcord.invites (namespace_uuid, created_by);
create index invites_expires on patchcord.invites (expires_at);

alter table patchcord.members enable row level security;
alter table patchcord.members force row level security;
alter table patchcord.invites enable row level security;
alter table patchcord.invites force row level security;
create policy owner_all on patchcord.members to current_user using (true) with check (true);
create policy owner_all on patchcord.invites to current_user using (true) with check (true);

create function patchcord.claim_is_admin() returns boolean
language sql stable parallel safe
as $$
  select coalesce(patchcord.claim('member_role') in ('owner', 'admin'), false)
$$;

create function patchcord.claim_is_owner() returns boolean
language sql stable parallel safe
as $$
  select coalesce(patchcord.claim('member_role') = 'owner', false)
$$;

-- What members read. The namespace is a claim, so that each of these is one comparison which an index can serve.
create policy member_reads on patchcord.namespaces for select to patchcord_person
  using (id = (select patchcord.claim_namespace()));
create policy member_reads on patchcord.agents for select to patchcord_person
  using (namespace_uuid = (select patchcord.claim_namespace()));
create policy member_reads on patchcord.tokens for select to patchcord_person
  using (namespace_uuid = (select patchcord.claim_namespace()));
create policy member_reads on patchcord.threads for select to patchcord_person
  using (namespace_uuid = (select patchcord.claim_namespace()));
create policy member_reads on patchcord.message_bodies for select to patchcord_person
  using (from_namespace_uuid = (select patchcord.claim_namespace()));
create policy member_reads on patchcord.agent_messages for select to patchcord_person
  using (to_namespace_uuid = (select patchcord.claim_namespace()));
create policy member_reads on patchcord.deliveries for select to patchcord_person
  using (exists (
    select from patchcord.agents a
    where a.id = deliveries.to_agent_uuid and a.namespace_uuid = (select patchcord.claim_namespace())
  ));
create policy member_reads on patchcord.presence for select to patchcord_person
  using (namespace_uuid = (select patchcord.claim_namespace()));
create policy member_reads on patchcord.leases for select to patchcord_person
  using (namespace_uuid = (select patchcord.claim_namespace()));
create policy member_reads on patchcord.security_log for select to patchcord_person
  using (namespace_uuid = (select patchcord.claim_namespace()));
create policy member_reads on patchcord.members for select to patchcord_person
  using (namespace_uuid = (select patchcord.claim_namespace()));
create policy member_reads on patchcord.invites for select to patchcord_person
  using (namespace_uuid = (select patchcord.claim_namespace()));
create policy member_reads_members on patchcord.people for select to patchcord_person
  using (exists (
    select from patchcord.members m
    where m.person_uuid = people.id and m.namespace_uuid = (select patchcord.claim_namespace())
  ));
grant select on
  patchcord.namespaces, patchcord.agents, patchcord.threads, patchcord.message_bodies, patchcord.agent_messages,
  patchcord.deliveries, patchcord.presence, patchcord.leases, patchcord.security_log, patchcord.members
to patchcord_person;
grant select (
  id, namespace_uuid, agent_uuid, label, created_at, expires_at, revoked_at, last_used_at, banned_until, rotated_from
) on patchcord.tokens to patchcord_person;
grant select (id, namespace_uuid, role, created_by, created_at, expires_at, used_at, used_by, revoked_at)
  on patchcord.invites to patchcord_person;

-- What admins change. A token that was revoked stays revoked, an agent that was deleted stays deleted.
create policy admin_changes on patchcord.namespaces for update to patchcord_person
  using (id = (select patchcord.claim_namespace()) and (select patchcord.claim_is_admin()) and deleted_at is null)
  with check (id = (select patchcord.claim_namespace()) and (deleted_at is null or (select patchcord.claim_is_owner())));
create policy admin_adds on patchcord.agents for insert to patchcord_person
  with check (namespace_uuid = (select patchcord.claim_namespace()) and (select patchcord.claim_is_admin()));
create policy admin_changes on patchcord.agents for update to patchcord_person
  using (
    namespace_uuid = (select patchcord.claim_namespace()) and (select patchcord.claim_is_admin()) and deleted_at is null)
  with check (namespace_uuid = (select patchcord.claim_namespace()));
create policy admin_adds on patchcord.tokens for insert to patchcord_person
  with check (namespace_uuid = (select patchcord.claim_namespace()) and (select patchcord.claim_is_admin()));
create policy admin_ends on patchcord.tokens for update to patchcord_person
  using (
    namespace_uuid = (select patchcord.claim_namespace()) and (select patchcord.claim_is_admin()) and revoked_at is null)
  with check (namespace_uuid = (select patchcord.claim_namespace()));
grant update (name, paused_at, deleted_at) on patchcord.namespaces to patchcord_person;
grant insert (namespace_uuid, name), update (name, deleted_at) on patchcord.agents to patchcord_person;
grant insert (id, namespace_uuid, agent_uuid, hash, label, expires_at, rotated_from), update (expires_at, revoked_at)
  on patchcord.tokens to patchcord_person;

-- What owners change, and that everybody may leave.
create policy owner_changes on patchcord.members for update to patchcord_person
  using (namespace_uuid = (select patchcord.claim_namespace()) and (select patchcord.claim_is_owner()))
  with check (namespace_uuid = (select patchcord.claim_namespace()));
create policy owner_removes on patchcord.members for delete to patchcord_person
  using (
    namespace_uuid = (select patchcord.claim_namespace())
    and ((select patchcord.claim_is_owner()) or person_uuid = (select patchcord.claim_person()))
  );
create policy owner_invites on patchcord.invites for insert to patchcord_person
  with check (
    namespace_uuid = (select patchcord.claim_namespace()) and (select patchcord.claim_is_owner())
    and created_by = (select patchcord.claim_person())
  );
create policy owner_revokes on patchcord.invites for update to patchcord_person
  using (
    namespace_uuid = (select patchcord.claim_namespace()) and (select patchcord.claim_is_owner())
    and used_at is null and revoked_at is null
  )
  with check (namespace_uuid = (select patchcord.claim_namespace()));
grant update (role), delete on patchcord.members to patchcord_person;
grant insert (id, hash, namespace_uuid, role, created_by), update (revoked_at) on patchcord.invites to patchcord_person;

create function patchcord.resolve_member(p_session text, p_namespace text) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  w jsonb := patchcord.resolve_session(p_session);
  v record;
begin
  if w ->> 'outcome' <> 'ok' then
    return w;
  end if;
  select n.id, n.name, n.paused_at, m.role
  from patchcord.namespaces n join patchcord.members m on m.namespace_uuid = n.id
  where n.name = p_namespace and n.deleted_at is null and m.person_uuid = (w ->> 'person_id')::uuid
  into v;
  if not found then
    return jsonb_build_object('outcome', 'not_found');
  end if;
  return w || jsonb_build_object('namespace_id', v.id, 'namespace', v.name, 'role', v.role, 'paused_at', v.paused_at);
end
$$;
comment on function patchcord.resolve_member(text, text) is
  'Whose session this is, as a member of that namespace. Outcome ok, signed_out, or not_found: of a namespace of others just as of one that never was.';

create function patchcord.enter_member(p_session text, p_namespace text) returns jsonb
language plpgsql
as $$
declare
  w jsonb := patchcord.resolve_member(p_session, p_namespace);
begin
  if w ->> 'outcome' = 'ok' then
    perform patchcord.assume_person(w);
  end if;
  return w;
end
$$;
comment on function patchcord.enter_member(text, text) is
  'Entry: as enter_person, as a member of this namespace. Its role is a claim, which the policies of writes ask for.';

create function patchcord.has_namesake(p_namespace uuid, p_person uuid, p_name text) returns boolean
language sql stable
as $$
  select exists (
    select from patchcord.members m join patchcord.people p on p.id = m.person_uuid
    where m.namespace_uuid = p_namespace and p.id is distinct from p_person
      and lower(normalize(p.name, nfkc)) = lower(normalize(p_name, nfkc))
  )
$$;
comment on function patchcord.has_namesake(uuid, uuid, text) is
  'Whether another member of the namespace has this name: the audit and the list of members tell people apart by it.';

create function patchcord.on_member_changed() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_member patchcord.members := case when tg_op = 'DELETE' then old else new end;
  v_namespace text;
  v_name text := (select p.name from patchcord.people p where p.id = v_member.person_uuid);
begin
  -- Owners who leave at once go one after the other here, and each counts who is left.
  select n.name from patchcord.namespaces n where n.id = v_member.namespace_uuid and n.deleted_at is null
  for no key update into v_namespace;
  if not found then
    return null;
  end if;
  if tg_op = 'INSERT' and patchcord.has_namesake(new.namespace_uuid, new.person_uuid, v_name) then
    raise exception using errcode = 'PC409', message = format('Somebody in %s is called %s already.', v_namespace, v_name),
      hint = 'Choose another name.';
  end if;
  if tg_op <> 'INSERT' and old.role = 'owner' then
    if not exists (
      select from patchcord.members m where m.namespace_uuid = v_member.namespace_uuid and m.role = 'owner'
    ) then
      raise exception using errcode = 'PC409', message = format('%s is the last owner of %s.', v_name, v_namespace),
        hint = 'Make somebody else an owner first, or delete the namespace.';
    end if;
    update patchcord.invites i set revoked_at = clock_timestamp()
    where i.namespace_uuid = v_member.namespace_uuid and i.created_by = v_member.person_uuid
      and i.used_at is null and i.revoked_at is null;
  end if;
  insert into patchcord.security_log (event, namespace, namespace_uuid, detail)
  values (
    case tg_op when 'INSERT' then 'member_added' when 'DELETE' then 'member_removed' else 'member_role_changed' end,
    v_namespace, v_member.namespace_uuid,
    v_name || case tg_op when 'INSERT' then ' as ' || new.role when 'DELETE' then ', was ' || old.role
      else format(' is %s, was %s', new.role, old.role) end);
  return null;
end
$$;
comment on function patchcord.on_member_changed() is
  'Notes who comes, goes and gets another role; refuses (PC409) a second person of one name, and what would leave a namespace without an owner.';
create trigger on_member_added after insert or delete on patchcord.members
  for each row execute function patchcord.on_member_changed();
create trigger on_member_role after update of role on patchcord.members
  for each row when (old.role is distinct from new.role) execute function patchcord.on_member_changed();

create function patchcord.on_invite_changed() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into patchcord.security_log (event, namespace, namespace_uuid, detail)
  select case when tg_op = 'INSERT' then 'invite_created' when new.used_at is not null then 'invite_used' else 'invite_revoked' end,
    n.name, n.id, 'as ' || new.role
  from patchcord.namespaces n where n.id = new.namespace_uuid;
  return null;
end
$$;
comment on function patchcord.on_invite_changed() is 'Notes invites that are made, used and revoked.';
create trigger on_invite_changed after insert or update of used_at, revoked_at on patchcord.invites
  for each row execute function patchcord.on_invite_changed();

create function patchcord.find_invite(p_code text) returns jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (
    select jsonb_build_object('namespace', n.name, 'role', i.role, 'invited_by', p.name, 'expires_at', i.expires_at)
    from patchcord.invites i
      join patchcord.namespaces n on n.id = i.namespace_uuid
      join patchcord.people p on p.id = i.created_by
      join patchcord.members o on o.namespace_uuid = n.id and o.person_uuid = p.id and o.role = 'owner'
    where i.hash = decode(p_code, 'hex') and i.used_at is null and i.revoked_at is null
      and i.expires_at > clock_timestamp() and n.deleted_at is null
  );
end
$$;
comment on function patchcord.find_invite(text) is
  'Entry: what an invite opens; null for one that is unknown, used, revoked or expired, or whose namespace is gone.';

create function patchcord.use_invite(p_code text, p_person uuid) returns jsonb
language plpgsql
as $$
declare
  v_namespace uuid;
  v_name text;
  v_role text;
begin
  -- Asked of the members once more: an invite that was under way while its maker was removed has not been revoked with the others.
  select n.id, n.name from patchcord.invites i
    join patchcord.namespaces n on n.id = i.namespace_uuid
    join patchcord.members o on o.namespace_uuid = n.id and o.person_uuid = i.created_by and o.role = 'owner'
  where i.hash = decode(p_code, 'hex') and i.used_at is null and i.revoked_at is null
    and i.expires_at > clock_timestamp() and n.deleted_at is null
  into v_namespace, v_name;
  if exists (
    select from patchcord.members m where m.namespace_uuid = v_namespace and m.person_uuid = p_person
  ) then
    -- Nothing is used up: somebody else may still come by it.
    return jsonb_build_object('outcome', 'member_already', 'namespace', v_name);
  end if;
  update patchcord.invites i set used_at = clock_timestamp(), used_by = p_person
  where i.hash = decode(p_code, 'hex') and i.namespace_uuid = v_namespace and i.used_at is null and i.revoked_at is null
    and i.expires_at > clock_timestamp()
  returning i.role into v_role;
  if v_role is null then
    return jsonb_build_object('outcome', 'not_found');
  end if;
  insert into patchcord.members (namespace_uuid, person_uuid, role) values (v_namespace, p_person, v_role)
  on conflict do nothing;
  return jsonb_build_object('outcome', 'ok', 'namespace', v_name);
end
$$;
comment on function patchcord.use_invite(text, uuid) is
  'Makes this person a member by an invite, which is used up. Outcome ok, member_already, or not_found.';

create function patchcord.accept_invite(p_code text) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return patchcord.use_invite(p_code, patchcord.claim_person());
end
$$;
comment on function patchcord.accept_invite(text) is 'use_invite for the person who is signed in.';

create function patchcord.join_by_invite(
  p_code text, p_name text, p_session text, p_client text, p_old_session text
) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_person uuid;
  v_answer jsonb;
begin
  if patchcord.find_invite(p_code) is null then
    return jsonb_build_object('outcome', 'not_found');
  end if;
  insert into patchcord.people (name) values (p_name) returning id into v_person;
  v_answer := patchcord.begin_session(v_person, p_session, p_client, p_old_session);
  v_answer := v_answer || patchcord.use_invite(p_code, v_person);
  if v_answer ->> 'outcome' <> 'ok' then
    -- Somebody else was faster: whoever has just been made is unmade.
    raise exception using errcode = 'PC404', message = 'The invite was used meanwhile.';
  end if;
  return v_answer;
end
$$;
comment on function patchcord.join_by_invite(text, text, text, text, text) is
  'Entry: a new person by an invite, signed in. Outcome ok, or not_found for an invite that opens nothing.';

revoke execute on function
  patchcord.has_namesake(uuid, uuid, text), patchcord.find_invite(text), patchcord.use_invite(text, uuid), patchcord.accept_invite(text),
  patchcord.join_by_invite(text, text, text, text, text),
  patchcord.claim_is_admin(), patchcord.claim_is_owner(), patchcord.resolve_member(text, text),
  patchcord.enter_member(text, text), patchcord.on_member_changed(), patchcord.on_invite_changed()
from public;
grant execute on function patchcord.claim_is_admin(), patchcord.claim_is_owner(), patchcord.accept_invite(text)
  to patchcord_person;
grant execute on function
  patchcord.resolve_member(text, text), patchcord.enter_member(text, text), patchcord.find_invite(text),
  patchcord.join_by_invite(text, text, text, text, text)
to patchcord_api;

-- People and how they get in: login links, sessions. Secrets are random, travel as their SHA-256 in hex, and are kept as that.
create table patchcord.people (
  id uuid primary key default patchcord.uuid_v7(),
  name text not null check (char_length(name) between 1 and 60),
  email text check (char_length(email) between 3 and 320),
  subject text unique check (char_length(subject) between 1 and 255),
  is_operator boolean not null default false,
  created_at timestamptz not null default clock_timestamp()
);
comment on table patchcord.people is 'Who uses the dashboard. Names need not differ: what a person may do hangs on the id.';
comment on column patchcord.people.subject is 'The `sub` of Supabase Auth, for whoever signs in there.';
comment on column patchcord.people.is_operator is 'Came by the operator''s own login link: owns every namespace that has no other owner.';

create table patchcord.login_links (
  id uuid primary key default patchcord.uuid_v7(),
  hash bytea not null unique check (octet_length(hash) = 32),
  person_uuid uuid not null references patchcord.people (id) on delete cascade,
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null default clock_timestamp() + interval '15 minutes',
  used_at timestamptz
);
comment on table patchcord.login_links is 'Each signs one person in, once.';
create index login_links_person on patchcord.login_links (person_uuid);
create index login_links_expires on patchcord.login_links (expires_at);

create table patchcord.sessions (
  id uuid primary key default patchcord.uuid_v7(),
  hash bytea not null unique check (octet_length(hash) = 32),
  person_uuid uuid not null references patchcord.people (id) on delete cascade,
  created_at timestamptz not null default clock_timestamp(),
  last_seen_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null default clock_timestamp() + interval '30 days',
  ended_at timestamptz,
  client text not null check (char_length(client) between 1 and 80)
);
comment on table patchcord.sessions is 'Signed-in browsers: 30 days, or 7 without a visit.';
comment on column patchcord.sessions.last_seen_at is 'To the minute.';
create index sessions_person on patchcord.sessions (person_uuid);
create index sessions_expires on patchcord.sessions (expires_at);

alter table patchcord.people enable row level security;
alter table patchcord.people force row level security;
alter table patchcord.login_links enable row level security;
alter table patchcord.login_links force row level security;
alter table patchcord.sessions enable row level security;
alter table patchcord.sessions force row level security;
create policy owner_all on patchcord.people to current_user using (true) with check (true);
create policy owner_all on patchcord.login_links to current_user using (true) with check (true);
create policy owner_all on patchcord.sessions to current_user using (true) with check (true);

create function patchcord.claim_person() returns uuid
language sql stable parallel safe
as $$
  select patchcord.claim('person')::uuid
$$;

create policy person_reads_self on patchcord.people for select to patchcord_person
  using (id = (select patchcord.claim_person()));
create policy person_renames_self on patchcord.people for update to patchcord_person
  using (id = (select patchcord.claim_person())) with check (id = (select patchcord.claim_person()));
create policy person_own on patchcord.login_links for select to patchcord_person
  using (person_uuid = (select patchcord.claim_person()));
create policy person_makes_own on patchcord.login_links for insert to patchcord_person
  with check (person_uuid = (select patchcord.claim_person()));
create policy person_own on patchcord.sessions for select to patchcord_person
  using (person_uuid = (select patchcord.claim_person()));
create policy person_ends_own on patchcord.sessions for update to patchcord_person
  using (person_uuid = (select patchcord.claim_person()) and ended_at is null)
  with check (person_uuid = (select patchcord.claim_person()));
grant select (id, name, email, created_at), update (name) on patchcord.people to patchcord_person;
grant select (id, person_uuid, created_at, expires_at, used_at), insert (hash, person_uuid)
  on patchcord.login_links to patchcord_person;
grant select (id, person_uuid, created_at, last_seen_at, expires_at, ended_at, client), update (ended_at)
  on patchcord.sessions to patchcord_person;

create function patchcord.resolve_session(p_session text) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v record;
begin
  select s.id, s.last_seen_at, p.id as person_id, p.name, p.email
  from patchcord.sessions s join patchcord.people p on p.id = s.person_uuid
  where s.hash = decode(p_session, 'hex') and s.ended_at is null and s.expires_at > clock_timestamp()
    and s.last_seen_at > clock_timestamp() - interval '7 days'
  into v;
  if not found then
    return jsonb_build_object('outcome', 'signed_out');
  end if;
  if v.last_seen_at < clock_timestamp() - interval '1 minute' then
    -- Pages of one browser load side by side: none waits for another's note of it.
    update patchcord.sessions s set last_seen_at = clock_timestamp()
    where s.id = (select o.id from patchcord.sessions o where o.id = v.id for no key update skip locked);
  end if;
  return jsonb_build_object(
    'outcome', 'ok', 'person_id', v.person_id, 'session_id', v.id, 'name', v.name, 'email', v.email);
end
$$;
comment on function patchcord.resolve_session(text) is 'Whose session this is: outcome ok, or signed_out for one that has ended or never was.';

create function patchcord.assume_person(p_who jsonb) returns void
language plpgsql
as $$
begin
  perform set_config('request.jwt.claims', jsonb_strip_nulls(jsonb_build_object(
    'person', p_who -> 'person_id', 'session', p_who -> 'session_id', 'person_name', p_who -> 'name',
    'ns', p_who -> 'namespace_id', 'member_role', p_who -> 'role'))::text, true);
  perform set_config('role', 'patchcord_person', true);
end
$$;
comment on function patchcord.assume_person(jsonb) is
  'Puts the rest of the transaction under RLS as this person, or as this member of a namespace.';

create function patchcord.enter_person(p_session text) returns jsonb
language plpgsql
as $$
declare
  w jsonb := patchcord.resolve_session(p_session);
begin
  if w ->> 'outcome' = 'ok' then
    perform patchcord.assume_person(w);
  end if;
  return w;
end
$$;
comment on function patchcord.enter_person(text) is
  'Entry: first statement of a transaction that goes on as the person of this session. Check its outcome before the next statement.';

create function patchcord.begin_session(p_person uuid, p_session text, p_client text, p_old_session text) returns jsonb
language plpgsql
as $$
declare
  v_name text := (select p.name from patchcord.people p where p.id = p_person);
begin
  perform set_config('request.jwt.claims', json_build_object('person', p_person, 'person_name', v_name)::text, true);
  -- Whatever session the browser had before, whoever gave it to it, ends here.
  update patchcord.sessions s set ended_at = clock_timestamp()
  where s.hash = decode(p_old_session, 'hex') and s.ended_at is null;
  -- One more than a page lists: the one that was seen longest ago ends.
  update patchcord.sessions s set ended_at = clock_timestamp()
  where s.id in (
    select o.id from patchcord.sessions o
    where o.person_uuid = p_person and o.ended_at is null and o.expires_at > clock_timestamp()
    order by o.last_seen_at desc, o.id desc offset 49
  );
  insert into patchcord.sessions (hash, person_uuid, client) values (decode(p_session, 'hex'), p_person, p_client);
  insert into patchcord.security_log (event, detail) values ('signed_in', v_name || ' with ' || p_client);
  return jsonb_build_object('outcome', 'ok', 'person', v_name);
end
$$;
comment on function patchcord.begin_session(uuid, text, text, text) is
  'Signs a person in: a new session, never one that the browser brought. Of more than 50 the oldest ends.';

create function patchcord.find_login_link(p_code text) returns jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return (
    select jsonb_build_object('person', p.name, 'expires_at', l.expires_at)
    from patchcord.login_links l join patchcord.people p on p.id = l.person_uuid
    where l.hash = decode(p_code, 'hex') and l.used_at is null and l.expires_at > clock_timestamp()
  );
end
$$;
comment on function patchcord.find_login_link(text) is 'Entry: whom a login link would sign in; null for one that is unknown, used or expired.';

create function patchcord.sign_in(p_code text, p_session text, p_client text, p_old_session text) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_person uuid;
  v_answer jsonb;
begin
  -- One update finds it and uses it up: of two that come at once, one is let in.
  update patchcord.login_links l set used_at = clock_timestamp()
  where l.hash = decode(p_code, 'hex') and l.used_at is null and l.expires_at > clock_timestamp()
  returning l.person_uuid into v_person;
  if v_person is null then
    return jsonb_build_object('outcome', 'not_found');
  end if;
  v_answer := patchcord.begin_session(v_person, p_session, p_client, p_old_session);
  perform patchcord.adopt_namespaces(v_person);
  return v_answer;
end
$$;
comment on function patchcord.sign_in(text, text, text, text) is
  'Entry: a login link for a session. The session that the browser had ends. Outcome ok, or not_found for a link that is unknown, used or expired.';

create function patchcord.sign_in_with_subject(
  p_subject text, p_email text, p_name text, p_may_sign_up boolean, p_invite text,
  p_session text, p_client text, p_old_session text
) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_person uuid;
  v_is_new boolean := false;
  v_is_invited boolean := patchcord.find_invite(p_invite) is not null;
  v_name text := p_name;
  v_answer jsonb;
begin
  update patchcord.people p set email = p_email where p.subject = p_subject returning p.id into v_person;
  if v_person is null then
    if not (p_may_sign_up or v_is_invited) then
      return jsonb_build_object('outcome', 'forbidden');
    end if;
    -- Nobody here has chosen the name, so that a namesake gets a number and no refusal.
    for v_number in 2..1000 loop
      exit when not exists (
        select from patchcord.invites i
        where i.hash = decode(p_invite, 'hex') and patchcord.has_namesake(i.namespace_uuid, null, v_name)
      );
      v_name := left(p_name, 54) || ' ' || v_number;
    end loop;
    insert into patchcord.people as p (name, email, subject) values (v_name, p_email, p_subject)
    on conflict (subject) do update set email = excluded.email
    returning p.id, p.xmax = 0 into v_person, v_is_new;
  end if;
  v_answer := patchcord.begin_session(v_person, p_session, p_client, p_old_session);
  if not v_is_invited then
    return v_answer;
  end if;
  begin
    if patchcord.use_invite(p_invite, v_person) ->> 'outcome' = 'not_found' and v_is_new and not p_may_sign_up then
      -- Somebody else was faster with the invite: whoever has just been made is unmade.
      raise exception using errcode = 'PC403', message = 'The invite was used meanwhile.';
    end if;
  exception when sqlstate 'PC409' then
    -- A namesake is there. Who is signed in can take another name and open the invite, which is still good, again.
    null;
  end;
  return v_answer;
end
$$;
comment on function patchcord.sign_in_with_subject(text, text, text, boolean, text, text, text, text) is
  'Entry: signs in whom Supabase Auth vouches for, and takes the invite if there is one. Outcome ok, or forbidden for somebody new without an invite where signing up needs one.';

create function patchcord.on_person_changed() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'INSERT' then
    insert into patchcord.security_log (event, detail) values ('person_created', new.name);
  else
    perform from patchcord.namespaces n
    where n.id in (select m.namespace_uuid from patchcord.members m where m.person_uuid = new.id)
    order by n.id for no key update;
    if exists (
      select from patchcord.members m
      where m.person_uuid = new.id and patchcord.has_namesake(m.namespace_uuid, new.id, new.name)
    ) then
      raise exception using errcode = 'PC409', message = format('Somebody beside you is called %s already.', new.name),
        hint = 'Choose another name.';
    end if;
    insert into patchcord.security_log (event, namespace, namespace_uuid, detail)
    select 'person_renamed', n.name, n.id, new.name || ', was ' || old.name
    from patchcord.members m join patchcord.namespaces n on n.id = m.namespace_uuid
    where m.person_uuid = new.id and n.deleted_at is null;
  end if;
  return null;
end
$$;
comment on function patchcord.on_person_changed() is 'Notes people who are made, and renamed: in each of their namespaces.';
create trigger on_person_created after insert on patchcord.people
  for each row execute function patchcord.on_person_changed();
create trigger on_person_renamed after update of name on patchcord.people
  for each row when (old.name is distinct from new.name) execute function patchcord.on_person_changed();

create function patchcord.on_login_link_created() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into patchcord.security_log (event, detail)
  select 'login_link_created', 'for ' || p.name from patchcord.people p where p.id = new.person_uuid;
  return null;
end
$$;
comment on function patchcord.on_login_link_created() is 'Notes login links that are made.';
create trigger on_login_link_created after insert on patchcord.login_links
  for each row execute function patchcord.on_login_link_created();

create function patchcord.on_session_ended() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from patchcord.login_links l where l.person_uuid = new.person_uuid and l.used_at is null;
  return null;
end
$$;
comment on function patchcord.on_session_ended() is
  'Whoever signs another browser out does not trust it: the links that it may have made end with it.';
create trigger on_session_ended after update of ended_at on patchcord.sessions
  for each row when (old.ended_at is null and new.ended_at is not null and patchcord.claim('session') <> new.id::text)
  execute function patchcord.on_session_ended();

revoke execute on function
  patchcord.on_session_ended(), patchcord.claim_person(), patchcord.resolve_session(text), patchcord.assume_person(jsonb), patchcord.enter_person(text),
  patchcord.begin_session(uuid, text, text, text), patchcord.find_login_link(text),
  patchcord.sign_in(text, text, text, text),
  patchcord.sign_in_with_subject(text, text, text, boolean, text, text, text, text),
  patchcord.on_person_changed(), patchcord.on_login_link_created()
from public;
grant execute on function
  patchcord.claim_person(), patchcord.claim(text), patchcord.claim_namespace(), patchcord.uuid_v7(), patchcord.is_name(text),
  patchcord.reach_of(uuid[])
to patchcord_person;
grant execute on function
  patchcord.resolve_session(text), patchcord.assume_person(jsonb), patchcord.enter_person(text),
  patchcord.find_login_link(text), patchcord.sign_in(text, text, text, text),
  patchcord.sign_in_with_subject(text, text, text, boolean, text, text, text, text)
to patchcord_api;

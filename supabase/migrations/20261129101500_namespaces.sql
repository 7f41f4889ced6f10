-- What a person does with namespaces beyond the one that a page is about: founding one, seeing all of theirs.
create function patchcord.adopt_namespaces(p_person uuid) returns void
language sql
as $$
  insert into patchcord.members (namespace_uuid, person_uuid, role)
  select n.id, p.id, 'owner' from patchcord.namespaces n join patchcord.people p on p.id = p_person and p.is_operator
  where n.deleted_at is null
    and not exists (select from patchcord.members m where m.namespace_uuid = n.id and m.role = 'owner')
  order by n.id
  on conflict (namespace_uuid, person_uuid) do update set role = 'owner'
$$;
comment on function patchcord.adopt_namespaces(uuid) is
  'Makes the operator the owner of what has none: namespaces that were made on the command line.';

create function patchcord.free_name(p_wanted text, p_namespace uuid) returns text
language plpgsql stable
as $$
declare
  v_base text := left(regexp_replace(p_wanted, '-[0-9]{1,2}$', ''), 37);
begin
  return (
    select c.name from (select v_base || '-' || i as name, i from generate_series(2, 99) i) c
    where patchcord.is_name(c.name)
      and case when p_namespace is null
        then not exists (select from patchcord.namespaces n where n.name = c.name)
          and not exists (select from patchcord.former_names f where f.name = c.name and f.agent_uuid is null)
        else not exists (select from patchcord.agents a where a.namespace_uuid = p_namespace and a.name = c.name)
          and not exists (
            select from patchcord.former_names f
            where f.name = c.name and f.namespace_uuid = p_namespace and f.agent_uuid is not null)
        end
    order by c.i limit 1
  );
end
$$;
comment on function patchcord.free_name(text, uuid) is
  'A name like p_wanted that nobody has or had: of an agent in this namespace, or (null) of a namespace.';

create function patchcord.free_namespace_name(p_wanted text) returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return patchcord.free_name(p_wanted, null);
end
$$;
comment on function patchcord.free_namespace_name(text) is 'free_name for a namespace.';

create function patchcord.free_agent_name(p_wanted text) returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return patchcord.free_name(p_wanted, patchcord.claim_namespace());
end
$$;
comment on function patchcord.free_agent_name(text) is 'free_name for an agent of the namespace that the caller has entered.';

create function patchcord.found_namespace(p_name text, p_max integer) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_me uuid := patchcord.claim_person();
  v_id uuid;
begin
  -- One at a time of a person: as many at once as there are tabs would all see the last free place.
  perform from patchcord.people p where p.id = v_me for no key update;
  if (
    select count(*) from patchcord.members m join patchcord.namespaces n on n.id = m.namespace_uuid
    where m.person_uuid = v_me and m.role = 'owner' and n.deleted_at is null
  ) >= p_max then
    return 'too_many';
  end if;
  insert into patchcord.namespaces (name) values (p_name) on conflict (name) do nothing returning id into v_id;
  if v_id is null then
    return 'taken';
  end if;
  insert into patchcord.members (namespace_uuid, person_uuid, role) values (v_id, v_me, 'owner');
  return 'ok';
end
$$;
comment on function patchcord.found_namespace(text, integer) is
  'A new namespace that the caller owns. ok, taken, or too_many for whoever owns p_max already.';

create function patchcord.my_namespaces() returns jsonb
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  return (
    with mine as (
      select n.id, n.name, m.role, n.paused_at, n.created_at
      from patchcord.members m join patchcord.namespaces n on n.id = m.namespace_uuid and n.deleted_at is null
      where m.person_uuid = patchcord.claim_person()
    ), wakeable as materialized (
      -- As in reach_of.
      select distinct x.agent_uuid from patchcord.leases x
        join patchcord.tokens t on t.id = x.token_uuid
        join patchcord.agents a on a.id = x.agent_uuid
      where a.namespace_uuid in (select id from mine) and x.expires_at > v_now and t.revoked_at is null
        and coalesce(t.expires_at > v_now, true) and coalesce(x.renewed_at > a.renamed_at, true)
    ), agent as (
      select a.namespace_uuid, a.id, w.agent_uuid is not null as is_wakeable
      from patchcord.agents a left join wakeable w on w.agent_uuid = a.id
      where a.namespace_uuid in (select id from mine) and a.deleted_at is null
    ), counted as (
      select a.namespace_uuid, count(*) as agents, count(*) filter (where a.is_wakeable) as wakeable, sum(w.waiting) as waiting
      from agent a left join lateral (
        select count(*) as waiting from patchcord.deliveries d
        where not a.is_wakeable and d.to_agent_uuid = a.id and d.state = 'new' and d.wake_at < v_now - interval '2 minutes'
          and coalesce(d.expires_at > v_now, true)
      ) w on true
      group by a.namespace_uuid
    )
    select coalesce(jsonb_agg(jsonb_build_object(
      'name', n.name, 'role', n.role, 'paused_at', n.paused_at, 'created_at', n.created_at,
      'agents', coalesce(c.agents, 0), 'wakeable', coalesce(c.wakeable, 0), 'waiting', coalesce(c.waiting, 0)
    ) order by n.name), '[]')
    from mine n left join counted c on c.namespace_uuid = n.id
  );
end
$$;
comment on function patchcord.my_namespaces() is
  'The caller''s namespaces with how many agents each has, how many are wakeable, and how many messages wait for longer than two minutes for one that is not.';

revoke execute on function
  patchcord.adopt_namespaces(uuid), patchcord.free_name(text, uuid), patchcord.free_namespace_name(text),
  patchcord.free_agent_name(text), patchcord.found_namespace(text, integer), patchcord.my_namespaces()
from public;
grant execute on function
  patchcord.free_namespace_name(text), patchcord.free_agent_name(text), patchcord.found_namespace(text, integer),
  patchcord.my_namespaces()
to patchcord_person;

create table patchcord.presence (
  agent_uuid uuid primary key,
  namespace_uuid uuid not null,
  state text not null check (state in ('idle', 'busy')),
  client text,
  session text,
  machine text,
  human_prompt_at timestamptz,
  reported_at timestamptz not null default clock_timestamp(),
  foreign key (agent_uuid, namespace_uuid) references patchcord.agents (id, namespace_uuid) on delete cascade
);
comment on table patchcord.presence is 'What an agent''s session last said of itself, by its hooks.';

create table patchcord.leases (
  agent_uuid uuid not null,
  session text not null check (char_length(session) between 1 and 80),
  namespace_uuid uuid not null,
  token_uuid uuid not null references patchcord.tokens (id) on delete cascade,
  client text,
  machine text,
  started_at timestamptz not null default clock_timestamp(),
  renewed_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  primary key (agent_uuid, session),
  foreign key (agent_uuid, namespace_uuid) references patchcord.agents (id, namespace_uuid) on delete cascade
);
comment on table patchcord.leases is
  'Live listeners: an agent is wakeable only while one of its leases has not expired. A lease names the token that renewed it and is void once that token has ended or the agent has another name; a listener of another token keeps its own.';
create index leases_token on patchcord.leases (token_uuid);

alter table patchcord.presence enable row level security;
alter table patchcord.presence force row level security;
alter table patchcord.leases enable row level security;
alter table patchcord.leases force row level security;
create policy owner_all on patchcord.presence to current_user using (true) with check (true);
create policy owner_all on patchcord.leases to current_user using (true) with check (true);
create policy agent_reads_namespace on patchcord.presence for select to patchcord_agent
  using (namespace_uuid = (select patchcord.claim_namespace()));
create policy agent_reports_own on patchcord.presence for insert to patchcord_agent
  with check (agent_uuid = (select patchcord.claim_agent()) and namespace_uuid = (select patchcord.claim_namespace()));
create policy agent_updates_own on patchcord.presence for update to patchcord_agent
  using (agent_uuid = (select patchcord.claim_agent()))
  with check (agent_uuid = (select patchcord.claim_agent()) and namespace_uuid = (select patchcord.claim_namespace()));
create policy agent_reads_namespace on patchcord.leases for select to patchcord_agent
  using (namespace_uuid = (select patchcord.claim_namespace()));
create policy agent_takes_own on patchcord.leases for insert to patchcord_agent
  with check (
    agent_uuid = (select patchcord.claim_agent()) and namespace_uuid = (select patchcord.claim_namespace())
    and token_uuid = (select patchcord.claim('token')::uuid)
  );
create policy agent_renews_own on patchcord.leases for update to patchcord_agent
  using (agent_uuid = (select patchcord.claim_agent()))
  with check (
    agent_uuid = (select patchcord.claim_agent()) and namespace_uuid = (select patchcord.claim_namespace())
    and token_uuid = (select patchcord.claim('token')::uuid)
  );
create policy agent_ends_own on patchcord.leases for delete to patchcord_agent
  using (agent_uuid = (select patchcord.claim_agent()));
grant select, insert, update on patchcord.presence to patchcord_agent;
grant select, insert, update, delete on patchcord.leases to patchcord_agent;

create function patchcord.reach_of(p_agents uuid[])
returns table (
  agent_uuid uuid, agent text, reach text, state text, client text, machine text,
  lease_renewed_at timestamptz, last_seen_at timestamptz
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  -- Definer, because an agent may not read the tokens whose last use shows that another was here.
  return query
  select a.id, a.name,
    case
      when l.renewed_at is not null then 'wakeable'
      when seen.at > clock_timestamp() - interval '3 minutes' then 'online'
      else 'offline'
    end,
    p.state, coalesce(l.client, p.client), coalesce(l.machine, p.machine), l.renewed_at, seen.at
  from patchcord.agents a
    left join patchcord.presence p on p.agent_uuid = a.id
    left join lateral (
      -- A state, not a deletion: a renewal that races a revocation makes nobody wakeable.
      select x.renewed_at, x.client, x.machine from patchcord.leases x join patchcord.tokens t on t.id = x.token_uuid
      where x.agent_uuid = a.id and x.expires_at > clock_timestamp()
        and t.revoked_at is null and coalesce(t.expires_at > clock_timestamp(), true)
        and coalesce(x.renewed_at > a.renamed_at, true)
      order by x.renewed_at desc limit 1
    ) l on true
    left join lateral (
      select greatest(max(t.last_used_at), p.reported_at) as at from patchcord.tokens t where t.agent_uuid = a.id
    ) seen on true
  where a.id = any (p_agents) and a.namespace_uuid = patchcord.claim_namespace() and a.deleted_at is null;
end
$$;
comment on function patchcord.reach_of(uuid[]) is
  'Reach of agents of the caller''s namespace with its evidence: wakeable (a live lease), online (seen within 3 minutes) or offline.';

create function patchcord.renew_lease(
  p_hash text, p_session text, p_client text, p_machine text, p_seconds float8, p_announced uuid[]
) returns jsonb
language plpgsql
as $$
declare
  w patchcord.entrance;
begin
  w := patchcord.enter(p_hash, 0, 1, 1);
  if w.outcome <> 'ok' then
    return to_jsonb(w);
  end if;
  perform patchcord.assume(w);
  insert into patchcord.leases as l (agent_uuid, session, namespace_uuid, token_uuid, client, machine, expires_at)
  values (
    w.agent_id, p_session, w.namespace_id, w.token_id, p_client, p_machine,
    clock_timestamp() + make_interval(secs => p_seconds)
  )
  on conflict (agent_uuid, session) do update set
    renewed_at = clock_timestamp(), expires_at = excluded.expires_at, token_uuid = excluded.token_uuid,
    client = excluded.client, machine = excluded.machine;
  -- A token that invents sessions fills nothing: the latest stay.
  delete from patchcord.leases l
  where l.agent_uuid = w.agent_id and l.session in (
    select x.session from patchcord.leases x
    where x.agent_uuid = w.agent_id order by x.expires_at desc, x.session offset 20
  );
  if cardinality(p_announced) > 0 then
    with picked as (
      select d.message_id from patchcord.deliveries d
      where d.to_agent_uuid = w.agent_id and d.message_id = any (p_announced) and d.notified_at is null
        and d.state = 'new'
      order by d.message_id
      -- A fetch holds its rows while it takes older ones: waiting for it here could deadlock. What it has fetched was heard.
      for update skip locked
    )
    update patchcord.deliveries d set notified_at = clock_timestamp()
    from picked
    where d.message_id = picked.message_id and d.to_agent_uuid = w.agent_id;
  end if;
  return jsonb_build_object('outcome', 'ok');
end
$$;
comment on function patchcord.renew_lease(text, text, text, text, float8, uuid[]) is
  'Entry: keeps a listener''s lease for p_seconds and records the ids whose line it has written.';

create function patchcord.end_lease(p_hash text, p_session text) returns jsonb
language plpgsql
as $$
declare
  w patchcord.entrance;
begin
  w := patchcord.enter(p_hash, 0, 1, 1);
  if w.outcome <> 'ok' then
    return to_jsonb(w);
  end if;
  perform patchcord.assume(w);
  delete from patchcord.leases l
  where l.agent_uuid = w.agent_id and (l.session = p_session or l.expires_at < clock_timestamp());
  return jsonb_build_object('outcome', 'ok');
end
$$;
comment on function patchcord.end_lease(text, text) is 'Entry: ends the lease of one session, and what has expired beside it.';

create function patchcord.report_presence(
  p_hash text, p_state text, p_client text, p_session text, p_machine text, p_human_prompt boolean
) returns jsonb
language plpgsql
as $$
declare
  w patchcord.entrance;
begin
  w := patchcord.enter(p_hash, 0, 1, 1);
  if w.outcome <> 'ok' then
    return to_jsonb(w);
  end if;
  perform patchcord.assume(w);
  insert into patchcord.presence as p (agent_uuid, namespace_uuid, state, client, session, machine, human_prompt_at)
  values (
    w.agent_id, w.namespace_id, p_state, p_client, p_session, p_machine,
    case when p_human_prompt then clock_timestamp() end
  )
  on conflict (agent_uuid) do update set
    state = excluded.state,
    client = coalesce(excluded.client, p.client),
    session = coalesce(excluded.session, p.session),
    machine = coalesce(excluded.machine, p.machine),
    human_prompt_at = coalesce(excluded.human_prompt_at, p.human_prompt_at),
    reported_at = clock_timestamp();
  return jsonb_build_object('outcome', 'ok');
end
$$;
comment on function patchcord.report_presence(text, text, text, text, text, boolean) is
  'Entry: what the caller''s session is doing, and whether a person has just typed in it.';

revoke execute on function
  patchcord.reach_of(uuid[]), patchcord.renew_lease(text, text, text, text, float8, uuid[]),
  patchcord.end_lease(text, text), patchcord.report_presence(text, text, text, text, text, boolean)
from public;
grant execute on function patchcord.reach_of(uuid[]) to patchcord_agent;
grant execute on function
  patchcord.renew_lease(text, text, text, text, float8, uuid[]), patchcord.end_lease(text, text),
  patchcord.report_presence(text, text, text, text, text, boolean)
to patchcord_api;

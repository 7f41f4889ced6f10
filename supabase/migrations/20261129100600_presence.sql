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
  ended_at timestamptz,
  primary key (agent_uuid, session),
  foreign key (agent_uuid, namespace_uuid) references patchcord.agents (id, namespace_uuid) on delete cascade
);
comment on table patchcord.leases is
  'Live listeners: an agent is wakeable only while one of its leases has not expired. A lease names the token that renewed it and is void once that token has ended or the agent has another name; a listener of another token keeps its own.';
comment on column patchcord.leases.ended_at is
  'Its listener gave it back then: a renewal that was asked for before, and waited on another instance, does not bring it back.';
create index leases_token on patchcord.leases (token_uuid);
create index leases_expired on patchcord.leases (expires_at);

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

create function patchcord.reaches(p_agents uuid[])
returns table (
  agent_uuid uuid, namespace_uuid uuid, agent text, reach text, state text, client text, machine text,
  lease_renewed_at timestamptz, last_seen_at timestamptz
)
language sql stable
as $$
  select a.id, a.namespace_uuid, a.name,
    case
      when l.renewed_at is not null then 'wakeable'
      when seen.at > clock_timestamp() - interval '3 minutes' then 'online'
      else 'offline'
    end,
    p.state, coalesce(l.client, p.client), coalesce(l.machine, p.machine),
    l.renewed_at, seen.at
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
  where a.id = any (p_agents) and a.deleted_at is null
$$;
comment on function patchcord.reaches(uuid[]) is
  'Reach of agents with its evidence: wakeable (a live lease), online (seen within 3 minutes) or offline. For functions that have chosen the agents.';

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
  select r.agent_uuid, r.agent, r.reach, r.state, r.client, r.machine, r.lease_renewed_at, r.last_seen_at
  from patchcord.reaches(p_agents) r where r.namespace_uuid = patchcord.claim_namespace();
end
$$;
comment on function patchcord.reach_of(uuid[]) is
  'The same of agents of the caller''s namespace.';

create function patchcord.agents_near() returns jsonb
language plpgsql stable
as $$
declare
  v_me uuid := patchcord.claim_agent();
begin
  return (
    with here as materialized (
      select r, array_position(array['wakeable', 'online'], r.reach) as place, r.agent_uuid = v_me as is_me
      from patchcord.reach_of(array(
        select a.id from patchcord.agents a
        where a.namespace_uuid = patchcord.claim_namespace() and a.deleted_at is null
      )) r
    ), other as (
      select h.r, h.place from here h where not h.is_me
    )
    select jsonb_build_object(
      'you', (select to_jsonb(h.r) from here h where h.is_me),
      'agents', coalesce((
        select jsonb_agg(to_jsonb(n.r) order by n.place, (n.r).agent)
        from (select o.r, o.place from other o order by o.place, (o.r).agent limit 500) n
      ), '[]'),
      'agents_count', (select count(*) from other),
      'offline_count', (select count(*) from other o where o.place is null)
    )
  );
end
$$;
comment on function patchcord.agents_near() is
  'The caller, and the other agents of the namespace, 500 at most, who can be reached soonest first, and how many there are.';

create function patchcord.renew_leases(p_rows jsonb, p_seconds float8) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_answers jsonb;
  v_agents uuid[];
begin
  with asked as materialized (
    -- Each row stands for itself: its own token, its own refusal.
    select r.place, r.said ->> 'session' as session, r.said ->> 'client' as client, r.said ->> 'machine' as machine,
      v_now - make_interval(secs => (r.said ->> 'waited_seconds')::float8) as at,
      case when jsonb_array_length(r.said -> 'announced') > 0 then r.said -> 'announced' end as announced,
      t.id as token_id, t.last_used_at, a.id as agent_id, a.namespace_uuid,
      case
        when t.id is null then 'token_rejected'
        when a.deleted_at is not null then 'agent_gone'
        when t.revoked_at is not null then 'token_revoked'
        when t.expires_at <= v_now then 'token_rejected'
        when t.banned_until > v_now then 'banned'
        else 'ok'
      end as outcome, t.banned_until
    from jsonb_array_elements(p_rows) with ordinality as r (said, place)
      left join patchcord.tokens t on t.hash = decode(r.said ->> 'hash', 'hex')
      left join patchcord.agents a on a.id = t.agent_uuid
  ), lease as (
    -- In key order, whoever stores: batches of two instances that cross wait for each other and do not deadlock.
    insert into patchcord.leases as l (
      agent_uuid, session, namespace_uuid, token_uuid, client, machine, started_at, renewed_at, expires_at
    )
    select distinct on (q.agent_id, q.session) q.agent_id, q.session, q.namespace_uuid, q.token_id, q.client, q.machine,
      q.at, q.at, q.at + make_interval(secs => p_seconds)
    from asked q where q.outcome = 'ok'
    order by q.agent_id, q.session, q.at desc, q.place desc
    on conflict (agent_uuid, session) do update set
      started_at = case when l.ended_at is null then l.started_at else excluded.started_at end,
      renewed_at = excluded.renewed_at, expires_at = excluded.expires_at, ended_at = null,
      token_uuid = excluded.token_uuid, client = excluded.client, machine = excluded.machine
    where l.renewed_at <= excluded.renewed_at and coalesce(l.ended_at < excluded.renewed_at, true)
  ), picked as (
    select d.message_id, d.to_agent_uuid, q.at
    from asked q
      cross join jsonb_array_elements_text(q.announced) as said (id)
      join patchcord.deliveries d on d.message_id = said.id::uuid and d.to_agent_uuid = q.agent_id
    where q.outcome = 'ok' and d.notified_at is null
      -- A batch stores what was asked for before it: what was fetched or ended meanwhile had its line first.
      and (d.state = 'new' and coalesce(q.at < d.expires_at, true) or q.at < coalesce(d.fetched_at, d.settled_at))
    order by d.message_id, d.to_agent_uuid
    -- A fetch holds its rows while it takes older ones: waiting for it here could deadlock. What it has fetched is no step.
    for update of d skip locked
  ), notified as (
    update patchcord.deliveries d set notified_at = picked.at
    from picked
    where d.message_id = picked.message_id and d.to_agent_uuid = picked.to_agent_uuid
  ), seen as (
    select t.id from patchcord.tokens t
    where t.id in (
      select q.token_id from asked q
      where q.outcome = 'ok' and coalesce(q.last_used_at < v_now - interval '20 s', true)
    )
    order by t.id
    -- Not more: whoever inserts a lease holds the key of its token, and two batches would wait for each other's.
    for no key update skip locked
  ), used as (
    update patchcord.tokens t set last_used_at = v_now from seen where t.id = seen.id
  )
  select jsonb_agg(jsonb_build_object(
    'outcome', q.outcome, 'banned_until', q.banned_until,
    'retry_after_seconds', ceil(extract(epoch from q.banned_until - v_now))::integer
  ) order by q.place), array_agg(distinct q.agent_id)
  from asked q into v_answers, v_agents;
  -- A token that invents sessions fills nothing: the latest stay.
  delete from patchcord.leases l using (
    select v.agent_uuid, v.session from patchcord.leases v
    where (v.agent_uuid, v.session) in (
      select x.agent_uuid, x.session from (
        select y.agent_uuid, y.session,
          row_number() over (partition by y.agent_uuid order by y.expires_at desc, y.session) as place
        from patchcord.leases y where y.agent_uuid = any (v_agents)
      ) x where x.place > 20
    )
    order by v.agent_uuid, v.session
    for update skip locked
  ) old
  where l.agent_uuid = old.agent_uuid and l.session = old.session;
  return coalesce(v_answers, '[]');
end
$$;
comment on function patchcord.renew_leases(jsonb, float8) is
  'Entry: keeps the leases of many listeners for p_seconds and records the ids whose line each has written; an outcome per row, in order. A row is hash, session, client, machine, announced, and waited_seconds since it was asked for.';

create function patchcord.end_lease(p_hash text, p_session text) returns jsonb
language plpgsql
as $$
declare
  w patchcord.entrance;
  v_now timestamptz;
begin
  w := patchcord.enter(p_hash, 0, null);
  if w.outcome <> 'ok' then
    return to_jsonb(w);
  end if;
  perform patchcord.assume(w);
  v_now := clock_timestamp();
  delete from patchcord.leases l
  where l.agent_uuid = w.agent_id and l.expires_at < v_now - interval '10 minutes' and l.session <> p_session;
  insert into patchcord.leases as l (agent_uuid, session, namespace_uuid, token_uuid, expires_at, ended_at)
  values (w.agent_id, p_session, w.namespace_id, w.token_id, v_now, v_now)
  on conflict (agent_uuid, session) do update set expires_at = v_now, ended_at = v_now, token_uuid = excluded.token_uuid;
  return jsonb_build_object('outcome', 'ok');
end
$$;
comment on function patchcord.end_lease(text, text) is
  'Entry: ends the lease of one session, also for renewals that were asked for before and are still on their way.';

create function patchcord.report_presence(
  p_hash text, p_state text, p_client text, p_session text, p_machine text, p_human_prompt boolean
) returns jsonb
language plpgsql
as $$
declare
  w patchcord.entrance;
begin
  w := patchcord.enter(p_hash, 0, null);
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
  patchcord.reaches(uuid[]), patchcord.reach_of(uuid[]), patchcord.agents_near(), patchcord.renew_leases(jsonb, float8),
  patchcord.end_lease(text, text), patchcord.report_presence(text, text, text, text, text, boolean)
from public;
grant execute on function patchcord.reach_of(uuid[]), patchcord.agents_near() to patchcord_agent;
grant execute on function
  patchcord.renew_leases(jsonb, float8), patchcord.end_lease(text, text),
  patchcord.report_presence(text, text, text, text, text, boolean)
to patchcord_api;

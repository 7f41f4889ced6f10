-- What may demand an agent's attention: the gate of a pair and its loop budget. The send rate is the token's bucket.
create table patchcord.pairs (
  low_uuid uuid not null references patchcord.agents (id) on delete cascade,
  high_uuid uuid not null references patchcord.agents (id) on delete cascade,
  last_from_uuid uuid,
  turns integer not null default 0,
  window_started_at timestamptz not null default clock_timestamp(),
  primary key (low_uuid, high_uuid),
  check (low_uuid < high_uuid)
);
comment on table patchcord.pairs is
  'One row per pair of agents: the lock that lets exactly one of two crossing messages pass the gate, and the turns of the loop budget.';
create index pairs_high on patchcord.pairs (high_uuid);
alter table patchcord.pairs enable row level security;
alter table patchcord.pairs force row level security;
create policy owner_all on patchcord.pairs to current_user using (true) with check (true);

create function patchcord.lock_pairs(p_others uuid[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_me uuid := patchcord.claim_agent();
begin
  -- Where it is one pair that there is already, which is what most sends meet, no order is to be kept.
  if cardinality(p_others) = 1 then
    perform from patchcord.pairs p
    where p.low_uuid = least(v_me, p_others[1]) and p.high_uuid = greatest(v_me, p_others[1])
    for update;
    if found then
      return;
    end if;
  end if;
  -- Only agents of the caller's namespace have a pair with it, so that an id of another one tells nothing.
  -- In key order, whoever asks: two lists that cross wait for each other and do not deadlock.
  insert into patchcord.pairs (low_uuid, high_uuid)
  select least(v_me, o.id), greatest(v_me, o.id) from patchcord.agents o
  where o.id = any (p_others) and o.namespace_uuid = patchcord.claim_namespace() and o.id <> v_me
  order by 1, 2
  on conflict do nothing;
  perform from patchcord.pairs p
  where (p.low_uuid, p.high_uuid) in (
    select least(v_me, o.id), greatest(v_me, o.id) from patchcord.agents o
    where o.id = any (p_others) and o.namespace_uuid = patchcord.claim_namespace() and o.id <> v_me
  )
  order by p.low_uuid, p.high_uuid
  for update;
end
$$;
comment on function patchcord.lock_pairs(uuid[]) is
  'Locks the caller''s pair with each of p_others until commit: of two messages that cross, one waits and meets the gate.';

create function patchcord.count_turns(p_others uuid[], p_limits jsonb)
returns table (agent_uuid uuid, held_until timestamptz)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select t.to_agent_uuid, t.held_until
  from patchcord.count_turns_of(array_fill(patchcord.claim_agent(), array[cardinality(p_others)]), p_others, p_limits) t;
end
$$;
comment on function patchcord.count_turns(uuid[], jsonb) is
  'Counts a turn of the caller in each (locked) pair where the direction changed; held_until is set where the loop budget is spent.';

create function patchcord.count_turns_of(p_from uuid[], p_to uuid[], p_limits jsonb)
returns table (from_agent_uuid uuid, to_agent_uuid uuid, held_until timestamptz)
language plpgsql
as $$
declare
  v_window interval := make_interval(secs => (p_limits ->> 'turnsWindowSeconds')::float8);
begin
  -- A turn is a change of direction; further messages the same way write nothing.
  update patchcord.pairs p set
    turns = case when patchcord.is_pair_fresh(p, v_window) then 0 else p.turns end + coalesce(p.last_from_uuid <> o.me, false)::integer,
    window_started_at = case when patchcord.is_pair_fresh(p, v_window) then clock_timestamp() else p.window_started_at end,
    last_from_uuid = o.me
  from unnest(p_from, p_to) as o (me, you)
  where p.low_uuid = least(o.me, o.you) and p.high_uuid = greatest(o.me, o.you)
    and (p.last_from_uuid is distinct from o.me or patchcord.is_pair_fresh(p, v_window));
  return query
  select o.me, o.you,
    case when p.turns > case
      when exists (
        select from patchcord.presence s
        where s.agent_uuid in (p.low_uuid, p.high_uuid) and s.human_prompt_at > clock_timestamp() - interval '24 hours'
      ) then (p_limits ->> 'turnsMax')::integer
      else (p_limits ->> 'turnsUnattendedMax')::integer
    end then p.window_started_at + v_window end
  from unnest(p_from, p_to) as o (me, you)
    join patchcord.pairs p on p.low_uuid = least(o.me, o.you) and p.high_uuid = greatest(o.me, o.you);
end
$$;
comment on function patchcord.count_turns_of(uuid[], uuid[], jsonb) is
  'The same for pairs of any senders and recipients, each pair once.';

create function patchcord.is_pair_fresh(p_pair patchcord.pairs, p_window interval) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return p_pair.window_started_at + p_window <= clock_timestamp()
    or exists (
      select from patchcord.presence s
      where s.agent_uuid in (p_pair.low_uuid, p_pair.high_uuid) and s.human_prompt_at > p_pair.window_started_at
    );
end
$$;
comment on function patchcord.is_pair_fresh(patchcord.pairs, interval) is
  'Whether a pair''s turns start again from 0: its window is over, or a person has typed on either side since it began.';

create function patchcord.full_inboxes(p_agents uuid[], p_max integer) returns text[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_near uuid[] := patchcord.with_new(p_agents, p_max - 100);
  v_full uuid[];
begin
  if cardinality(v_near) = 0 then
    return '{}';
  end if;
  -- As many sends as run at once could all see the last free place: near the cap they go one at a time, in key order, until
  -- commit, and each counts what was there when its turn came.
  perform pg_advisory_xact_lock(hashtextextended('patchcord.full_inboxes ' || n.id, 0)) from unnest(v_near) as n (id);
  -- Counted once: as a condition it would be for every agent that there is.
  v_full := patchcord.with_new(v_near, p_max);
  return array(select a.name from patchcord.agents a where a.id = any (v_full) order by a.name);
end
$$;
comment on function patchcord.full_inboxes(uuid[], integer) is
  'Names of those agents of the caller''s namespace that already have p_max new messages. Sends to one that is near it wait for each other.';

create function patchcord.with_new(p_agents uuid[], p_min integer) returns uuid[]
language plpgsql
as $$
begin
  return array(
    select a.id from patchcord.agents a
    where a.id = any (p_agents) and a.namespace_uuid = patchcord.claim_namespace() and a.id <> patchcord.claim_agent()
      and (
        select count(*) from (
          select from patchcord.deliveries d
          where d.to_agent_uuid = a.id and d.state = 'new' and d.wake_at is not null limit greatest(p_min, 0)
        ) as counted
      ) >= p_min
    order by a.id
  );
end
$$;
comment on function patchcord.with_new(uuid[], integer) is
  'Those of p_agents, but for the caller, that have at least p_min new messages, by id. Silent notices of resolves are none.';

revoke execute on function
  patchcord.lock_pairs(uuid[]), patchcord.count_turns(uuid[], jsonb), patchcord.count_turns_of(uuid[], uuid[], jsonb),
  patchcord.is_pair_fresh(patchcord.pairs, interval), patchcord.full_inboxes(uuid[], integer),
  patchcord.with_new(uuid[], integer)
from public;
grant execute on function
  patchcord.lock_pairs(uuid[]), patchcord.count_turns(uuid[], jsonb), patchcord.full_inboxes(uuid[], integer)
to patchcord_agent;

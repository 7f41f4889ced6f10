create table patchcord.tokens (
  id uuid primary key default patchcord.uuid_v7(),
  namespace_uuid uuid not null,
  agent_uuid uuid not null,
  hash bytea not null unique check (octet_length(hash) = 32),
  label text not null check (char_length(label) between 1 and 80),
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used_at timestamptz,
  bucket float8,
  bucket_at timestamptz,
  refusals integer not null default 0,
  refused_since timestamptz,
  refused_count integer not null default 0,
  banned_until timestamptz,
  rotated_from uuid,
  foreign key (agent_uuid, namespace_uuid) references patchcord.agents (id, namespace_uuid) on delete cascade
);
comment on table patchcord.tokens is
  'API tokens, one agent each; only the SHA-256 is kept. bucket is the send rate of the token, null while untouched.';
comment on column patchcord.tokens.refusals is 'Calls refused for the rate since the last that passed.';
comment on column patchcord.tokens.refused_count is 'Calls refused for the rate within the minute since refused_since.';
comment on column patchcord.tokens.rotated_from is 'The token whose successor this is.';
create index tokens_namespace on patchcord.tokens (namespace_uuid, created_at desc, id desc);
create index tokens_rotated on patchcord.tokens (rotated_from) where rotated_from is not null;
create index tokens_agent on patchcord.tokens (agent_uuid);
create index tokens_revoked on patchcord.tokens (revoked_at) where revoked_at is not null;
create index tokens_expiring on patchcord.tokens (expires_at) where expires_at is not null;
alter table patchcord.tokens enable row level security;
alter table patchcord.tokens force row level security;
create policy owner_all on patchcord.tokens to current_user using (true) with check (true);

create type patchcord.entrance as (
  outcome text,
  token_id uuid,
  agent_id uuid,
  namespace_id uuid,
  agent text,
  namespace text,
  label text,
  expires_at timestamptz,
  retry_after_seconds integer,
  banned_until timestamptz,
  paused_at timestamptz
);

create function patchcord.enter(p_hash text, p_cost float8, p_limits jsonb)
returns patchcord.entrance
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v record;
  v_burst float8;
  v_per_second float8;
  v_banned_until timestamptz;
  v_is_counted boolean := false;
begin
  if p_cost > 0 then
    v_burst := (p_limits ->> 'sendBurst')::float8;
    v_per_second := (p_limits ->> 'sendPerSecond')::float8;
    -- One update is identity, revocation and bucket at once: 50 parallel calls against a bucket of 30 are 30, and a
    -- revocation binds in the very statement. clock_timestamp() is read again when the row was waited for.
    update patchcord.tokens t set
      bucket = patchcord.refill(t.bucket, t.bucket_at, v_burst, v_per_second)
        - case when patchcord.refill(t.bucket, t.bucket_at, v_burst, v_per_second) >= p_cost then p_cost else 0 end,
      refusals = case
        when patchcord.refill(t.bucket, t.bucket_at, v_burst, v_per_second) >= p_cost then 0 else t.refusals + 1 end,
      bucket_at = greatest(t.bucket_at, clock_timestamp()),
      last_used_at = case when t.revoked_at is null and coalesce(t.expires_at > clock_timestamp(), true)
        then clock_timestamp() else t.last_used_at end
    from patchcord.agents a join patchcord.namespaces n on n.id = a.namespace_uuid
    where t.hash = decode(p_hash, 'hex') and a.id = t.agent_uuid and coalesce(t.banned_until <= clock_timestamp(), true)
    returning t.id, t.agent_uuid, t.namespace_uuid, t.label, t.expires_at, t.revoked_at, t.bucket, t.refusals,
      a.name as agent, n.name as namespace, a.deleted_at, n.paused_at, null::timestamptz as banned_until
    into v;
    v_is_counted := found;
    if v.refusals > 0 then
      v_banned_until := patchcord.count_refusal(v.id, p_limits);
    end if;
  end if;
  -- Calls that cost nothing, and those of a banned token, which write nothing.
  if not v_is_counted then
    select t.id, t.agent_uuid, t.namespace_uuid, t.label, t.expires_at, t.revoked_at, t.bucket, 0 as refusals,
      a.name as agent, n.name as namespace, a.deleted_at, n.paused_at,
      case when t.banned_until > clock_timestamp() then t.banned_until end as banned_until, t.last_used_at
    from patchcord.tokens t
      join patchcord.agents a on a.id = t.agent_uuid
      join patchcord.namespaces n on n.id = a.namespace_uuid
    where t.hash = decode(p_hash, 'hex')
    into v;
    v_banned_until := v.banned_until;
    if v.id is not null and v.revoked_at is null and coalesce(v.expires_at > clock_timestamp(), true)
      and v_banned_until is null
      and coalesce(v.last_used_at < clock_timestamp() - interval '20 s', true) then
      -- Presence needs no better than this, and readers must not wait for each other on the token's row.
      update patchcord.tokens t set last_used_at = clock_timestamp()
      where t.id = (select s.id from patchcord.tokens s where s.id = v.id for no key update skip locked);
    end if;
  end if;
  return (
    case
      when v.id is null then 'token_rejected'
      when v.deleted_at is not null then 'agent_gone'
      when v.revoked_at is not null then 'token_revoked'
      when v.expires_at <= clock_timestamp() then 'token_rejected'
      when v_banned_until is not null then 'banned'
      -- A ban that ended between the two statements: the call was not counted.
      when v.refusals > 0 or p_cost > 0 and not v_is_counted then 'rate_limited'
      -- What costs sends; the rest a person lets go on.
      when p_cost > 0 and v.paused_at is not null then 'paused'
      else 'ok'
    end,
    v.id, v.agent_uuid, v.namespace_uuid, v.agent, v.namespace, v.label, v.expires_at,
    case
      when v_banned_until is not null then greatest(1, ceil(extract(epoch from v_banned_until - clock_timestamp())))
      when v.refusals > 0 then greatest(1, ceil((p_cost - v.bucket) / v_per_second))
    end::integer,
    v_banned_until, v.paused_at
  )::patchcord.entrance;
end
$$;
comment on function patchcord.enter(text, float8, jsonb) is
  'Resolves a token hash (hex) to an identity and takes p_cost from its bucket. Outcome ok, rate_limited, paused, banned, token_rejected, token_revoked or agent_gone.';

create function patchcord.enter_many(p_tokens uuid[], p_limits jsonb) returns setof patchcord.entrance
language plpgsql
as $$
declare
  v_burst float8 := (p_limits ->> 'sendBurst')::float8;
  v_per_second float8 := (p_limits ->> 'sendPerSecond')::float8;
begin
  return query
  update patchcord.tokens t set
    bucket = patchcord.refill(t.bucket, t.bucket_at, v_burst, v_per_second) - 1,
    refusals = 0,
    bucket_at = greatest(t.bucket_at, clock_timestamp()),
    last_used_at = clock_timestamp()
  from patchcord.agents a join patchcord.namespaces n on n.id = a.namespace_uuid
  where t.id = any (p_tokens) and a.id = t.agent_uuid
    and a.deleted_at is null and n.paused_at is null and t.revoked_at is null
    and coalesce(t.expires_at > clock_timestamp(), true) and coalesce(t.banned_until <= clock_timestamp(), true)
    and patchcord.refill(t.bucket, t.bucket_at, v_burst, v_per_second) >= 1
  returning 'ok', t.id, t.agent_uuid, t.namespace_uuid, a.name, n.name, t.label, t.expires_at, null::integer,
    null::timestamptz, null::timestamptz;
end
$$;
comment on function patchcord.enter_many(uuid[], jsonb) is
  'As enter, with the cost of a send, for tokens that are locked: only who may go on is in the answer, and nothing was written of the others.';

create function patchcord.count_refusal(p_token uuid, p_limits jsonb) returns timestamptz
language plpgsql
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_count integer;
  v_until timestamptz;
begin
  update patchcord.tokens t set
    refused_count = case when t.refused_since > v_now - interval '1 minute' then t.refused_count + 1 else 1 end,
    refused_since = case when t.refused_since > v_now - interval '1 minute' then t.refused_since else v_now end
  where t.id = p_token
  returning t.refused_count into v_count;
  if v_count < (p_limits ->> 'refusalsPerMinuteMax')::integer then
    return null;
  end if;
  v_until := v_now + make_interval(secs => (p_limits ->> 'banSeconds')::float8);
  update patchcord.tokens t set banned_until = v_until, refused_since = null, refused_count = 0 where t.id = p_token;
  perform patchcord.log_token('token_banned', p_token, format('%s calls refused within a minute, until %s', v_count,
    to_char(v_until at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')));
  return v_until;
end
$$;
comment on function patchcord.count_refusal(uuid, jsonb) is
  'Notes a call that the (locked) token was refused for its rate; when that is once too often in a minute, until when the token is banned.';

create function patchcord.note_refusal(p_hash text, p_limits jsonb) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  w patchcord.entrance;
begin
  w := patchcord.enter(p_hash, 0, null);
  if w.outcome = 'ok' then
    perform patchcord.count_refusal(w.token_id, p_limits);
  end if;
  return to_jsonb(w);
end
$$;
comment on function patchcord.note_refusal(text, jsonb) is
  'Entry: counts a call of this token that was refused outside of the database as one refused for its rate.';

create function patchcord.refill(p_level float8, p_at timestamptz, p_burst float8, p_per_second float8) returns float8
language sql volatile
as $$
  select case when p_level is null then p_burst else
    least(p_burst, p_level + greatest(0, extract(epoch from clock_timestamp() - p_at)) * p_per_second) end
$$;

create function patchcord.claims_of(p_who patchcord.entrance) returns text
language sql stable
as $$
  select json_build_object(
    'ns', p_who.namespace_id, 'agent', p_who.agent_id, 'token', p_who.token_id,
    'ns_name', p_who.namespace, 'agent_name', p_who.agent)::text
$$;
comment on function patchcord.claims_of(patchcord.entrance) is 'What policies and functions go by: who the caller is, and its names.';

create function patchcord.assume(p_who patchcord.entrance) returns void
language plpgsql
as $$
begin
  perform set_config('request.jwt.claims', patchcord.claims_of(p_who), true);
  perform set_config('role', 'patchcord_agent', true);
end
$$;
comment on function patchcord.assume(patchcord.entrance) is
  'Puts the rest of the transaction under RLS as this agent. Invoker, since a definer may not set a role.';

create function patchcord.enter_agent(p_hash text) returns jsonb
language plpgsql
as $$
declare
  w patchcord.entrance;
begin
  w := patchcord.enter(p_hash, 0, null);
  if w.outcome = 'ok' then
    perform patchcord.assume(w);
  end if;
  return to_jsonb(w);
end
$$;
comment on function patchcord.enter_agent(text) is
  'Entry: first statement of a transaction that goes on as the agent. Check its outcome before the next statement.';

create function patchcord.resolve_token(p_hash text) returns jsonb
language plpgsql
as $$
begin
  return to_jsonb(patchcord.enter(p_hash, 0, null));
end
$$;
comment on function patchcord.resolve_token(text) is 'Entry: who a token is, without acting as it.';

create function patchcord.resolve_tokens(p_hashes text[]) returns jsonb
language plpgsql
as $$
begin
  -- None of them waits for a lock.
  return (
    select jsonb_agg(to_jsonb(patchcord.enter(h.hash, 0, null)) order by h.place)
    from unnest(p_hashes) with ordinality as h (hash, place)
  );
end
$$;
comment on function patchcord.resolve_tokens(text[]) is 'Entry: the same of many, in order.';

create function patchcord.recent_revocations(p_seconds float8, p_tokens uuid[])
returns table (token_uuid uuid, reason text, renamed_seconds_ago float8)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_since timestamptz := v_now - make_interval(secs => p_seconds);
begin
  return query
  select c.id,
    case when t.expires_at <= v_now and t.revoked_at is null then 'expired' when a.deleted_at is not null then 'deleted'
      else 'revoked' end,
    null::float8
  from (
    select r.id from patchcord.tokens r where r.revoked_at > v_since
    union select e.id from patchcord.tokens e where e.expires_at > v_since and e.expires_at <= v_now
    union select o.id from patchcord.agents d join patchcord.tokens o on o.agent_uuid = d.id where d.deleted_at > v_since
    union select unnest(p_tokens)
  ) c (id)
    left join patchcord.tokens t on t.id = c.id
    left join patchcord.agents a on a.id = t.agent_uuid
  where t.id is null or t.revoked_at is not null or t.expires_at <= v_now or a.deleted_at is not null
  union all
  select t.id, 'renamed', extract(epoch from v_now - a.renamed_at)::float8
  from patchcord.agents a join patchcord.tokens t on t.agent_uuid = a.id
  where a.renamed_at > v_since;
end
$$;
comment on function patchcord.recent_revocations(float8, uuid[]) is
  'Entry: tokens that ended in the last p_seconds, those of p_tokens that ended whenever (or never were), and those of agents renamed in p_seconds, with how long ago: what was opened under the old name ends. Names nobody and needs no token.';

revoke execute on function
  patchcord.enter(text, float8, jsonb), patchcord.enter_many(uuid[], jsonb), patchcord.count_refusal(uuid, jsonb), patchcord.note_refusal(text, jsonb),
  patchcord.refill(float8, timestamptz, float8, float8),
  patchcord.claims_of(patchcord.entrance), patchcord.assume(patchcord.entrance), patchcord.enter_agent(text), patchcord.resolve_token(text),
  patchcord.resolve_tokens(text[]), patchcord.recent_revocations(float8, uuid[])
from public;
grant execute on function
  patchcord.enter(text, float8, jsonb), patchcord.note_refusal(text, jsonb), patchcord.claims_of(patchcord.entrance),
  patchcord.assume(patchcord.entrance), patchcord.enter_agent(text), patchcord.resolve_token(text), patchcord.resolve_tokens(text[]), patchcord.recent_revocations(float8, uuid[])
to patchcord_api;

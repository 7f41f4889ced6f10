-- Sends that came while others were under way go in one transaction: one commit, one round trip, locks that are taken in one order,
-- and one look at what many of them ask. Each stays what it would have been alone: its own identity, rate, gate, answer and failure.
create type patchcord.batch_row as (
  hash text,
  "to" text[],
  namespaces text[],
  answers uuid,
  state text,
  content text,
  thread text,
  kind text,
  urgency text,
  key text,
  body_hash text,
  expires_in float8
);

create function patchcord.prepare_batch(p_rows patchcord.batch_row[], p_limits jsonb)
returns table (
  place bigint, claims text, to_agent_uuid uuid, to_agent text, held_until timestamptz, reach text, last_seen_at timestamptz
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_near integer := (p_limits ->> 'newPerRecipientMax')::integer - 100;
  -- What sixteen batches at once, all to one inbox, could add to it before one of them sees the others' rows.
  v_lockable integer := v_near - 16 * 32;
  v_tokens uuid[];
  v_low uuid[];
  v_high uuid[];
  v_recipients uuid[];
  v_places bigint[];
  v_to uuid[];
begin
  -- First all tokens, then all pairs, each in key order, and then only the work of the rows: two batches that cross wait for each
  -- other here and nowhere else. A send that comes alone takes its token and its pairs in the same order.
  perform from patchcord.tokens t
  where t.hash in (select decode(r.hash, 'hex') from unnest(p_rows) as r)
  order by t.id for no key update;
  with sender as materialized (
    select t.agent_uuid as me, t.namespace_uuid, r."to", r.answers
    from unnest(p_rows) with ordinality
      as r (hash, "to", namespaces, answers, state, content, thread, kind, urgency, key, body_hash, expires_in, place)
      join patchcord.tokens t on t.hash = decode(r.hash, 'hex') and t.revoked_at is null
  ), other as (
    select s.me, a.id as you
    from sender s
      join patchcord.agents a on a.namespace_uuid = s.namespace_uuid and a.name = any (s."to") and a.deleted_at is null
    union
    select s.me, m.from_agent_uuid
    from sender s join patchcord.agent_messages m on m.id = s.answers and m.to_agent_uuid = s.me
  ), pair as (
    select distinct least(o.me, o.you) as low, greatest(o.me, o.you) as high from other o where o.me <> o.you
  )
  select array_agg(p.low order by p.low, p.high), array_agg(p.high order by p.low, p.high),
    array(select distinct o.you from other o order by o.you) from pair p
  into v_low, v_high, v_recipients;
  insert into patchcord.pairs (low_uuid, high_uuid)
  select p.low, p.high from unnest(v_low, v_high) as p (low, high)
  where not exists (select from patchcord.pairs k where k.low_uuid = p.low and k.high_uuid = p.high)
  order by 1, 2
  on conflict do nothing;
  perform from unnest(v_low, v_high) as p (low, high)
    join patchcord.pairs k on k.low_uuid = p.low and k.high_uuid = p.high
  order by k.low_uuid, k.high_uuid
  for update of k;
  -- As full_inboxes does, and sooner, since a batch brings many at once.
  perform pg_advisory_xact_lock(hashtextextended('patchcord.full_inboxes ' || u.id, 0)) from (
    select i.id from unnest(v_recipients) as i (id)
    where (
      select count(*) from (
        select from patchcord.deliveries d
        where d.to_agent_uuid = i.id and d.state = 'new' and d.wake_at is not null limit greatest(v_lockable, 0)
      ) as counted
    ) >= v_lockable
    order by i.id
  ) u;
  -- What most sends are: one of its token here, to one agent, of a pair that no other one is of, whose gate is open and whose
  -- inbox is far from full. The others are looked at one by one, after these.
  select array_agg(c.place), array_agg(c.token_id), array_agg(c.you)
  from (
    select r.place, t.id as token_id, a.id as you,
      row_number() over (partition by t.id order by r.place) as of_token,
      row_number() over (partition by least(t.agent_uuid, a.id), greatest(t.agent_uuid, a.id) order by r.place) as of_pair,
      (r.kind = 'report' or not exists (
        select from patchcord.deliveries d
        where d.to_agent_uuid = t.agent_uuid and d.from_agent_uuid = a.id and d.state = 'new' and d.wake_at is not null
      )) and v_near > row_number() over (partition by a.id order by r.place) + (
        select count(*) from (
          select from patchcord.deliveries d
          where d.to_agent_uuid = a.id and d.state = 'new' and d.wake_at is not null limit greatest(v_near, 0)
        ) as counted
      ) as is_open
    from unnest(p_rows) with ordinality
      as r (hash, "to", namespaces, answers, state, content, thread, kind, urgency, key, body_hash, expires_in, place)
      join patchcord.tokens t on t.hash = decode(r.hash, 'hex')
      join patchcord.namespaces n on n.id = t.namespace_uuid
      join patchcord.agents a on a.namespace_uuid = t.namespace_uuid and a.name = r."to"[1] and a.deleted_at is null
    where r.answers is null and r.key is null and r.thread is null and cardinality(r."to") = 1
      and coalesce(r.namespaces[1], n.name) = n.name and a.id <> t.agent_uuid
  ) c
  where c.of_token = 1 and c.of_pair = 1 and c.is_open
  into v_places, v_tokens, v_to;
  if v_places is null then
    return;
  end if;
  return query
  with entered as materialized (
    select c.place, c.you, w.* from patchcord.enter_many(v_tokens, p_limits) w
      join unnest(v_places, v_tokens, v_to) as c (place, token_id, you) on c.token_id = w.token_id
  ), turn as materialized (
    select t.* from patchcord.count_turns_of(
      array(select e.agent_id from entered e order by e.place), array(select e.you from entered e order by e.place), p_limits) t
  )
  select e.place, patchcord.claims_of(
      (e.outcome, e.token_id, e.agent_id, e.namespace_id, e.agent, e.namespace, e.label, e.expires_at, null, null, null)::patchcord.entrance),
    x.agent_uuid, x.agent, t.held_until, x.reach, x.last_seen_at
  from entered e
    join turn t on t.from_agent_uuid = e.agent_id and t.to_agent_uuid = e.you
    join patchcord.reaches(v_to) x on x.agent_uuid = e.you;
end
$$;
comment on function patchcord.prepare_batch(patchcord.batch_row[], jsonb) is
  'Locks the tokens of a batch and the pairs of its senders and recipients until commit. Of its plain sends: who sends, to whom, and how that one is reached; their tokens have paid.';

create function patchcord.send_batch(p_rows jsonb, p_limits jsonb) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
-- Whoever waits for a lock of somebody else waits alone: the batch gives up, and its caller divides it.
set lock_timeout = '100ms'
as $$
declare
  v_rows patchcord.batch_row[] := array(select r from jsonb_populate_recordset(null::patchcord.batch_row, p_rows) as r);
  r patchcord.batch_row;
  f record;
  v_id uuid;
  v_at timestamptz;
  v_wake_at timestamptz;
  v_expires_at timestamptz;
  v_answers jsonb[] := array_fill(null::jsonb, array[cardinality(v_rows)]);
  v_is_late boolean := false;
begin
  for f in select p.* from patchcord.prepare_batch(v_rows, p_limits) p loop
    r := v_rows[f.place];
    perform set_config('request.jwt.claims', f.claims, true), set_config('role', 'patchcord_agent', true);
    v_id := patchcord.uuid_v7();
    v_at := clock_timestamp();
    v_wake_at := case when r.kind <> 'report' then coalesce(f.held_until, v_at) else v_at end;
    v_expires_at := v_at + make_interval(secs => r.expires_in);
    perform patchcord.insert_message(v_id, v_at, array[f.to_agent_uuid], array[f.to_agent], array[v_wake_at], r.content,
      null, null, r.kind, r.urgency, null, v_expires_at);
    v_answers[f.place] := jsonb_build_object(
      'outcome', 'sent', 'message_id', v_id, 'thread', null, 'sent_at', v_at, 'replayed', false, 'expires_at', v_expires_at,
      'recipients', jsonb_build_array(
        patchcord.tell_recipient(f.to_agent, false, f.reach, f.last_seen_at, v_wake_at, v_at)),
      'wakes', case when v_wake_at <= v_at then jsonb_build_array(
        patchcord.tell_wake(v_id, f.to_agent_uuid, f.to_agent, r.kind, r.urgency, null)) else '[]' end,
      'left_out', '[]'::jsonb);
  end loop;
  for v_place in 1 .. cardinality(v_rows) loop
    continue when v_answers[v_place] is not null;
    if v_is_late then
      v_answers[v_place] := '{"outcome": "late"}';
      continue;
    end if;
    r := v_rows[v_place];
    begin
      -- The row before has left its role here.
      perform set_config('role', 'none', true);
      v_answers[v_place] := case when r.answers is null
        then patchcord.send_message(r.hash, r."to", r.namespaces, r.content, r.thread, r.kind, r.urgency,
          r.key, r.body_hash, p_limits, r.expires_in)
        else patchcord.reply_message(r.hash, r.answers, r.content, r.state, r.key, r.body_hash, p_limits) end;
    exception when others then
      -- Undone to its beginning, and it alone. The caller does it again by itself, where its error is its own.
      v_answers[v_place] := '{"outcome": "again"}';
      -- The others of the batch have waited for one lock of somebody: that is enough.
      v_is_late := sqlstate = '55P03';
    end;
  end loop;
  return to_jsonb(v_answers);
end
$$;
comment on function patchcord.send_batch(jsonb, jsonb) is
  'Entry: many sends and answers in one transaction, an outcome for each, in order: as of send_message and reply_message, again (it failed, and was undone), or late (a row before it waited too long for a lock). A row is a batch_row; with answers (an id) it is an answer.';

revoke execute on function
  patchcord.prepare_batch(patchcord.batch_row[], jsonb), patchcord.send_batch(jsonb, jsonb)
from public;
grant execute on function
  patchcord.prepare_batch(patchcord.batch_row[], jsonb), patchcord.send_batch(jsonb, jsonb)
to patchcord_api;

create function patchcord.shown(
  m patchcord.agent_messages, p_from text, p_content text, p_shown_at timestamptz
) returns jsonb
language sql stable
as $$
  select jsonb_build_object(
    'message_id', m.id, 'from', p_from, 'thread', m.thread, 'kind', m.kind, 'urgency', m.urgency,
    'reply_to', m.reply_to, 'sent_at', m.sent_at, 'content', left(p_content, 8000),
    'content_length', char_length(p_content),
    'shown_seconds_ago', floor(extract(epoch from clock_timestamp() - p_shown_at))::integer
  )
$$;
comment on function patchcord.shown(patchcord.agent_messages, text, text, timestamptz) is
  'A message in full, its text cut at 8,000 characters. shown_seconds_ago is null the first time.';

create function patchcord.take_new(
  p_from uuid[], p_thread text, p_due_only boolean, p_max integer, p_tokens_max integer, p_woken uuid[] default '{}'
) returns jsonb
language plpgsql
as $$
declare
  v_me uuid := patchcord.claim_agent();
  v_taken uuid[];
begin
  -- Mostly nothing is new, and this looks at one place of an index where the rest looks at six tables. What another call is just
  -- fetching still reads as new here, and is waited for below.
  if not exists (
    select from patchcord.deliveries d
    where d.to_agent_uuid = v_me and d.state = 'new' and d.wake_at is not null
      and (p_from is null or d.from_agent_uuid = any (p_from))
  ) then
    return '[]'::jsonb;
  end if;
  -- About what the server estimates of each text and what stands around it, rather too much: what is more is cut there.
  -- `offset 0` and `materialized`: before a table has statistics, a plan of one piece reads a full inbox once per message of it.
  with candidate as materialized (
    select d.message_id, m.urgency, m.sent_at
    from patchcord.deliveries d
      cross join lateral (
        select r.urgency, r.sent_at, r.thread from patchcord.agent_messages r
        where r.id = d.message_id and r.to_agent_uuid = d.to_agent_uuid offset 0
      ) m
    where d.to_agent_uuid = v_me and d.state = 'new' and d.wake_at is not null
      and coalesce(d.expires_at > clock_timestamp(), true)
      and (p_from is null or d.from_agent_uuid = any (p_from))
      and (p_thread is null or m.thread = p_thread)
      and (not p_due_only or d.wake_at <= clock_timestamp())
    order by m.urgency <> 'urgent', m.sent_at, d.message_id
    limit p_max
  ), sized as materialized (
    select c.message_id,
      row_number() over shown_order as place,
      sum(230 + patchcord.about_tokens(left(b.content, 8000))) over shown_order as tokens
    from candidate c join patchcord.message_bodies b on b.id = c.message_id
    window shown_order as (order by c.urgency <> 'urgent', c.sent_at, c.message_id)
  ), picked as (
    -- A second fetch waits here for the first and then finds the row no longer new: it is shown again below, not lost.
    select d.message_id, m.kind = 'expired' as is_notice, clock_timestamp() as at
    from patchcord.deliveries d
      join patchcord.agent_messages m on m.id = d.message_id and m.to_agent_uuid = d.to_agent_uuid
    where d.to_agent_uuid = v_me and d.state = 'new' and d.message_id = any (array(
      select z.message_id from sized z where z.tokens <= p_tokens_max or z.place = 1
    ))
    order by d.message_id
    for update of d
  ), taken as (
    -- A notice asks for nothing: to be shown settles it. p_woken: wakes that a wait took and now answers.
    update patchcord.deliveries d set
      state = case when picked.is_notice then 'done' else 'open' end,
      notified_at = case when d.message_id = any (p_woken) then coalesce(d.notified_at, picked.at) else d.notified_at end,
      fetched_at = picked.at,
      done_at = case when picked.is_notice then picked.at end,
      settled_at = case when picked.is_notice then picked.at end
    from picked
    where d.message_id = picked.message_id and d.to_agent_uuid = v_me
    returning d.message_id
  )
  select coalesce(array_agg(message_id), '{}') from taken into v_taken;
  if cardinality(v_taken) = 0 then
    return '[]'::jsonb;
  end if;
  return (
    select jsonb_agg(patchcord.shown(m, patchcord.sender_name(m, a.name), b.content, null) order by m.urgency <> 'urgent', m.sent_at, m.id)
    from patchcord.agent_messages m
      join patchcord.message_bodies b on b.id = m.id
      join patchcord.agents a on a.id = m.from_agent_uuid
    where m.id = any (v_taken) and m.to_agent_uuid = v_me
  );
end
$$;
comment on function patchcord.take_new(uuid[], text, boolean, integer, integer, uuid[]) is
  'Fetches new messages of the caller (new becomes open): urgent first, then oldest, at most p_max and about p_tokens_max, at least one.';

create function patchcord.about_tokens(p_text text) returns float8
language sql immutable
as $$
  select 0.45 * char_length(p_text) + (octet_length(p_text) - char_length(p_text))
    * case when octet_length(p_text) > 2 * char_length(p_text) then 0.75 else 0.3 end
$$;
comment on function patchcord.about_tokens(text) is
  'How many tokens a model needs for a text, by its script and rather too many.';

create function patchcord.sender_name(m patchcord.agent_messages, p_now text) returns text
language sql immutable
as $$
  select case when m.kind = 'expired' then m.from_agent else p_now end
$$;
comment on function patchcord.sender_name(patchcord.agent_messages, text) is
  'Who a message is from: the agent by the name p_now that it has now, or the server.';

create function patchcord.unsettled_lines(p_state text, p_shown_since timestamptz, p_without uuid[]) returns jsonb
language plpgsql stable
as $$
begin
  return (
    select coalesce(jsonb_agg(jsonb_build_object(
      'message_id', m.id, 'from', a.name, 'thread', m.thread, 'kind', m.kind, 'urgency', m.urgency, 'sent_at', m.sent_at,
      'preview', left(regexp_replace(left(b.content, 400), '\s+', ' ', 'g'), 120)
    ) order by m.id), '[]')
    from (
      select d.message_id from patchcord.deliveries d
      where d.to_agent_uuid = patchcord.claim_agent() and d.state = p_state and d.state in ('open', 'deferred')
        and d.message_id <> all (p_without)
        and (p_state = 'deferred' or d.fetched_at <= p_shown_since)
      order by d.message_id limit 50
    ) d
      join patchcord.agent_messages m on m.id = d.message_id and m.to_agent_uuid = patchcord.claim_agent()
      join patchcord.message_bodies b on b.id = d.message_id
      join patchcord.agents a on a.id = m.from_agent_uuid
  );
end
$$;
comment on function patchcord.unsettled_lines(text, timestamptz, uuid[]) is
  'The caller''s open or deferred messages, the oldest 50 at most, one line each; open ones shown after p_shown_since are left out.';

create function patchcord.take_notices(p_tokens_max float8) returns jsonb
language plpgsql
as $$
declare
  v_me uuid := patchcord.claim_agent();
  v_ids uuid[];
begin
  if not exists (
    select from patchcord.deliveries d where d.to_agent_uuid = v_me and d.state = 'new' and d.wake_at is null
  ) then
    return '[]'::jsonb;
  end if;
  -- What a resolve tells is shown once and settles itself: what has no room stays new. The server cuts long ones to what there is.
  v_ids := patchcord.move_deliveries(array(
    select s.message_id from (
      select n.message_id,
        sum(230 + least(270, patchcord.about_tokens(left(b.content, 500)))) over (order by n.message_id) as tokens
      from (
        select d.message_id from patchcord.deliveries d
          cross join lateral (
            select r.kind from patchcord.agent_messages r
            where r.id = d.message_id and r.to_agent_uuid = d.to_agent_uuid offset 0
          ) m
        where d.to_agent_uuid = v_me and d.state = 'new' and d.wake_at is null and m.kind = 'resolved'
        order by d.message_id limit 5
      ) n join patchcord.message_bodies b on b.id = n.message_id
    ) s
    where s.tokens <= p_tokens_max
  ), array['new'], 'done');
  if cardinality(v_ids) = 0 then
    return '[]'::jsonb;
  end if;
  return (
    select jsonb_agg(jsonb_build_object(
      'message_id', m.id, 'from', a.name, 'thread', m.thread, 'reply_to', m.reply_to, 'sent_at', m.sent_at,
      'content', left(b.content, 500), 'content_length', char_length(b.content)
    ) order by m.sent_at, m.id)
    from patchcord.agent_messages m
      join patchcord.message_bodies b on b.id = m.id
      join patchcord.agents a on a.id = m.from_agent_uuid
    where m.id = any (v_ids) and m.to_agent_uuid = v_me
  );
end
$$;
comment on function patchcord.take_notices(float8) is
  'Shows and settles the caller''s notices of resolves: the oldest 5 at most, and no more than take about p_tokens_max.';

create function patchcord.fetch_inbox(p_hash text, p_done uuid[]) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  w patchcord.entrance;
  v_shown_since timestamptz := clock_timestamp() - interval '1 minute';
  v_settled jsonb;
  v_new jsonb;
  v_new_ids uuid[];
  v_new_tokens float8;
  v_again jsonb;
  v_notices jsonb;
begin
  w := patchcord.enter(p_hash, 0, null);
  if w.outcome <> 'ok' then
    return to_jsonb(w);
  end if;
  perform patchcord.assume(w);
  v_settled := case when cardinality(p_done) = 0 then '[]'::jsonb else patchcord.settle(p_done, 'done') end;
  -- An answer names what became of each of p_done, too.
  v_new := patchcord.take_new(null, null, false, 20, 8000 - 45 * cardinality(p_done));
  v_new_ids := array(select (e ->> 'message_id')::uuid from jsonb_array_elements(v_new) as e);
  -- The server cuts new messages so that 500 are left for notices, whatever else the answer holds.
  v_new_tokens := least(8750 - 45 * cardinality(p_done), 8700, (
    select coalesce(sum(230 + patchcord.about_tokens(e ->> 'content')), 0) from jsonb_array_elements(v_new) as e));
  v_again := (
    -- An answer can be lost on its way: what was fetched in the last minute is shown in full once more, and of too much of it
    -- the latest, since the last answer is the one that may be lost. In the order in which it was fetched: the server cuts, too.
    select coalesce(jsonb_agg(patchcord.shown(m, a.name, b.content, d.fetched_at) order by d.fetched_at, m.id), '[]')
    from (
      select s.message_id, s.fetched_at from patchcord.deliveries s
      where s.to_agent_uuid = w.agent_id and s.state = 'open' and s.fetched_at > v_shown_since
        and s.message_id <> all (v_new_ids)
      order by s.fetched_at desc, s.message_id desc limit greatest(0, 20 - cardinality(v_new_ids))
    ) d
      join patchcord.agent_messages m on m.id = d.message_id and m.to_agent_uuid = w.agent_id
      join patchcord.message_bodies b on b.id = d.message_id
      join patchcord.agents a on a.id = m.from_agent_uuid
  );
  -- A statement of its own: within one, what it took would still be counted as new.
  v_notices := patchcord.take_notices(9250 - 45 * cardinality(p_done) - v_new_tokens);
  return (
    select jsonb_build_object(
      'outcome', 'ok', 'agent', w.agent, 'namespace', w.namespace, 'paused_at', w.paused_at,
      'settled', v_settled, 'new', v_new, 'again', v_again, 'notices', v_notices,
      'open', case when (c.counts ->> 'open')::integer > 0
        then patchcord.unsettled_lines('open', v_shown_since, v_new_ids) else '[]' end,
      'deferred', case when (c.counts ->> 'deferred')::integer > 0
        then patchcord.unsettled_lines('deferred', null, '{}') else '[]' end,
      'counts', c.counts
    )
    from (select patchcord.count_inbox() as counts offset 0) c
  ) || patchcord.agents_near();
end
$$;
comment on function patchcord.fetch_inbox(text, uuid[]) is
  'Entry: marks p_done, fetches what is new (20 messages, about 8,000 tokens), and lists what is open, deferred and who is here.';

create function patchcord.count_inbox() returns jsonb
language plpgsql stable
as $$
declare
  v_me uuid := patchcord.claim_agent();
begin
  -- Two counts, each by its index: asked for together, Postgres has none for them and reads every delivery that there is.
  return (
    select jsonb_build_object('new', n.new, 'open', u.open, 'deferred', u.deferred, 'notices', n.notices)
    from (
      select
        count(*) filter (where d.wake_at is not null and coalesce(d.expires_at > clock_timestamp(), true)) as new,
        -- Only what a resolve tells is silent and new.
        count(*) filter (where d.wake_at is null) as notices
      from patchcord.deliveries d
      where d.to_agent_uuid = v_me and d.state = 'new'
    ) n cross join (
      select count(*) filter (where d.state = 'open') as open, count(*) filter (where d.state = 'deferred') as deferred
      from patchcord.deliveries d
      where d.to_agent_uuid = v_me and d.state in ('open', 'deferred')
    ) u
  );
end
$$;
comment on function patchcord.count_inbox() is
  'How many messages of the caller are new, open and deferred now, and how many notices wait beside them.';

create function patchcord.fetch_next(p_hash text, p_from text, p_thread text, p_woken uuid[] default '{}') returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  w patchcord.entrance;
  v_from uuid[];
begin
  w := patchcord.enter(p_hash, 0, null);
  if w.outcome <> 'ok' then
    return to_jsonb(w);
  end if;
  if w.paused_at is not null then
    return jsonb_build_object('outcome', 'paused');
  end if;
  perform patchcord.assume(w);
  if p_from is not null then
    v_from := array(
      select a.id from patchcord.agents a
      where a.namespace_uuid = w.namespace_id and a.name = split_part(p_from, '@', 1)
        and split_part(p_from, '@', 2) in ('', w.namespace)
    );
    if cardinality(v_from) = 0 then
      return jsonb_build_object('outcome', 'unknown', 'unknown', array[p_from], 'agents', patchcord.roster());
    end if;
  end if;
  return jsonb_build_object('outcome', 'ok', 'messages', patchcord.take_new(v_from, p_thread, true, 1, 8000, p_woken));
end
$$;
comment on function patchcord.fetch_next(text, text, text, uuid[]) is
  'Entry: fetches the one message that is next by urgency and age, of one sender or thread if named; an empty list when there is none. p_woken: messages whose wakes this wait has taken. Outcome ok, unknown, paused, or that of the token.';

create function patchcord.peek_inbox(p_hash text, p_state text, p_max integer) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  w patchcord.entrance;
begin
  w := patchcord.enter(p_hash, 0, null);
  if w.outcome <> 'ok' then
    return to_jsonb(w);
  end if;
  perform patchcord.assume(w);
  return jsonb_build_object('outcome', 'ok', 'agent', w.agent, 'namespace', w.namespace) || (
    with waiting as (
      -- A part for each index: one state that is not known yet would have none.
      select d.message_id, d.from_agent_uuid from patchcord.deliveries d
      where p_state = 'new' and d.to_agent_uuid = w.agent_id and d.state = 'new'
        and w.paused_at is null and d.wake_at <= clock_timestamp() and coalesce(d.expires_at > clock_timestamp(), true)
      union all
      select d.message_id, d.from_agent_uuid from patchcord.deliveries d
      where p_state <> 'new' and d.to_agent_uuid = w.agent_id and d.state in ('open', 'deferred') and d.state = p_state
    ), pending as (
      select d.message_id, patchcord.sender_name(l.m, a.name) as "from", (l.m).sent_at,
        case when p_state <> 'new' then left(regexp_replace(left(b.content, 400), '\s+', ' ', 'g'), 120) end as preview
      from waiting d
        cross join lateral (
          select r from patchcord.agent_messages r
          where r.id = d.message_id and r.to_agent_uuid = w.agent_id offset 0
        ) as l (m)
        join patchcord.agents a on a.id = d.from_agent_uuid
        left join patchcord.message_bodies b on b.id = d.message_id and p_state <> 'new'
    )
    select jsonb_build_object(
      'pending_count', (select count(*) from pending),
      'pending', coalesce((
        select jsonb_agg(jsonb_strip_nulls(to_jsonb(p)) order by p.sent_at, p.message_id)
        from (select * from pending order by sent_at, message_id limit p_max) p
      ), '[]')
    )
  );
end
$$;
comment on function patchcord.peek_inbox(text, text, integer) is
  'Entry: what waits in one state, oldest first, changing nothing. Text that is still new is never shown, new ones only when due: in a paused namespace none is.';

create function patchcord.roster() returns jsonb
language sql stable
as $$
  select coalesce(jsonb_agg(r.name), '[]') from (
    select a.name from patchcord.agents a
    where a.namespace_uuid = patchcord.claim_namespace() and a.deleted_at is null
    order by a.name limit 1000
  ) r
$$;
comment on function patchcord.roster() is 'Names of the agents that the caller can write to, for suggesting the right one.';

revoke execute on function
  patchcord.shown(patchcord.agent_messages, text, text, timestamptz), patchcord.sender_name(patchcord.agent_messages, text),
  patchcord.about_tokens(text),
  patchcord.take_new(uuid[], text, boolean, integer, integer, uuid[]), patchcord.unsettled_lines(text, timestamptz, uuid[]),
  patchcord.take_notices(float8), patchcord.fetch_inbox(text, uuid[]), patchcord.count_inbox(),
  patchcord.fetch_next(text, text, text, uuid[]), patchcord.peek_inbox(text, text, integer), patchcord.roster()
from public;
grant execute on function
  patchcord.shown(patchcord.agent_messages, text, text, timestamptz), patchcord.sender_name(patchcord.agent_messages, text),
  patchcord.about_tokens(text),
  patchcord.take_new(uuid[], text, boolean, integer, integer, uuid[]), patchcord.unsettled_lines(text, timestamptz, uuid[]),
  patchcord.take_notices(float8), patchcord.count_inbox(), patchcord.roster()
to patchcord_agent;
grant execute on function
  patchcord.fetch_inbox(text, uuid[]), patchcord.fetch_next(text, text, text, uuid[]),
  patchcord.peek_inbox(text, text, integer)
to patchcord_api;

create function patchcord.find_recalled(
  p_id uuid, p_from text, p_thread text, p_skip integer, p_max integer
) returns uuid[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_sort = off
set jit = off
as $$
declare
  v_me uuid := patchcord.claim_agent();
  v_from uuid;
  v_reach integer := p_skip + p_max;
begin
  -- A history has no end, and a page reads no more of it than it shows: by index, the newest first. Without enable_sort = off a
  -- plan for any limit may read all of it and sort.
  if p_from is not null then
    select a.id into v_from from patchcord.agents a join patchcord.namespaces n on n.id = a.namespace_uuid
    where n.id = patchcord.claim_namespace() and a.name = split_part(p_from, '@', 1)
      and split_part(p_from, '@', 2) in ('', n.name);
    if not found then
      return '{}';
    end if;
  end if;
  -- What the caller wrote, and what it received and has seen. A notice of the server is from and to whom it is for.
  if p_id is not null then
    return array(
      select m.id from patchcord.agent_messages m
      where m.id = p_id and (v_from is null or m.from_agent_uuid = v_from) and (p_thread is null or m.thread = p_thread)
        and (m.from_agent_uuid = v_me and m.kind <> 'expired' or m.to_agent_uuid = v_me and (
          select d.state from patchcord.deliveries d where d.message_id = m.id and d.to_agent_uuid = v_me
        ) not in ('new', 'unsent', 'expired'))
      limit 1
    );
  end if;
  if p_thread is not null then
    return array(
      select r.id from patchcord.threads t cross join lateral (
        select distinct m.sent_at, m.id from patchcord.agent_messages m
        where m.thread_uuid = t.id and (v_from is null or m.from_agent_uuid = v_from)
          and (m.from_agent_uuid = v_me and m.kind <> 'expired' or m.to_agent_uuid = v_me and (
            select d.state from patchcord.deliveries d where d.message_id = m.id and d.to_agent_uuid = v_me
          ) not in ('new', 'unsent', 'expired'))
        order by m.sent_at desc, m.id desc limit v_reach
      ) r
      where t.namespace_uuid = patchcord.claim_namespace() and t.slug = p_thread
      order by r.sent_at desc, r.id desc limit p_max offset p_skip
    );
  end if;
  if v_from is null then
    return array(
      select u.id from (
        (select b.sent_at, b.id from patchcord.message_bodies b
        where b.from_agent_uuid = v_me
          and (select m.kind from patchcord.agent_messages m where m.id = b.id limit 1) <> 'expired'
        order by b.sent_at desc, b.id desc limit v_reach)
        union all
        (select m.sent_at, m.id from patchcord.agent_messages m
        where m.to_agent_uuid = v_me and (m.from_agent_uuid <> v_me or m.kind = 'expired') and (
          select d.state from patchcord.deliveries d where d.message_id = m.id and d.to_agent_uuid = v_me
        ) not in ('new', 'unsent', 'expired')
        order by m.sent_at desc, m.id desc limit v_reach)
      ) u
      order by u.sent_at desc, u.id desc limit p_max offset p_skip
    );
  end if;
  return array(
    select u.id from (
      (select b.sent_at, b.id from patchcord.message_bodies b
      where b.from_agent_uuid = v_me and v_from = v_me
        and (select m.kind from patchcord.agent_messages m where m.id = b.id limit 1) <> 'expired'
      order by b.sent_at desc, b.id desc limit v_reach)
      union all
      (select m.sent_at, m.id from patchcord.agent_messages m
      where m.from_agent_uuid = v_from and m.to_agent_uuid = v_me and (v_from <> v_me or m.kind = 'expired') and (
        select d.state from patchcord.deliveries d where d.message_id = m.id and d.to_agent_uuid = v_me
      ) not in ('new', 'unsent', 'expired')
      order by m.sent_at desc, m.id desc limit v_reach)
    ) u
    order by u.sent_at desc, u.id desc limit p_max offset p_skip
  );
end
$$;
comment on function patchcord.find_recalled(uuid, text, text, integer, integer) is
  'Ids of the caller''s history, newest first: p_id alone, or those from one agent (p_from), of one thread (by its slug), or all; p_max after p_skip.';

create function patchcord.recall_messages(
  p_hash text, p_id uuid, p_from text, p_thread text, p_start integer, p_characters integer, p_skip integer, p_max integer
) returns jsonb
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
  return jsonb_build_object('outcome', 'ok', 'messages', coalesce((
    select jsonb_agg(jsonb_build_object(
      'message_id', i.id, 'from', patchcord.sender_name(m.*, f.name), 'to', t.names, 'thread', m.thread, 'kind', m.kind,
      'urgency', m.urgency, 'reply_to', m.reply_to, 'sent_at', m.sent_at,
      'content', substr(b.content, p_start + 1, p_characters), 'content_length', char_length(b.content)
    ) order by i.place)
    from unnest(patchcord.find_recalled(p_id, p_from, p_thread, p_skip, p_max)) with ordinality as i (id, place)
      cross join lateral (select r.* from patchcord.agent_messages r where r.id = i.id limit 1) m
      cross join lateral (
        select jsonb_agg(a.name order by a.name) as names
        from patchcord.agent_messages r join patchcord.agents a on a.id = r.to_agent_uuid where r.id = i.id
      ) t
      join patchcord.message_bodies b on b.id = i.id
      join patchcord.agents f on f.id = m.from_agent_uuid
  ), '[]'));
end
$$;
comment on function patchcord.recall_messages(text, uuid, text, text, integer, integer, integer, integer) is
  'Entry: a page of the caller''s history, changing nothing: of each text p_characters from p_start on. Text that is still new to the caller is not in it.';

revoke execute on function
  patchcord.find_recalled(uuid, text, text, integer, integer),
  patchcord.recall_messages(text, uuid, text, text, integer, integer, integer, integer)
from public;
grant execute on function patchcord.find_recalled(uuid, text, text, integer, integer) to patchcord_agent;
grant execute on function patchcord.recall_messages(text, uuid, text, text, integer, integer, integer, integer) to patchcord_api;

create function patchcord.tell_recipient(
  p_name text, p_is_me boolean, p_reach text, p_last_seen_at timestamptz, p_wake_at timestamptz, p_at timestamptz
) returns jsonb
language sql stable
as $$
  select jsonb_build_object(
    'agent', p_name, 'state', case when p_is_me then 'deferred' else 'new' end,
    'reach', case when p_is_me then 'self' else p_reach end, 'last_seen_at', p_last_seen_at,
    'held_until', case when p_wake_at > p_at then p_wake_at end
  )
$$;
comment on function patchcord.tell_recipient(text, boolean, text, timestamptz, timestamptz, timestamptz) is
  'What the sender is told of a recipient.';

create function patchcord.tell_wake(
  p_id uuid, p_to uuid, p_name text, p_kind text, p_urgency text, p_thread text
) returns jsonb
language sql stable
as $$
  select jsonb_build_object(
    'id', p_id, 'toNamespaceId', patchcord.claim_namespace(), 'toAgentId', p_to, 'from', patchcord.claim('agent_name'),
    'to', p_name, 'namespace', patchcord.claim('ns_name'), 'kind', p_kind, 'urgency', p_urgency, 'thread', p_thread
  )
$$;
comment on function patchcord.tell_wake(uuid, uuid, text, text, text, text) is 'A wake of a message that the caller sends.';

revoke execute on function
  patchcord.tell_recipient(text, boolean, text, timestamptz, timestamptz, timestamptz),
  patchcord.tell_wake(uuid, uuid, text, text, text, text)
from public;
grant execute on function
  patchcord.tell_recipient(text, boolean, text, timestamptz, timestamptz, timestamptz),
  patchcord.tell_wake(uuid, uuid, text, text, text, text)
to patchcord_agent;

create index message_bodies_namespace on patchcord.message_bodies (from_namespace_uuid, sent_at desc, id desc);
create index agent_messages_kind on patchcord.agent_messages (from_namespace_uuid, kind, sent_at desc, id desc)
  where kind <> 'message';
create index deliveries_ended on patchcord.deliveries (to_agent_uuid, state, message_id)
  where state not in ('new', 'open', 'deferred');

create function patchcord.candidates_of(p_filters jsonb) returns text
language sql immutable
as $$
  -- Each is in the order of a list, newest first, and reads no more than $5 rows of each index. $1 namespace, $2 and $3 where the
  -- page before ended, $4 the filters, $5 how many, $6 words.
  select case
    when p_filters ->> 'words' is not null then $q$
      select w.sent_at, w.message_id as id from patchcord.find_words($1, $6, $2, $3, $5) w
      order by w.sent_at desc, w.message_id desc $q$
    when p_filters ->> 'thread' is not null then $q$
      select m.sent_at, m.id from patchcord.threads t cross join lateral (
        select distinct on (x.sent_at, x.id) x.sent_at, x.id from patchcord.agent_messages x
        where x.thread_uuid = t.id and (x.sent_at, x.id) < ($2, $3) order by x.sent_at desc, x.id desc limit $5
      ) m
      where t.namespace_uuid = $1 and t.slug = $4 ->> 'thread'
      order by 1 desc, 2 desc limit $5 $q$
    when p_filters ->> 'state' is not null then format($q$
      select m.sent_at, m.id from (
        select distinct d.message_id from patchcord.agents a cross join lateral (
          select x.message_id from patchcord.deliveries x
          where x.to_agent_uuid = a.id and x.state = %L and x.message_id < $3 order by x.message_id desc limit $5
        ) d
        where a.namespace_uuid = $1 %s
        order by d.message_id desc limit $5
      ) d join patchcord.message_bodies m on m.id = d.message_id
      order by m.id desc $q$, p_filters ->> 'state',
      case when p_filters ->> 'direction' = 'to' then 'and a.id = ($4 ->> ''agent'')::uuid' else '' end)
    when p_filters ->> 'agent' is not null then 'select u.sent_at, u.id from (' || concat_ws(' union ',
      case when p_filters ->> 'direction' is distinct from 'to' then $q$
        (select b.sent_at, b.id from patchcord.message_bodies b
        where b.from_agent_uuid = ($4 ->> 'agent')::uuid and b.sent_at <= $2 and (b.sent_at, b.id) < ($2, $3)
        order by b.sent_at desc, b.id desc limit $5) $q$ end,
      case when p_filters ->> 'direction' is distinct from 'from' then $q$
        (select m.sent_at, m.id from patchcord.agent_messages m
        where m.to_agent_uuid = ($4 ->> 'agent')::uuid and m.sent_at <= $2 and (m.sent_at, m.id) < ($2, $3)
        order by m.sent_at desc, m.id desc limit $5) $q$ end
    ) || ') u order by u.sent_at desc, u.id desc limit $5'
    when p_filters ->> 'kind' <> 'message' then format($q$
      select distinct on (m.sent_at, m.id) m.sent_at, m.id from patchcord.agent_messages m
      where m.from_namespace_uuid = $1 and m.kind = %L and m.kind <> 'message' and (m.sent_at, m.id) < ($2, $3)
      order by m.sent_at desc, m.id desc limit $5 $q$, p_filters ->> 'kind')
    else $q$
      select b.sent_at, b.id from patchcord.message_bodies b
      where b.from_namespace_uuid = $1 and (b.sent_at, b.id) < ($2, $3) order by b.sent_at desc, b.id desc limit $5 $q$
  end
$$;
comment on function patchcord.candidates_of(jsonb) is
  'The query for messages that may pass the filters, by the index of the filter that leaves fewest.';

create function patchcord.condition_of(p_filters jsonb) returns text
language sql immutable
as $$
  -- Written out, and only what is asked for: it is tried on each candidate c.
  select concat_ws(' and ',
    case when p_filters ? 'words' then format(
      '(select w.words @@ %L::tsquery from patchcord.message_words w where w.message_id = c.id)', p_filters ->> 'words') end,
    case when p_filters ?| array['words', 'agent', 'state', 'kind', 'thread'] then format($q$ (
      select true from patchcord.agent_messages m
        join patchcord.deliveries d on d.message_id = m.id and d.to_agent_uuid = m.to_agent_uuid
      where m.id = c.id and m.from_namespace_uuid = $1 %s %s %s %s %s limit 1) $q$,
      -- Nobody is shown what was taken back unread, and so nobody finds it by its words.
      case when p_filters ? 'words' then $q$ and d.state <> 'unsent' $q$ end,
      case when p_filters ? 'state' then format('and d.state = %L', p_filters ->> 'state') end,
      case when p_filters ? 'kind' then format('and m.kind = %L', p_filters ->> 'kind') end,
      case when p_filters ? 'thread' then format('and m.thread = %L', p_filters ->> 'thread') end,
      case when p_filters ? 'agent' then format(
        case p_filters ->> 'direction' when 'to' then 'and m.to_agent_uuid = %1$L'
          when 'from' then $q$ and m.from_agent_uuid = %1$L and m.kind <> 'expired' $q$
          else $q$ and (m.to_agent_uuid = %1$L or m.from_agent_uuid = %1$L and m.kind <> 'expired') $q$ end,
        p_filters ->> 'agent') end
    ) end)
$$;
comment on function patchcord.condition_of(jsonb) is
  'The condition on a message c that passes the filters: one of its recipients does. Empty when there are none.';

create function patchcord.check_member() returns uuid
language plpgsql stable
as $$
begin
  if patchcord.claim_namespace() is null or patchcord.claim('member_role') is null then
    raise insufficient_privilege using message = 'only for members of a namespace';
  end if;
  return patchcord.claim_namespace();
end
$$;
comment on function patchcord.check_member() is
  'The namespace that the caller is in as a member; an agent has claims of one, too, and sees its own messages only.';

create function patchcord.find_messages(p_filters jsonb, p_before_at timestamptz, p_before_id uuid, p_max integer) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ns uuid := patchcord.check_member();
  v_at timestamptz := coalesce(p_before_at, 'infinity');
  v_id uuid := coalesce(p_before_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  v_filters jsonb := jsonb_strip_nulls(p_filters);
  v_words tsquery;
  v_are_common boolean;
  v_condition text;
  v_ids uuid[] := '{}';
  v_found uuid[];
  v_looked integer := 0;
  v_chunk integer := p_max + 1;
  v_looked_max integer := case when p_filters ->> 'text' is null then 2000 else 1000 end;
  v_count integer;
begin
  if v_filters ? 'agent' then
    v_filters := jsonb_set(v_filters, '{agent}', coalesce((
      select to_jsonb(a.id) from patchcord.agents a where a.namespace_uuid = v_ns and a.name = v_filters ->> 'agent'), 'null'));
  end if;
  if v_filters ? 'text' then
    -- What came since the last time that somebody did.
    perform patchcord.index_words(500);
    v_words := patchcord.to_words(v_filters ->> 'text');
    v_filters := v_filters || jsonb_build_object('words', v_words::text);
  end if;
  if v_filters ->> 'words' = '' or v_filters -> 'agent' = 'null' then
    return jsonb_build_object('ids', '[]'::jsonb, 'next', null);
  end if;
  v_condition := patchcord.condition_of(v_filters);
  -- More at a time, the fewer there are: what has hardly any of what is asked for ends in a page that says how far it looked. Words
  -- are looked for among the newest first: where they are frequent, the index would name them all.
  loop
    if v_words is not null and v_are_common is null and v_looked >= 300 then
      -- Those of a phrase, mostly, which stand in every other message, but not side by side.
      select count(*) > 100 from (
        select b.id from patchcord.message_bodies b where b.from_namespace_uuid = v_ns
        order by b.sent_at desc, b.id desc limit 300
      ) n join patchcord.message_words w on w.message_id = n.id
      where w.words @@ patchcord.without_order(v_words)
      into v_are_common;
    end if;
    execute format($q$
      with candidate as materialized (select c.*, row_number() over () as place from (%s) c)
      select array_agg(c.id order by c.place) filter (where %s),
        count(*), max(c.sent_at) filter (where c.place = t.places), (array_agg(c.id) filter (where c.place = t.places))[1]
      from candidate c cross join (select count(*) as places from candidate) t $q$,
      patchcord.candidates_of(case when v_looked < 300 or v_are_common then v_filters - 'words' else v_filters end),
      coalesce(nullif(v_condition, ''), 'true'))
      into v_found, v_count, v_at, v_id using v_ns, v_at, v_id, v_filters, v_chunk, v_words;
    v_ids := v_ids || coalesce(v_found, '{}');
    v_looked := v_looked + v_count;
    exit when v_count < v_chunk or cardinality(v_ids) > p_max or v_looked >= v_looked_max;
    v_chunk := case when v_looked < 300 then 5 * v_chunk else 1000 end;
  end loop;
  return jsonb_build_object(
    'ids', to_jsonb(v_ids[:p_max]),
    'next', case
      when cardinality(v_ids) > p_max then (
        select jsonb_build_object('sent_at', b.sent_at, 'id', b.id) from patchcord.message_bodies b where b.id = v_ids[p_max])
      when v_count = v_chunk then jsonb_build_object('sent_at', v_at, 'id', v_id)
    end);
end
$$;
comment on function patchcord.find_messages(jsonb, timestamptz, uuid, integer) is
  'Ids of messages of the caller''s namespace that pass the filters agent, direction, state, kind, thread and text: newest first, at most p_max, after the place where a page before ended; next: where this one did, null when there is no more.';

revoke execute on function
  patchcord.candidates_of(jsonb), patchcord.condition_of(jsonb), patchcord.check_member(),
  patchcord.find_messages(jsonb, timestamptz, uuid, integer)
from public;
grant execute on function patchcord.find_messages(jsonb, timestamptz, uuid, integer) to patchcord_person;

-- Three tables where one would tempt: the text once per message; one insert-only row per recipient without text, which is
-- what Realtime publishes; state and times beside it (migration `delivery`). What changes is never published.
create table patchcord.message_bodies (
  id uuid primary key default patchcord.uuid_v7(),
  from_namespace_uuid uuid not null,
  from_agent_uuid uuid not null,
  content text not null check (char_length(content) between 1 and 1000000),
  sent_at timestamptz not null default clock_timestamp(),
  foreign key (from_agent_uuid, from_namespace_uuid) references patchcord.agents (id, namespace_uuid)
);
comment on table patchcord.message_bodies is 'The text of a message, once however many recipients it has.';
create index message_bodies_from on patchcord.message_bodies (from_agent_uuid, sent_at desc);

create table patchcord.agent_messages (
  id uuid not null references patchcord.message_bodies (id) on delete cascade,
  from_namespace_uuid uuid not null,
  to_namespace_uuid uuid not null,
  from_agent_uuid uuid not null,
  to_agent_uuid uuid not null,
  namespace_id text not null,
  from_agent text not null,
  to_agent text not null,
  thread_uuid uuid references patchcord.threads (id),
  thread text,
  kind text not null check (kind in ('message', 'question', 'report', 'heads-up', 'request', 'resolved', 'expired')),
  urgency text not null check (urgency in ('fyi', 'normal', 'urgent')),
  reply_to uuid,
  sent_at timestamptz not null default clock_timestamp(),
  wake_at timestamptz,
  primary key (id, to_agent_uuid),
  foreign key (from_agent_uuid, from_namespace_uuid) references patchcord.agents (id, namespace_uuid),
  foreign key (to_agent_uuid, to_namespace_uuid) references patchcord.agents (id, namespace_uuid)
);
comment on table patchcord.agent_messages is
  'One row per message and recipient, insert-only, without the text: the table that Realtime publishes. Names are as of sending. A notice of the server is from `patchcord` and, by its id, from the agent that it is for.';
comment on column patchcord.agent_messages.namespace_id is 'Name of the recipient''s namespace, for people; rows key on the UUIDs.';
comment on column patchcord.agent_messages.wake_at is
  'When the recipient may be woken: null never (silent), later than sent_at when the loop budget holds it.';
create index agent_messages_to on patchcord.agent_messages (to_agent_uuid, sent_at desc);
create index agent_messages_from on patchcord.agent_messages (from_agent_uuid, to_agent_uuid, sent_at desc);
create index agent_messages_thread on patchcord.agent_messages (thread_uuid, sent_at desc, id desc) where thread_uuid is not null;

alter table patchcord.message_bodies enable row level security;
alter table patchcord.message_bodies force row level security;
alter table patchcord.agent_messages enable row level security;
alter table patchcord.agent_messages force row level security;
create policy owner_all on patchcord.message_bodies to current_user using (true) with check (true);
create policy owner_all on patchcord.agent_messages to current_user using (true) with check (true);

create policy agent_reads_own on patchcord.agent_messages for select to patchcord_agent
  using (to_agent_uuid = (select patchcord.claim_agent()) or from_agent_uuid = (select patchcord.claim_agent()));
create policy agent_sends on patchcord.agent_messages for insert to patchcord_agent
  with check (
    from_agent_uuid = (select patchcord.claim_agent())
    and from_namespace_uuid = (select patchcord.claim_namespace())
    and to_namespace_uuid = (select patchcord.claim_namespace())
    and namespace_id = (select patchcord.claim('ns_name'))
    and from_agent = (select patchcord.claim('agent_name'))
    and to_agent = (select a.name from patchcord.agents a where a.id = agent_messages.to_agent_uuid)
  );
create policy ticket_reads_own on patchcord.agent_messages for select to patchcord_ticket
  using (to_agent_uuid = (select patchcord.claim_agent()) and (select patchcord.claim_is_live()));
create policy agent_reads_own on patchcord.message_bodies for select to patchcord_agent
  using (
    from_agent_uuid = (select patchcord.claim_agent())
    or exists (
      select from patchcord.agent_messages m
      where m.id = message_bodies.id and m.from_agent_uuid = message_bodies.from_agent_uuid
        and m.to_agent_uuid = (select patchcord.claim_agent())
    )
  );
create policy agent_sends on patchcord.message_bodies for insert to patchcord_agent
  with check (
    from_agent_uuid = (select patchcord.claim_agent())
    and from_namespace_uuid = (select patchcord.claim_namespace())
  );
grant select, insert on patchcord.message_bodies, patchcord.agent_messages to patchcord_agent;
grant select on patchcord.agent_messages to patchcord_ticket;

create function patchcord.find_recipients(p_to text[], p_namespaces text[])
returns table (address text, agent_uuid uuid)
language sql stable
as $$
  select distinct on (r.place) r.name || coalesce('@' || r.namespace, ''), a.id
  from unnest(p_to, p_namespaces) with ordinality as r (name, namespace, place)
    left join patchcord.namespaces n on n.id = patchcord.claim_namespace() and n.name = coalesce(r.namespace, n.name)
    left join patchcord.agents a on a.namespace_uuid = n.id and a.name = r.name and a.deleted_at is null
  order by r.place
$$;
comment on function patchcord.find_recipients(text[], text[]) is
  'The agent of each address; null for an unknown one and, just so, for one of another namespace.';

create function patchcord.insert_message(
  p_id uuid, p_at timestamptz, p_to uuid[], p_names text[], p_wake_ats timestamptz[], p_content text, p_thread_uuid uuid,
  p_thread text, p_kind text, p_urgency text, p_reply_to uuid, p_expires_at timestamptz
) returns void
language plpgsql
as $$
declare
  v_me uuid := patchcord.claim_agent();
  v_ns uuid := patchcord.claim_namespace();
begin
  insert into patchcord.message_bodies (id, from_namespace_uuid, from_agent_uuid, content, sent_at)
  values (p_id, v_ns, v_me, p_content, p_at);
  insert into patchcord.agent_messages (
    id, from_namespace_uuid, to_namespace_uuid, from_agent_uuid, to_agent_uuid, namespace_id, from_agent, to_agent,
    thread_uuid, thread, kind, urgency, reply_to, sent_at, wake_at
  )
  select p_id, v_ns, v_ns, v_me, r.id, patchcord.claim('ns_name'), patchcord.claim('agent_name'), r.name,
    p_thread_uuid, p_thread, p_kind, p_urgency, p_reply_to, p_at, r.wake_at
  from unnest(p_to, p_names, p_wake_ats) as r (id, name, wake_at);
  insert into patchcord.deliveries (
    message_id, to_agent_uuid, from_agent_uuid, state, wake_at, held, deferred_at, expires_at
  )
  select p_id, r.id, v_me, case when r.id = v_me then 'deferred' else 'new' end, r.wake_at,
    coalesce(r.wake_at > p_at, false), case when r.id = v_me then p_at end, case when r.id <> v_me then p_expires_at end
  from unnest(p_to, p_wake_ats) as r (id, wake_at);
end
$$;
comment on function patchcord.insert_message(
  uuid, timestamptz, uuid[], text[], timestamptz[], text, uuid, text, text, text, uuid, timestamptz
) is 'The rows of one message from the caller, under its claims. p_wake_ats: null for never.';

create function patchcord.store_message(
  p_recipients uuid[], p_content text, p_thread_uuid uuid, p_thread text, p_kind text, p_urgency text, p_reply_to uuid,
  p_limits jsonb, p_silent boolean, p_expires_in float8
) returns jsonb
language plpgsql
as $$
declare
  v_me uuid := patchcord.claim_agent();
  v_id uuid := patchcord.uuid_v7();
  v_at timestamptz := clock_timestamp();
  v_expires_at timestamptz := v_at + make_interval(secs => p_expires_in);
  v_to uuid[];
  v_names text[];
  v_wake_ats timestamptz[];
  v_answer jsonb;
begin
  -- Several small statements: Postgres sets up each node of a plan anew at every call, and one statement for all of this, with
  -- the policies of three tables in it, took longer.
  select array_agg(a.id order by a.name), array_agg(a.name order by a.name), array_agg(
    case when p_silent or a.id = v_me then null
      when p_kind <> 'report' then coalesce(l.held_until, v_at) else v_at end order by a.name)
  from patchcord.agents a left join patchcord.count_turns(p_recipients, p_limits) l on l.agent_uuid = a.id
  where a.id = any (p_recipients)
  into v_to, v_names, v_wake_ats;
  perform patchcord.insert_message(v_id, v_at, v_to, v_names, v_wake_ats, p_content, p_thread_uuid, p_thread, p_kind,
    p_urgency, p_reply_to, v_expires_at);
  select jsonb_build_object(
    'outcome', 'sent', 'message_id', v_id, 'thread', p_thread, 'sent_at', v_at, 'replayed', false,
    'expires_at', case when bool_or(r.id <> v_me) then v_expires_at end,
    'recipients', jsonb_agg(
      patchcord.tell_recipient(r.name, r.id = v_me, x.reach, x.last_seen_at, r.wake_at, v_at) order by r.name),
    'wakes', coalesce(jsonb_agg(patchcord.tell_wake(v_id, r.id, r.name, p_kind, p_urgency, p_thread))
      filter (where r.wake_at <= v_at), '[]')
  )
  from unnest(v_to, v_names, v_wake_ats) as r (id, name, wake_at)
    left join patchcord.reach_of(v_to) x on x.agent_uuid = r.id
  into v_answer;
  if p_reply_to is not null then
    -- Whatever state it is in: what was done or resolved, or is kept for later, has its answer from now on.
    update patchcord.deliveries d set answered_at = v_at
    where d.message_id = p_reply_to and d.to_agent_uuid = v_me and d.answered_at is null;
  end if;
  return v_answer;
end
$$;
comment on function patchcord.store_message(uuid[], text, uuid, text, text, text, uuid, jsonb, boolean, float8) is
  'Stores one message for recipients that were checked and whose pairs are locked; the answer to its sender, and the wakes.';

-- An entry function runs some thirty statements that find rows by key. Planned anew for the arrays of each call, as Postgres
-- would, they cost twice what running them does: hence plan_cache_mode.
create function patchcord.send_message(
  p_hash text, p_to text[], p_namespaces text[], p_content text, p_thread text, p_kind text, p_urgency text,
  p_key text, p_body_hash text, p_limits jsonb, p_expires_in float8 default null
) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  w patchcord.entrance;
  v_answer jsonb;
begin
  w := patchcord.enter(p_hash, 1, p_limits);
  if w.outcome <> 'ok' then
    return to_jsonb(w);
  end if;
  perform patchcord.assume(w);
  v_answer := patchcord.replay(p_key, p_body_hash);
  if v_answer is not null then
    return v_answer;
  end if;
  return patchcord.remember(p_key,
    patchcord.send_as_me(p_to, p_namespaces, p_content, p_thread, p_kind, p_urgency, p_limits, p_expires_in));
end
$$;
comment on function patchcord.send_message(text, text[], text[], text, text, text, text, text, text, jsonb, float8) is
  'Entry: one send in one round trip. Outcome sent, gated, unknown, inbox_full, conflict, rate_limited, or that of the token. p_to null: everyone here whose inbox is not full. p_expires_in: seconds, null for ever.';

create function patchcord.send_as_me(
  p_to text[], p_namespaces text[], p_content text, p_thread text, p_kind text, p_urgency text, p_limits jsonb,
  p_expires_in float8
) returns jsonb
language plpgsql
as $$
declare
  v_recipients uuid[];
  v_unknown text[] := '{}';
  v_blocked jsonb;
  v_full text[];
  v_reached uuid[];
  v_thread uuid;
begin
  if p_to is null then
    v_recipients := array(
      select a.id from patchcord.agents a
      where a.namespace_uuid = patchcord.claim_namespace() and a.id <> patchcord.claim_agent() and a.deleted_at is null
    );
  else
    -- Whose address is plain is found by one look; who else, or who is unknown, by another.
    v_recipients := array(
      select a.id from patchcord.agents a
      where a.namespace_uuid = patchcord.claim_namespace() and a.name = any (p_to) and a.deleted_at is null
    );
    if cardinality(v_recipients) <> cardinality(p_to) or cardinality(array_remove(p_namespaces, null)) > 0 then
      select array_agg(distinct r.agent_uuid) filter (where r.agent_uuid is not null),
        coalesce(array_agg(r.address) filter (where r.agent_uuid is null), '{}')
      from patchcord.find_recipients(p_to, p_namespaces) r into v_recipients, v_unknown;
    end if;
  end if;
  -- A list is all or nothing.
  if cardinality(v_unknown) > 0 or coalesce(cardinality(v_recipients), 0) = 0 then
    return jsonb_build_object('outcome', 'unknown', 'unknown', v_unknown, 'agents', patchcord.roster());
  end if;
  -- Two agents that write to each other at once would both pass the gate; the pair's row lets one go first.
  perform patchcord.lock_pairs(v_recipients);
  if p_to is not null and p_kind <> 'report' and exists (
    select from patchcord.deliveries d
    where d.to_agent_uuid = patchcord.claim_agent() and d.from_agent_uuid = any (v_recipients)
      and d.state = 'new' and d.wake_at is not null
  ) then
    -- What closes the gate is fetched by being shown, and this must outlive the refusal: an outcome, not an exception.
    v_blocked := patchcord.take_new(array_remove(v_recipients, patchcord.claim_agent()), null, false, 20, 8000);
    if jsonb_array_length(v_blocked) > 0 then
      return jsonb_build_object('outcome', 'gated', 'messages', v_blocked);
    end if;
  end if;
  v_full := patchcord.full_inboxes(v_recipients, (p_limits ->> 'newPerRecipientMax')::integer);
  -- One agent that reads nothing must not silence everybody: a send to all goes to the others, and the answer names it.
  v_reached := case when p_to is not null or cardinality(v_full) = 0 then v_recipients else array(
    select a.id from patchcord.agents a where a.id = any (v_recipients) and a.name <> all (v_full)
  ) end;
  if cardinality(v_full) > 0 and (p_to is not null or cardinality(v_reached) = 0) then
    return jsonb_build_object('outcome', 'inbox_full', 'full', v_full);
  end if;
  if p_thread is not null then
    v_thread := patchcord.open_thread(p_thread, v_reached);
  end if;
  return patchcord.store_message(
    v_reached, p_content, v_thread, p_thread, p_kind, p_urgency, null, p_limits, false, p_expires_in)
    || jsonb_build_object('left_out', (
      select coalesce(jsonb_agg(jsonb_build_object('agent', f.name, 'reason', 'inbox_full') order by f.place), '[]')
      from unnest(v_full) with ordinality as f (name, place)));
end
$$;
comment on function patchcord.send_as_me(text[], text[], text, text, text, text, jsonb, float8) is
  'The work of a send, under the caller''s claims: recipients, pair locks, gate, cap, insert.';

create function patchcord.reply_message(
  p_hash text, p_id uuid, p_content text, p_state text, p_key text, p_body_hash text, p_limits jsonb
) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  w patchcord.entrance;
  v_answer jsonb;
begin
  w := patchcord.enter(p_hash, case when p_content is null then 0 else 1 end, p_limits);
  if w.outcome <> 'ok' then
    return to_jsonb(w);
  end if;
  perform patchcord.assume(w);
  v_answer := patchcord.replay(p_key, p_body_hash);
  if v_answer is not null then
    return v_answer;
  end if;
  return patchcord.remember(p_key, patchcord.reply_as_me(p_id, p_content, p_state, p_limits));
end
$$;
comment on function patchcord.reply_message(text, uuid, text, text, text, text, jsonb) is
  'Entry: answers, defers or resolves a message that the caller received. Outcome sent, settled, unseen, notice, resolved_before, not_found, or as of send_message.';

create function patchcord.reply_as_me(p_id uuid, p_content text, p_state text, p_limits jsonb) returns jsonb
language plpgsql
as $$
declare
  v_me uuid := patchcord.claim_agent();
  m record;
  v_full text[];
  v_moved uuid[];
  v_answer jsonb := jsonb_build_object('outcome', 'settled');
begin
  select r.id, r.thread_uuid, r.thread, r.kind, r.from_agent_uuid, a.name, a.deleted_at, d.state into m
  from patchcord.agent_messages r
    join patchcord.deliveries d on d.message_id = r.id and d.to_agent_uuid = r.to_agent_uuid
      and d.state not in ('unsent', 'expired')
    join patchcord.agents a on a.id = r.from_agent_uuid
  where r.id = p_id and r.to_agent_uuid = v_me;
  if not found then
    return jsonb_build_object('outcome', 'not_found');
  end if;
  if m.state = 'new' then
    -- Nobody has seen it: settling it would hide its text for good.
    return jsonb_build_object('outcome', 'unseen');
  end if;
  if m.kind = 'expired' then
    return jsonb_build_object('outcome', 'notice');
  end if;
  if p_content is not null then
    if m.deleted_at is not null then
      return jsonb_build_object('outcome', 'unknown', 'unknown', array[m.name], 'agents', '[]'::jsonb);
    end if;
    perform patchcord.lock_pairs(array[m.from_agent_uuid]);
    v_full := patchcord.full_inboxes(array[m.from_agent_uuid], (p_limits ->> 'newPerRecipientMax')::integer);
    if cardinality(v_full) > 0 then
      return jsonb_build_object('outcome', 'inbox_full', 'full', v_full);
    end if;
  end if;
  v_moved := patchcord.move_deliveries(array[p_id],
    case p_state when 'resolved' then array['open', 'deferred', 'answered', 'done']
      else array['open', 'deferred'] end, p_state);
  if p_state = 'resolved' and p_content is not null and cardinality(v_moved) = 0 then
    -- One message, one notice: whoever resolves it again would fill the sender's inbox with them.
    return jsonb_build_object('outcome', 'resolved_before');
  end if;
  if p_content is not null then
    v_answer := patchcord.store_message(array[m.from_agent_uuid], p_content, m.thread_uuid, m.thread,
      case p_state when 'resolved' then 'resolved' else 'message' end, 'normal', p_id, p_limits, p_state = 'resolved', null);
  end if;
  -- After the rows of deliveries, wherever both are written: two sessions of one agent would wait for each other.
  update patchcord.threads set
    last_message_at = case when p_content is null then last_message_at else clock_timestamp() end,
    resolved_at = case when p_state = 'resolved' then clock_timestamp() end,
    resolved_by_uuid = case when p_state = 'resolved' then v_me end
  where id = m.thread_uuid and (p_content is not null or p_state = 'resolved' and resolved_at is null);
  return v_answer || jsonb_build_object('settled', (
    select d.state from patchcord.deliveries d where d.message_id = p_id and d.to_agent_uuid = v_me));
end
$$;
comment on function patchcord.reply_as_me(uuid, text, text, jsonb) is
  'The work of a reply, under the caller''s claims. p_state (answered, deferred, resolved) is what the message becomes.';

revoke execute on function
  patchcord.find_recipients(text[], text[]),
  patchcord.insert_message(uuid, timestamptz, uuid[], text[], timestamptz[], text, uuid, text, text, text, uuid, timestamptz),
  patchcord.store_message(uuid[], text, uuid, text, text, text, uuid, jsonb, boolean, float8),
  patchcord.send_message(text, text[], text[], text, text, text, text, text, text, jsonb, float8),
  patchcord.send_as_me(text[], text[], text, text, text, text, jsonb, float8),
  patchcord.reply_message(text, uuid, text, text, text, text, jsonb),
  patchcord.reply_as_me(uuid, text, text, jsonb)
from public;
grant execute on function
  patchcord.find_recipients(text[], text[]),
  patchcord.insert_message(uuid, timestamptz, uuid[], text[], timestamptz[], text, uuid, text, text, text, uuid, timestamptz),
  patchcord.store_message(uuid[], text, uuid, text, text, text, uuid, jsonb, boolean, float8),
  patchcord.send_as_me(text[], text[], text, text, text, text, jsonb, float8),
  patchcord.reply_as_me(uuid, text, text, jsonb)
to patchcord_agent;
grant execute on function
  patchcord.send_message(text, text[], text[], text, text, text, text, text, text, jsonb, float8),
  patchcord.reply_message(text, uuid, text, text, text, text, jsonb)
to patchcord_api;

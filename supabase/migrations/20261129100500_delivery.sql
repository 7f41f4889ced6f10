create table patchcord.deliveries (
  message_id uuid not null,
  to_agent_uuid uuid not null,
  -- As in agent_messages, which refers to the agent: a second foreign key would need an index here that no reader uses.
  from_agent_uuid uuid not null,
  state text not null default 'new'
    check (state in ('new', 'open', 'deferred', 'answered', 'done', 'resolved', 'unsent', 'expired')),
  wake_at timestamptz,
  held boolean not null default false,
  expires_at timestamptz,
  notified_at timestamptz,
  fetched_at timestamptz,
  deferred_at timestamptz,
  answered_at timestamptz,
  done_at timestamptz,
  settled_at timestamptz,
  primary key (message_id, to_agent_uuid),
  foreign key (message_id, to_agent_uuid) references patchcord.agent_messages (id, to_agent_uuid) on delete cascade
);
comment on table patchcord.deliveries is 'How far each message got with each recipient: state and times, written when observed.';
comment on column patchcord.deliveries.wake_at is 'As in agent_messages, where an index of open states can use it.';
comment on column patchcord.deliveries.expires_at is
  'From then on a message that is still new is shown to nobody; a sweep makes it expired. Null: never.';
comment on column patchcord.deliveries.notified_at is
  'A listener said that its line was written, or a wait was ended by the wake and answered with the message. The time is when the report came. One that comes after the fetch, the deadline or the end is not noted: its line may have come after that too.';
comment on column patchcord.deliveries.answered_at is
  'When the first answer with a text was stored, whatever the state. Null again when the last of them was taken back unread.';
comment on column patchcord.deliveries.settled_at is
  'When it came to the state in which it ended: of an answered message that was then resolved, the latter.';
comment on column patchcord.deliveries.held is 'The loop budget holds the wake; released once wake_at has passed.';
create index deliveries_new on patchcord.deliveries (to_agent_uuid, message_id) where state = 'new';
create index deliveries_gate on patchcord.deliveries (to_agent_uuid, from_agent_uuid)
  where state = 'new' and wake_at is not null;
create index deliveries_unsettled on patchcord.deliveries (to_agent_uuid, message_id) where state in ('open', 'deferred');
create index deliveries_unnotified on patchcord.deliveries (wake_at) where state = 'new' and notified_at is null;
create index deliveries_held on patchcord.deliveries (wake_at) where held;
create index deliveries_expiring on patchcord.deliveries (expires_at) where state = 'new' and expires_at is not null;

alter table patchcord.deliveries enable row level security;
alter table patchcord.deliveries force row level security;
create policy owner_all on patchcord.deliveries to current_user using (true) with check (true);
create policy agent_reads_own on patchcord.deliveries for select to patchcord_agent
  using (to_agent_uuid = (select patchcord.claim_agent()) or from_agent_uuid = (select patchcord.claim_agent()));
create policy agent_sends on patchcord.deliveries for insert to patchcord_agent
  with check (
    from_agent_uuid = (select patchcord.claim_agent())
    and (state = 'new' or (state = 'deferred' and to_agent_uuid = from_agent_uuid))
    and notified_at is null and fetched_at is null and answered_at is null and done_at is null and settled_at is null
  );
create policy recipient_moves on patchcord.deliveries for update to patchcord_agent
  using (to_agent_uuid = (select patchcord.claim_agent()) and state not in ('unsent', 'expired'))
  with check (to_agent_uuid = (select patchcord.claim_agent()) and state not in ('unsent', 'expired'));
create policy sender_unsends on patchcord.deliveries for update to patchcord_agent
  using (from_agent_uuid = (select patchcord.claim_agent()) and state = 'new')
  with check (from_agent_uuid = (select patchcord.claim_agent()) and state = 'unsent' and fetched_at is null);
grant select, insert, update (state, notified_at, fetched_at, deferred_at, answered_at, done_at, settled_at) on patchcord.deliveries to patchcord_agent;

create function patchcord.move_deliveries(p_ids uuid[], p_from text[], p_state text) returns uuid[]
language plpgsql
as $$
declare
  v_moved uuid[];
begin
  -- Rows are locked in id order wherever they are moved, so that two sessions of one agent cannot deadlock.
  with picked as (
    select d.message_id from patchcord.deliveries d
    where d.to_agent_uuid = patchcord.claim_agent() and d.message_id = any (p_ids) and d.state = any (p_from)
    order by d.message_id
    for update
  ), moved as (
    update patchcord.deliveries d set
      state = p_state,
      -- Each step keeps its own time: what is resolved later was answered before.
      fetched_at = case when d.state = 'new' then clock_timestamp() else d.fetched_at end,
      deferred_at = case when p_state = 'deferred' then coalesce(d.deferred_at, clock_timestamp()) else d.deferred_at end,
      done_at = case when p_state = 'done' then clock_timestamp() else d.done_at end,
      settled_at = case when p_state in ('answered', 'done', 'resolved') then clock_timestamp() end
    from picked
    where d.message_id = picked.message_id and d.to_agent_uuid = patchcord.claim_agent()
    returning d.message_id
  )
  select coalesce(array_agg(message_id), '{}') from moved into v_moved;
  return v_moved;
end
$$;
comment on function patchcord.move_deliveries(uuid[], text[], text) is
  'Moves the caller''s own deliveries that are in one of p_from to p_state; the ids that moved.';

create function patchcord.settle_messages(p_hash text, p_ids uuid[], p_state text) returns jsonb
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
  return jsonb_build_object('outcome', 'ok', 'settled', patchcord.settle(p_ids, p_state));
end
$$;
comment on function patchcord.settle_messages(text, uuid[], text) is
  'Entry: marks messages of the caller done or deferred; what each id came to.';

create function patchcord.settle(p_ids uuid[], p_state text) returns jsonb
language plpgsql
as $$
begin
  perform patchcord.move_deliveries(p_ids, array['open', 'deferred'], p_state);
  return coalesce((
    select jsonb_agg(jsonb_build_object('message_id', i.id, 'state', d.state) order by i.place)
    from unnest(p_ids) with ordinality as i (id, place)
      left join patchcord.deliveries d
        on d.message_id = i.id and d.to_agent_uuid = patchcord.claim_agent() and d.state not in ('unsent', 'expired')
  ), '[]');
end
$$;
comment on function patchcord.settle(uuid[], text) is
  'Only what was shown can be settled: a message that is still new stays new. state is null for an id that is not the caller''s.';

create function patchcord.take_answer_back(p_id uuid) returns void
language plpgsql
as $$
declare
  v_me uuid := patchcord.claim_agent();
  v_about uuid;
begin
  -- An answer has one recipient.
  select m.reply_to into v_about from patchcord.agent_messages m where m.id = p_id and m.from_agent_uuid = v_me;
  if v_about is null then
    return;
  end if;
  perform from patchcord.deliveries d where d.message_id = v_about and d.to_agent_uuid = v_me for update;
  with answer as (
    select min(m.sent_at) as first_at
    from patchcord.deliveries d
      join patchcord.agent_messages m on m.from_agent_uuid = v_me and m.to_agent_uuid = d.from_agent_uuid
        and m.sent_at >= d.answered_at and m.reply_to = v_about
      join patchcord.deliveries r on r.message_id = m.id and r.to_agent_uuid = m.to_agent_uuid and r.state <> 'unsent'
    where d.message_id = v_about and d.to_agent_uuid = v_me
  )
  update patchcord.deliveries d set
    answered_at = answer.first_at,
    state = case when answer.first_at is not null or d.state <> 'answered' then d.state
      when d.deferred_at is not null then 'deferred' else 'open' end,
    settled_at = case when answer.first_at is not null or d.state <> 'answered' then d.settled_at end
  from answer
  where d.message_id = v_about and d.to_agent_uuid = v_me and d.answered_at is not null;
end
$$;
comment on function patchcord.take_answer_back(uuid) is
  'After p_id, an answer of the caller, was unsent: what it answered has the next answer, or none and is open or deferred again.';

create function patchcord.unsend_message(p_hash text, p_id uuid) returns jsonb
language plpgsql
as $$
declare
  w patchcord.entrance;
  v_rows jsonb;
begin
  w := patchcord.enter(p_hash, 0, null);
  if w.outcome <> 'ok' then
    return to_jsonb(w);
  end if;
  perform patchcord.assume(w);
  with picked as (
    select d.to_agent_uuid from patchcord.deliveries d
    where d.message_id = p_id and d.from_agent_uuid = w.agent_id and d.state = 'new'
      -- What is from and to the caller is a notice of the server.
      and d.to_agent_uuid <> w.agent_id
    order by d.to_agent_uuid
    for update
  )
  update patchcord.deliveries d set state = 'unsent', settled_at = clock_timestamp()
  from picked
  where d.message_id = p_id and d.to_agent_uuid = picked.to_agent_uuid;
  if found then
    perform patchcord.take_answer_back(p_id);
  end if;
  select jsonb_agg(jsonb_build_object('agent', a.name, 'state', d.state) order by a.name)
  from patchcord.deliveries d join patchcord.agents a on a.id = d.to_agent_uuid
  where d.message_id = p_id and d.from_agent_uuid = w.agent_id
  into v_rows;
  return jsonb_build_object('outcome', case when v_rows is null then 'not_found' else 'ok' end, 'recipients', v_rows);
end
$$;
comment on function patchcord.unsend_message(text, uuid) is
  'Entry: takes a message back from every recipient with whom it is still new; the state with each recipient after that. An answer that is taken back answers nothing.';

revoke execute on function
  patchcord.move_deliveries(uuid[], text[], text), patchcord.settle_messages(text, uuid[], text),
  patchcord.settle(uuid[], text), patchcord.take_answer_back(uuid), patchcord.unsend_message(text, uuid)
from public;
grant execute on function
  patchcord.move_deliveries(uuid[], text[], text), patchcord.settle(uuid[], text), patchcord.take_answer_back(uuid)
to patchcord_agent;
grant execute on function patchcord.settle_messages(text, uuid[], text), patchcord.unsend_message(text, uuid) to patchcord_api;

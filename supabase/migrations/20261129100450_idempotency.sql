create table patchcord.idempotency_keys (
  agent_uuid uuid not null references patchcord.agents (id),
  key text not null check (char_length(key) between 1 and 200),
  body_hash text not null,
  answer jsonb,
  created_at timestamptz not null default clock_timestamp(),
  primary key (agent_uuid, key)
);
comment on table patchcord.idempotency_keys is
  'Answers of sends under a key, 24 hours, per agent (a token may be rotated). Refusals are not kept.';

alter table patchcord.idempotency_keys enable row level security;
alter table patchcord.idempotency_keys force row level security;
create policy owner_all on patchcord.idempotency_keys to current_user using (true) with check (true);
create policy agent_own on patchcord.idempotency_keys to patchcord_agent
  using (agent_uuid = (select patchcord.claim_agent()))
  with check (agent_uuid = (select patchcord.claim_agent()));
grant select, insert, update, delete on patchcord.idempotency_keys to patchcord_agent;

create function patchcord.replay(p_key text, p_body_hash text) returns jsonb
language plpgsql
as $$
declare
  v record;
begin
  if p_key is null then
    return null;
  end if;
  -- Whoever holds the same key is waited for here; its refusal leaves no row, and then this call goes on.
  insert into patchcord.idempotency_keys as k (agent_uuid, key, body_hash)
  values (patchcord.claim_agent(), p_key, p_body_hash)
  on conflict (agent_uuid, key) do update
    set body_hash = excluded.body_hash, answer = null, created_at = clock_timestamp()
    where k.created_at < clock_timestamp() - interval '24 hours'
  returning k.key into v;
  if found then
    return null;
  end if;
  select k.body_hash, k.answer into v from patchcord.idempotency_keys k
  where k.agent_uuid = patchcord.claim_agent() and k.key = p_key;
  if v.body_hash <> p_body_hash then
    return jsonb_build_object('outcome', 'conflict');
  end if;
  return v.answer || jsonb_build_object('replayed', true, 'wakes', '[]'::jsonb, 'recipients',
    coalesce(patchcord.recipients_now((v.answer ->> 'message_id')::uuid), v.answer -> 'recipients'))
    -- Of a reply: what the message that it answered is by now.
    || coalesce((
      select jsonb_build_object('settled', d.state)
      from patchcord.agent_messages m
        join patchcord.deliveries d on d.message_id = m.reply_to and d.to_agent_uuid = m.from_agent_uuid
      where m.id = (v.answer ->> 'message_id')::uuid and m.from_agent_uuid = patchcord.claim_agent()
    ), '{}');
end
$$;
comment on function patchcord.replay(text, text) is
  'Claims an idempotency key for this call (null: go on), or gives the answer that the key already has, with what has become of its message since.';

create function patchcord.recipients_now(p_id uuid) returns jsonb
language plpgsql
as $$
begin
  return (
    select jsonb_agg(jsonb_build_object(
      'agent', a.name, 'state', d.state,
      'reach', case when d.to_agent_uuid = patchcord.claim_agent() then 'self' else coalesce(x.reach, 'offline') end,
      'last_seen_at', x.last_seen_at, 'held_until', case when d.held and d.state = 'new' then d.wake_at end
    ) order by a.name)
    from patchcord.deliveries d
      join patchcord.agents a on a.id = d.to_agent_uuid
      left join patchcord.reach_of(array(
        select r.to_agent_uuid from patchcord.deliveries r where r.message_id = p_id)) x on x.agent_uuid = a.id
    where d.message_id = p_id
  );
end
$$;
comment on function patchcord.recipients_now(uuid) is
  'How far a message of the caller is with each recipient, and the reach of that recipient; null for a message that is gone.';

create function patchcord.remember(p_key text, p_answer jsonb) returns jsonb
language plpgsql
as $$
begin
  if p_key is null then
    return p_answer;
  end if;
  if p_answer ->> 'outcome' = 'sent' then
    update patchcord.idempotency_keys set answer = p_answer where agent_uuid = patchcord.claim_agent() and key = p_key;
  else
    delete from patchcord.idempotency_keys where agent_uuid = patchcord.claim_agent() and key = p_key;
  end if;
  return p_answer;
end
$$;
comment on function patchcord.remember(text, jsonb) is 'Keeps the answer of a key that this call claimed; a refusal frees the key.';

revoke execute on function patchcord.replay(text, text), patchcord.recipients_now(uuid), patchcord.remember(text, jsonb) from public;
grant execute on function patchcord.replay(text, text), patchcord.recipients_now(uuid), patchcord.remember(text, jsonb) to patchcord_agent;

-- Beside the texts and after the send: to find out the words of a long text takes longer than to store it.
create table patchcord.message_words (
  message_id uuid primary key references patchcord.message_bodies (id) on delete cascade,
  namespace_uuid uuid not null,
  sent_at timestamptz not null,
  words tsvector not null
);
comment on table patchcord.message_words is
  'By which words a message is found. Written within seconds after the send, oldest first, and before each search.';
create index message_words_words on patchcord.message_words using gin (words);
alter table patchcord.message_words enable row level security;
alter table patchcord.message_words force row level security;
create policy owner_all on patchcord.message_words to current_user using (true) with check (true);

create function patchcord.namespace_word(p_namespace uuid) returns text
language sql immutable
as $$
  select 'in' || replace(p_namespace::text, '-', '')
$$;
comment on function patchcord.namespace_word(uuid) is
  'The word that stands for a namespace, so that a search in one reads nothing of the others.';

create function patchcord.without_marks(p_text text) returns text
language sql immutable
as $$
  -- A path or a tag would be one word.
  select translate(p_text, '!#$%&''()*+,./:;<=>?@[\]^_`{|}~', '                              ')
$$;

create function patchcord.index_words(p_max integer) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_newest uuid;
  v_since uuid;
  v_count integer;
begin
  -- One at a time, oldest first: so whatever is a minute older than the newest that is here, is here, too (a commit comes no later
  -- than that after the time in its id).
  if not pg_try_advisory_xact_lock(hashtextextended('patchcord.index_words', 0)) then
    return 0;
  end if;
  select w.message_id from patchcord.message_words w order by w.message_id desc limit 1 into v_newest;
  v_since := (select encode(
    substring(int8send(('x0000' || substr(replace(v_newest::text, '-', ''), 1, 12))::bit(64)::bigint - 60000) from 3)
      || decode(repeat('00', 10), 'hex'), 'hex')::uuid);
  insert into patchcord.message_words (message_id, namespace_uuid, sent_at, words)
  select b.id, b.from_namespace_uuid, b.sent_at,
    array_to_tsvector(array[patchcord.namespace_word(b.from_namespace_uuid)])
      || to_tsvector('pg_catalog.simple', replace(replace(patchcord.without_marks(left(b.content, 20000)), '"', ' '), '-', ' '))
  from patchcord.message_bodies b
  where b.id > coalesce(v_since, '00000000-0000-0000-0000-000000000000')
    and not exists (select from patchcord.message_words w where w.message_id = b.id)
  order by b.id limit p_max
  for key share of b skip locked;
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
comment on function patchcord.index_words(integer) is
  'Entry: notes the words of messages (of the first 20,000 characters) that are not noted yet, the oldest p_max; how many those were.';

create function patchcord.to_words(p_text text) returns tsquery
language plpgsql stable
as $$
begin
  -- A hyphen says "without" before a word, and is a mark within one. What has three letters is found as the beginning of a word.
  return regexp_replace(
    websearch_to_tsquery('pg_catalog.simple', regexp_replace(patchcord.without_marks(left(p_text, 500)), '(\S)-+', '\1 ', 'g'))::text,
    '''([^'' ]{3,})''', '''\1'':*', 'g')::tsquery;
end
$$;
comment on function patchcord.to_words(text) is 'What a person typed as a search: words, "phrases", or, -without.';

create function patchcord.without_order(p_words tsquery) returns tsquery
language sql immutable
as $$
  select regexp_replace(p_words::text, '<(-|\d+)>', '&', 'g')::tsquery
$$;
comment on function patchcord.without_order(tsquery) is 'The words of phrases, wherever they stand.';

create function patchcord.find_words(p_namespace uuid, p_words tsquery, p_before_at timestamptz, p_before_id uuid, p_max integer)
returns table (sent_at timestamptz, message_id uuid)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
  v_loose tsquery := patchcord.without_order(p_words);
begin
  return query
  with hit as materialized (
    select w.sent_at, w.message_id, w.namespace_uuid from patchcord.message_words w
    -- Whether words stand side by side is asked of those that are shown.
    where w.words @@ (patchcord.namespace_word(p_namespace)::tsquery && v_loose)
  )
  select h.sent_at, h.message_id from hit h
  where h.namespace_uuid = p_namespace and (h.sent_at, h.message_id) < (p_before_at, p_before_id)
  order by h.sent_at desc, h.message_id desc limit p_max;
end
$$;
comment on function patchcord.find_words(uuid, tsquery, timestamptz, uuid, integer) is
  'Messages of one namespace that hold these words, newest first, phrases taken as words. Only the index on words is good for it, and the planner must not think otherwise.';

revoke execute on function
  patchcord.namespace_word(uuid), patchcord.without_marks(text), patchcord.index_words(integer), patchcord.to_words(text),
  patchcord.without_order(tsquery), patchcord.find_words(uuid, tsquery, timestamptz, uuid, integer)
from public;
grant execute on function patchcord.index_words(integer) to patchcord_api;

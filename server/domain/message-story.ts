import { z } from 'zod'
import type { TransactionSql } from '../db/connect.ts'
import { asMember, type PersonScope } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'
import { type MessageState, toSteps } from './delivery.ts'
import { type ListedMessage, readMessages } from './message-list.ts'

const RECIPIENTS_PAGE = 50
const ANSWERS_MAX = 20
const LOOKED_AT_MAX = 200

/** One recipient of a message and how far it got there. */
export interface RecipientStory {
  agent: string
  state: MessageState
  /** In the order in which they were observed. */
  steps: { step: string; at: string }[]
  /** null: it was sent so that it wakes nobody. */
  wake_at: string | null
  held_until: string | null
  expires_at: string | null
  /** The message that answered it. */
  answer_id: string | null
  /** null: the agent was deleted. */
  reach: 'wakeable' | 'online' | 'offline' | null
  last_seen_at: string | null
}

export interface MessageStory extends ListedMessage {
  paused_at: string | null
  stories: RecipientStory[]
  /** `after` of the next page of recipients; null: there is none. */
  next: string | null
  /** What it answers. */
  about: ListedMessage | null
  /** What its recipients answered, oldest first, 20 at most. */
  answers: ListedMessage[]
}

export interface GetMessageStory {
  namespace: string
  id: string
  /** The name that the page before ended with. */
  after?: string | undefined
}

/** A message with its text and its ledger, 50 recipients a page by name. Throws not_found. */
export async function getMessageStory(scope: PersonScope, input: GetMessageStory): Promise<MessageStory> {
  return await asMember(scope, input.namespace, async (sql, me) => {
    const [message] = z.uuid().safeParse(input.id).success ? await readMessages(sql, [input.id], null) : []
    if (!message) throw new PatchcordError('not_found', 'There is no such message.')
    const stories = await readStories(sql, input.id, input.after ?? '')
    return {
      ...message,
      paused_at: me.pausedAt,
      stories: stories.slice(0, RECIPIENTS_PAGE),
      next: stories.length > RECIPIENTS_PAGE ? (stories[RECIPIENTS_PAGE - 1]?.agent ?? null) : null,
      about: await findAbout(sql, message.reply_to),
      answers: await readAnswers(sql, input.id, stories),
    }
  })
}

async function findAbout(sql: TransactionSql, id: string | null): Promise<MessageStory['about']> {
  if (id === null) return null
  const [about] = await readMessages(sql, [id], null)
  return about ?? null
}

/** By the index of a pair's messages: at most so many of what each of the first recipients wrote to the sender since. */
async function readAnswers(sql: TransactionSql, id: string, stories: RecipientStory[]): Promise<ListedMessage[]> {
  const rows = await sql`
    select x.id from (
      select m.to_agent_uuid, m.from_agent_uuid, m.sent_at from patchcord.agent_messages m where m.id = ${id}
      order by m.to_agent_uuid limit ${RECIPIENTS_PAGE}
    ) m cross join lateral (
      select s.id, s.sent_at, s.reply_to from patchcord.agent_messages s
      where s.from_agent_uuid = m.to_agent_uuid and s.to_agent_uuid = m.from_agent_uuid and s.sent_at >= m.sent_at
      order by s.sent_at limit ${LOOKED_AT_MAX}
    ) x
    where x.reply_to = ${id} group by x.id order by min(x.sent_at) limit ${ANSWERS_MAX}`
  // The first answer of each is known from its delivery, however much was written before it.
  const known = stories.flatMap(({ answer_id: answerId }) => answerId ?? [])
  const ids = [...new Set([...known, ...rows.map((row) => row.id as string)])].slice(0, ANSWERS_MAX)
  const answers = await readMessages(sql, ids, null)
  return answers.sort((a, b) => Date.parse(a.sent_at) - Date.parse(b.sent_at))
}

async function readStories(sql: TransactionSql, id: string, after: string): Promise<RecipientStory[]> {
  const rows = await sql`
    with page as materialized (
      select d.*, m.sent_at, t.name as agent
      from patchcord.agent_messages m
        join patchcord.deliveries d on d.message_id = m.id and d.to_agent_uuid = m.to_agent_uuid
        join patchcord.agents t on t.id = m.to_agent_uuid
      where m.id = ${id} and t.name > ${after}
      order by t.name limit ${RECIPIENTS_PAGE + 1}
    )
    select p.agent, p.state, to_jsonb(p.wake_at) as wake_at,
      to_jsonb(case when p.held and p.state = 'new' and p.wake_at > clock_timestamp() then p.wake_at end) as held_until,
      to_jsonb(p.expires_at) as expires_at, x.reach, to_jsonb(x.last_seen_at) as last_seen_at,
      (
        select a.id from patchcord.agent_messages a
        where a.from_agent_uuid = p.to_agent_uuid and a.to_agent_uuid = p.from_agent_uuid
          and a.sent_at = p.answered_at and a.reply_to = p.message_id limit 1
      ) as answer_id,
      jsonb_build_object(
        'accepted', p.sent_at, 'notified', p.notified_at, 'fetched', p.fetched_at, 'deferred', p.deferred_at,
        'answered', p.answered_at, 'done', p.done_at
      ) || case when p.state in ('resolved', 'unsent', 'expired') then jsonb_build_object(p.state, p.settled_at)
        else '{}' end as times
    from page p left join patchcord.reach_of(array(select to_agent_uuid from page)) x on x.agent_uuid = p.to_agent_uuid
    order by p.agent`
  return rows.map(({ times, ...row }) => ({ ...row, steps: toSteps(times) }) as unknown as RecipientStory)
}

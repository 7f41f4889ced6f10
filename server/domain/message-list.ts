import { z } from 'zod'
import type { TransactionSql } from '../db/connect.ts'
import { asMember, type PersonScope } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'
import { parseCursor } from './cursors.ts'
import { MessageState } from './delivery.ts'
import { ThreadSlug } from './threads.ts'

export const PAGE = 50
const PREVIEW_CHARACTERS = 240
const EXPORT_PAGE = 100
const TEXT_MAX = 200
const NAMES_SHOWN = 3
const AGENTS_MAX = 200

export const MESSAGE_KINDS = ['message', 'question', 'report', 'heads-up', 'request', 'resolved', 'expired'] as const

/** What a list is narrowed to; each key is one of the URL. */
export const MessageFilters = z.object({
  agent: z
    .string()
    .regex(/^[a-z0-9][a-z0-9._-]{0,39}$/)
    .optional(),
  direction: z.enum(['from', 'to']).optional(),
  state: MessageState.optional(),
  kind: z.enum(MESSAGE_KINDS).optional(),
  thread: ThreadSlug.optional(),
  text: z.string().trim().min(1).max(TEXT_MAX).optional(),
})
export type MessageFilters = z.output<typeof MessageFilters>

/** One message for people, however many recipients it has. */
export interface ListedMessage {
  id: string
  /** `patchcord` for a notice of the server. */
  from: string
  /** The first names of those whom it went to. */
  to: string[]
  recipients: number
  /** How many recipients it has in each state, those with none left out. */
  states: Partial<Record<MessageState, number>>
  /** Of those in state new: whose wake the loop budget holds, and whose listener has not written a line yet. */
  held: number
  unnotified: number
  sent_at: string
  kind: string
  urgency: string
  thread: string | null
  thread_id: string | null
  reply_to: string | null
  /** The beginning; null when it was taken back before anybody read it. */
  content: string | null
  content_length: number
}

export interface MessagePage {
  messages: ListedMessage[]
  /** `before` of the next page; null: there is no more. */
  next: string | null
  paused_at: string | null
  /** Names to narrow the list to, 200 at most. */
  agents: string[]
}

export interface ListMessages {
  namespace: string
  filters: MessageFilters
  /** `next` of the page before. */
  before?: string | undefined
}

/**
 * Messages of a namespace, newest first, 50 a page. With filters that hardly anything passes a page may hold fewer, or none, and
 * still have a next one: each looks a certain way back and no further. Throws invalid for a `before` that is none.
 */
export async function listMessages(scope: PersonScope, input: ListMessages): Promise<MessagePage> {
  return await asMember(scope, input.namespace, async (sql, me) => {
    const { ids, next } = await findMessages(sql, input.filters, input.before, PAGE)
    const agents = await sql`
      select a.name from patchcord.agents a where a.namespace_uuid = ${me.namespaceId} order by a.name limit ${AGENTS_MAX}`
    return {
      messages: await readMessages(sql, ids, PREVIEW_CHARACTERS),
      next,
      paused_at: me.pausedAt,
      agents: agents.map(({ name }) => name as string),
    }
  })
}

/** What is written for each recipient of a message, as `deliveries` has it. */
export interface ExportedMessage extends Omit<ListedMessage, 'to' | 'recipients' | 'states' | 'held' | 'unnotified'> {
  recipients: { agent: string; state: MessageState; notified_at: string | null; fetched_at: string | null }[]
}

/** All that pass the filters, newest first, in pages: each is read when the one before was taken, and asks again who may. */
export async function* exportMessages(
  scope: PersonScope,
  input: Omit<ListMessages, 'before'>,
): AsyncGenerator<ExportedMessage[]> {
  let before: string | null | undefined
  do {
    const page = await asMember(scope, input.namespace, async (sql) => {
      const { ids, next } = await findMessages(sql, input.filters, before ?? undefined, EXPORT_PAGE)
      return { messages: await readWhole(sql, ids), next }
    })
    // An empty one, too: whoever takes them may have gone, and what finds nothing would look to the end for nobody.
    yield page.messages
    before = page.next
  } while (before !== null)
}

async function readWhole(sql: TransactionSql, ids: string[]): Promise<ExportedMessage[]> {
  const messages = await readMessages(sql, ids, null)
  const rows = await sql`
    select d.message_id, jsonb_agg(jsonb_build_object(
      'agent', a.name, 'state', d.state, 'notified_at', d.notified_at, 'fetched_at', d.fetched_at,
      'deferred_at', d.deferred_at, 'answered_at', d.answered_at, 'done_at', d.done_at, 'settled_at', d.settled_at,
      'expires_at', d.expires_at
    ) order by a.name) as recipients
    from patchcord.deliveries d join patchcord.agents a on a.id = d.to_agent_uuid
    where d.message_id = any (${ids}::uuid[])
    group by d.message_id`
  const recipientsOf = new Map(rows.map((row) => [row.message_id as string, row.recipients]))
  return messages.map(({ to, recipients, states, held, unnotified, ...message }) => ({
    ...message,
    recipients: (recipientsOf.get(message.id) ?? []) as ExportedMessage['recipients'],
  }))
}

async function findMessages(
  sql: TransactionSql,
  filters: MessageFilters,
  before: string | undefined,
  max: number,
): Promise<{ ids: string[]; next: string | null }> {
  const { sentAt, id } = parsePlace(before)
  const [row] = await sql`
    select patchcord.find_messages(${JSON.stringify(filters)}::text::jsonb, ${sentAt}::text::timestamptz, ${id}::uuid, ${max}::integer)
      as answer`
  const found = row?.answer as { ids: string[]; next: { sent_at: string; id: string } | null }
  return { ids: found.ids, next: found.next && `${found.next.sent_at}_${found.next.id}` }
}

/** Where a page ended: `<sent_at>_<id>`. Throws invalid. */
export function parsePlace(before: string | undefined): { sentAt: string | null; id: string | null } {
  if (before === undefined) return { sentAt: null, id: null }
  const cursor = parseCursor(before)
  if (cursor) return { sentAt: cursor.at, id: cursor.id }
  throw new PatchcordError('invalid', 'This address names no place in the list.', { hint: 'Begin at the first page.' })
}

/** Messages by id, in the order of the ids, read under row-level security; `characters` of each text, null for all of it. */
export async function readMessages(
  sql: TransactionSql,
  ids: string[],
  characters: number | null,
): Promise<ListedMessage[]> {
  const rows = await sql`
    select b.id, case when r.kind = 'expired' then 'patchcord' else f.name end as "from", r.*,
      to_jsonb(b.sent_at) as sent_at,
      case when r.recipients > r.unsent then left(b.content, ${characters ?? 2_000_000}::integer) end as content,
      char_length(b.content) as content_length
    from unnest(${ids}::uuid[]) with ordinality as i (id, place)
      join patchcord.message_bodies b on b.id = i.id
      join patchcord.agents f on f.id = b.from_agent_uuid
      cross join lateral (
        select min(m.kind) as kind, min(m.urgency) as urgency, min(m.thread) as thread,
          min(m.thread_uuid::text) as thread_id, min(m.reply_to::text) as reply_to,
          to_jsonb((array_agg(t.name order by t.name))[1:${NAMES_SHOWN}::integer]) as "to", count(*) as recipients,
          count(*) filter (where d.state = 'new') as new, count(*) filter (where d.state = 'open') as open,
          count(*) filter (where d.state = 'deferred') as deferred,
          count(*) filter (where d.state = 'answered') as answered, count(*) filter (where d.state = 'done') as done,
          count(*) filter (where d.state = 'resolved') as resolved,
          count(*) filter (where d.state = 'unsent') as unsent, count(*) filter (where d.state = 'expired') as expired,
          count(*) filter (where d.state = 'new' and d.held and d.wake_at > clock_timestamp()) as held,
          count(*) filter (where d.state = 'new' and d.notified_at is null and d.wake_at <= clock_timestamp()) as unnotified
        from patchcord.agent_messages m
          join patchcord.deliveries d on d.message_id = m.id and d.to_agent_uuid = m.to_agent_uuid
          join patchcord.agents t on t.id = m.to_agent_uuid
        where m.id = b.id
      ) r
    order by i.place`
  return rows.map(toListed)
}

function toListed(row: Record<string, unknown>): ListedMessage {
  const counts = MessageState.options.map((state) => [state, row[state] as number] as const)
  const { id, from, to, recipients, held, unnotified, sent_at, kind, urgency, thread, thread_id, reply_to } = row
  const message = { id, from, to, recipients, held, unnotified, sent_at, kind, urgency, thread, thread_id, reply_to }
  return {
    ...(message as Omit<ListedMessage, 'states' | 'content' | 'content_length'>),
    states: Object.fromEntries(counts.filter(([, count]) => count > 0)),
    content: row.content as string | null,
    content_length: row.content_length as number,
  }
}

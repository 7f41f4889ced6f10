import { z } from 'zod'
import { asMember, type PersonScope } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'
import { type ListedMessage, parsePlace, readMessages } from './message-list.ts'

const THREADS_PAGE = 50
const MESSAGES_PAGE = 50
const COUNTED_MAX = 100
const PREVIEW_CHARACTERS = 240
const CONTENT_CHARACTERS = 8_000

export interface ListedThread {
  id: string
  slug: string
  /** The first names of those who are in it. */
  participants: string[]
  participants_count: number
  /** 100 of that many or more. */
  messages: number
  last_message_at: string
  resolved_at: string | null
  resolved_by: string | null
  latest: ListedMessage | null
}

export interface ListThreads {
  namespace: string
  before?: string | undefined
}

/** Threads of a namespace, those with the latest message first, 50 a page. Throws invalid for a `before` that is none. */
export async function listThreads(
  scope: PersonScope,
  input: ListThreads,
): Promise<{ threads: ListedThread[]; next: string | null; paused_at: string | null }> {
  return await asMember(scope, input.namespace, async (sql, me) => {
    const { sentAt, id } = parsePlace(input.before)
    const rows = await sql`
      select t.id, t.slug, to_jsonb(t.last_message_at) as last_message_at, to_jsonb(t.resolved_at) as resolved_at,
        r.name as resolved_by, cardinality(t.participants) as participants_count,
        (
          select coalesce(jsonb_agg(n.name order by n.name), '[]') from (
            select a.name from patchcord.agents a where a.id = any (t.participants[1:100]) order by a.name limit 4
          ) n
        ) as participants,
        (
          select count(*) from (
            select distinct m.sent_at, m.id from patchcord.agent_messages m where m.thread_uuid = t.id
            order by m.sent_at desc, m.id desc limit ${COUNTED_MAX}
          ) c
        ) as messages,
        (
          select m.id from patchcord.agent_messages m where m.thread_uuid = t.id order by m.sent_at desc, m.id desc limit 1
        ) as latest_id
      from patchcord.threads t left join patchcord.agents r on r.id = t.resolved_by_uuid
      where t.namespace_uuid = (select patchcord.claim_namespace())
        and (t.last_message_at, t.id) < (
          coalesce(${sentAt}::text::timestamptz, 'infinity'),
          coalesce(${id}::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
      order by t.last_message_at desc, t.id desc limit ${THREADS_PAGE + 1}`
    const page = rows.slice(0, THREADS_PAGE)
    const last = rows.length > THREADS_PAGE ? page.at(-1) : undefined
    const ids = page.flatMap((row) => (row.latest_id ? [row.latest_id as string] : []))
    const latest = new Map((await readMessages(sql, ids, PREVIEW_CHARACTERS)).map((each) => [each.id, each]))
    return {
      threads: page.map(({ latest_id, ...row }) => ({ ...row, latest: latest.get(latest_id) ?? null }) as ListedThread),
      next: last ? `${last.last_message_at}_${last.id}` : null,
      paused_at: me.pausedAt,
    }
  })
}

export interface Thread {
  id: string
  slug: string
  participants: string[]
  resolved_at: string | null
  resolved_by: string | null
  /** Oldest first; the texts up to 8,000 characters. */
  messages: ListedMessage[]
  /** `before` of the page with earlier ones; null: these begin the thread. */
  next: string | null
  paused_at: string | null
}

/** The latest 50 messages of a thread, or those before a place in it. Throws not_found, or invalid for a `before` that is none. */
export async function getThread(
  scope: PersonScope,
  input: { namespace: string; id: string; before?: string | undefined },
): Promise<Thread> {
  return await asMember(scope, input.namespace, async (sql, me) => {
    const { sentAt, id: beforeId } = parsePlace(input.before)
    const id = z.uuid().safeParse(input.id).success ? input.id : null
    const [thread] = await sql`
      select t.id, t.slug, to_jsonb(t.resolved_at) as resolved_at, r.name as resolved_by,
        (select jsonb_agg(a.name order by a.name) from patchcord.agents a where a.id = any (t.participants)) as participants
      from patchcord.threads t left join patchcord.agents r on r.id = t.resolved_by_uuid where t.id = ${id}::uuid`
    if (!thread) throw new PatchcordError('not_found', 'There is no such thread.')
    const rows = await sql`
      select distinct m.sent_at as at, m.id, to_jsonb(m.sent_at) as sent_at from patchcord.agent_messages m
      where m.thread_uuid = ${id}::uuid and (m.sent_at, m.id) < (
        coalesce(${sentAt}::text::timestamptz, 'infinity'),
        coalesce(${beforeId}::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
      order by m.sent_at desc, m.id desc limit ${MESSAGES_PAGE + 1}`
    const page = rows.slice(0, MESSAGES_PAGE)
    const last = rows.length > MESSAGES_PAGE ? page.at(-1) : undefined
    const ids = page.map((row) => row.id as string).reverse()
    return {
      ...(thread as unknown as Omit<Thread, 'messages' | 'next' | 'paused_at'>),
      messages: await readMessages(sql, ids, CONTENT_CHARACTERS),
      next: last ? `${last.sent_at}_${last.id}` : null,
      paused_at: me.pausedAt,
    }
  })
}

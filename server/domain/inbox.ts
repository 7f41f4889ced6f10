import { z } from 'zod'
import { callEntry, type Outcome, type Scope } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'
import type { Wake } from '../wakes/bus.ts'
import type { Wait, Waiters, WaitFor } from '../wakes/waiters.ts'
import { Agent, toAgent } from './agents.ts'
import { attentionLimits } from './attention.ts'
import { MessageIds, SettledMessage } from './delivery.ts'
import { fitInbox, fitMessages } from './inbox-page.ts'
import { AgentFilter, nameOf, unknownAgents } from './names.ts'
import { ThreadSlug } from './threads.ts'
import { resolveToken } from './tokens.ts'

const PEEK_MAX = 100
const COUNT_MAX = 1_000
const WAIT_SECONDS_MAX = 290
const WAIT_SECONDS_DEFAULT = 50

/** A message in full, as its recipient sees it. `content` is cut at 8,000 characters; `content_length` says how long it is. */
export const InboxMessage = z.object({
  message_id: z.string(),
  from: z.string(),
  thread: z.string().nullable(),
  kind: z.string(),
  urgency: z.string(),
  reply_to: z.string().nullable(),
  sent_at: z.string(),
  content: z.string(),
  content_length: z.int(),
  shown_seconds_ago: z.int().nullable(),
})
export type InboxMessage = z.output<typeof InboxMessage>

/** An open or deferred message in one line. */
export const InboxLine = z.object({
  message_id: z.string(),
  from: z.string(),
  thread: z.string().nullable(),
  kind: z.string(),
  urgency: z.string(),
  sent_at: z.string(),
  preview: z.string(),
})
export type InboxLine = z.output<typeof InboxLine>

/** What a resolve tells: shown once, nothing to do. `content` is cut at 500 characters or less; recall shows the rest. */
export const InboxNotice = z.object({
  message_id: z.string(),
  from: z.string(),
  thread: z.string().nullable(),
  reply_to: z.string().nullable(),
  sent_at: z.string(),
  content: z.string(),
  content_length: z.int(),
})
export type InboxNotice = z.output<typeof InboxNotice>

export const FetchInbox = z.strictObject({
  done: MessageIds.optional().meta({ description: 'Ids you have dealt with; they leave the inbox' }),
  all_agents: z.boolean().optional().meta({ description: 'List offline agents too' }),
})
export const Inbox = z.object({
  agent: z.string(),
  namespace: z.string(),
  /** Only while a person has paused the namespace: nothing is sent, and nobody is woken. */
  paused_at: z.string().optional(),
  /** As the header says it: `new` counts what this answer shows for the first time and what it leaves. */
  counts: z.object({ new: z.int(), open: z.int(), deferred: z.int() }),
  new: z.array(InboxMessage),
  new_left: z.int(),
  again: z.array(InboxMessage),
  notices: z.array(InboxNotice),
  notices_left: z.int(),
  open: z.array(InboxLine),
  open_left: z.int(),
  deferred: z.array(InboxLine),
  deferred_left: z.int(),
  settled: z.array(SettledMessage),
  you: Agent,
  agents: z.array(Agent),
  offline_left_out: z.int(),
  /** For the size of the answer, the furthest: list_agents shows all. */
  agents_left_out: z.int(),
})
export type Inbox = z.output<typeof Inbox>

export const PeekInbox = z.strictObject({
  status: z.enum(['new', 'pending', 'open', 'deferred']).default('new'),
  limit: z.coerce.number().int().min(0).max(PEEK_MAX).default(20),
  count_only: z.enum(['0', '1', 'true', 'false']).default('0'),
})
export const InboxPeek = z.object({
  agent_id: z.string(),
  namespace_id: z.string(),
  pending_count: z.int(),
  pending: z.array(
    z.object({ message_id: z.string(), from: z.string(), sent_at: z.string(), preview: z.string().optional() }),
  ),
})
export type InboxPeek = z.output<typeof InboxPeek>

export const WaitForMessage = z.strictObject({
  timeout_seconds: z.int().min(1).max(WAIT_SECONDS_MAX).default(WAIT_SECONDS_DEFAULT),
  from: AgentFilter.optional().meta({ description: 'Only from this agent' }),
  thread: ThreadSlug.optional(),
})
export const WaitedMessage = z.object({
  end: z.enum(['message', 'timeout', 'restarting', 'aborted']),
  message: InboxMessage.nullable(),
})
export type WaitedMessage = z.output<typeof WaitedMessage>

/** New messages as the SQL functions show them, cut so that one answer holds them. */
export function toInboxMessages(shown: unknown): InboxMessage[] {
  return fitMessages(shown as InboxMessage[])
}

/** Marks `done`, fetches what is new (it becomes open) and lists the rest. Fetching settles nothing. */
export async function fetchInbox(scope: Scope, input: z.output<typeof FetchInbox>): Promise<Inbox> {
  const done = input.done ?? []
  const answer = await callEntry(
    scope,
    (sql) => sql`select patchcord.fetch_inbox(${scope.tokenHash}, ${done}::uuid[]) as answer`,
  )
  const counts = answer.counts as Inbox['counts'] & { notices: number }
  const messages = answer.new as InboxMessage[]
  const again = answer.again as InboxMessage[]
  const open = answer.open as InboxLine[]
  const deferred = answer.deferred as InboxLine[]
  const openBefore = counts.open - messages.length
  return fitInbox({
    agent: answer.agent as string,
    namespace: answer.namespace as string,
    ...(answer.paused_at ? { paused_at: answer.paused_at as string } : {}),
    counts: { new: counts.new + messages.length, open: openBefore, deferred: counts.deferred },
    new: messages,
    new_left: counts.new,
    again,
    notices: answer.notices as InboxNotice[],
    notices_left: counts.notices,
    open,
    open_left: openBefore - again.length - open.length,
    deferred,
    deferred_left: counts.deferred - deferred.length,
    settled: answer.settled as SettledMessage[],
    ...listNear(answer, input.all_agents ?? false),
  })
}

/** Of the agents here as many as SQL gives, the nearest; those that are not asked for and those that are too many are counted. */
function listNear(
  answer: Outcome,
  isAll: boolean,
): Pick<Inbox, 'you' | 'agents' | 'offline_left_out' | 'agents_left_out'> {
  const you = answer.you as Record<string, unknown>
  const me = you.agent as string
  const near = (answer.agents as Record<string, unknown>[]).map((row) => toAgent(row, me))
  const agents = isAll ? near : near.filter(({ reach }) => reach !== 'offline')
  const offlineLeft = isAll ? 0 : (answer.offline_count as number)
  const agentsLeft = (answer.agents_count as number) - offlineLeft - agents.length
  return { you: toAgent(you, me), agents, offline_left_out: offlineLeft, agents_left_out: agentsLeft }
}

/** What waits, oldest first, changing nothing: for hooks and listeners. `count_only` gives all ids, up to the cap per recipient. */
export async function peekInbox(scope: Scope, input: z.output<typeof PeekInbox>): Promise<InboxPeek> {
  const state = input.status === 'pending' ? 'new' : input.status
  const isCount = input.count_only === '1' || input.count_only === 'true'
  const max = isCount ? COUNT_MAX : input.limit
  const answer = await callEntry(
    scope,
    (sql) => sql`select patchcord.peek_inbox(${scope.tokenHash}, ${state}, ${max}) as answer`,
  )
  const pending = answer.pending as InboxPeek['pending']
  return {
    agent_id: answer.agent as string,
    namespace_id: answer.namespace as string,
    pending_count: answer.pending_count as number,
    pending: isCount ? pending.map(({ message_id, from, sent_at }) => ({ message_id, from, sent_at })) : pending,
  }
}

/** All that is new, by id and sender. */
export async function peekNew(scope: Scope): Promise<InboxPeek> {
  return await peekInbox(scope, { status: 'new', count_only: '1', limit: COUNT_MAX })
}

/**
 * Fetches the next new message, of one sender or thread if named; null when there is none. One of `woken`, whose wakes a
 * wait has taken, was notified by that. Throws not_found for the sender.
 */
export async function fetchNextMessage(
  scope: Scope,
  input: { from?: string | undefined; thread?: string | undefined },
  woken: string[] = [],
): Promise<InboxMessage | null> {
  const { from = null, thread = null } = input
  const answer = await callEntry(
    scope,
    (sql) => sql`select patchcord.fetch_next(${scope.tokenHash}, ${from}, ${thread}, ${woken}::uuid[]) as answer`,
  )
  if (answer.outcome === 'unknown') throw unknownAgents(answer.unknown as string[], answer.agents as string[])
  const [message] = toInboxMessages(answer.messages)
  return message ?? null
}

/**
 * The next new message, waited for until the time-out, the server's shutdown ('restarting') or the signal ('aborted').
 * Throws what the token is refused with once it ends during the wait, and unavailable when its agent is renamed.
 * The wait stands before the inbox is read, so a message that comes in between ends it.
 */
export async function waitForMessage(
  scope: Scope,
  waiters: Waiters,
  input: z.output<typeof WaitForMessage>,
  signal: AbortSignal,
): Promise<WaitedMessage> {
  const { agentId, tokenId } = await resolveToken(scope.sql, scope.tokenHash)
  const from = input.from && nameOf(input.from)
  const deadline = performance.now() + input.timeout_seconds * 1000
  /** Wakes that were taken from the listener for this call: whatever it does not answer with is given back. */
  const taken: Wake[] = []
  let message: InboxMessage | null = null
  try {
    for (;;) {
      const timeoutMs = Math.max(0, deadline - performance.now())
      const wait = await startWait(scope, waiters, { agentId, tokenId, from, thread: input.thread, timeoutMs, signal })
      const woken = taken.map(({ id }) => id)
      const fetched = fetchNextMessage(scope, input, woken).then((next) => {
        message = next
      })
      const end = await fetched.then(
        () => (message ? wait.cancel() : wait.ended),
        () => wait.cancel(),
      )
      if (end.how === 'woken') taken.push(end.wake)
      await fetched
      if (message) return { end: 'message', message }
      if (end.how === 'revoked') throw await explainRevocation(scope)
      if (end.how === 'timeout') return { end: 'timeout', message }
      if (end.how === 'closing') return { end: 'restarting', message }
      if (end.how === 'aborted' || signal.aborted) return { end: 'aborted', message }
    }
  } finally {
    const answered = (message as InboxMessage | null)?.message_id
    for (const wake of taken) if (wake.id !== answered) scope.bus.passOn(wake)
  }
}

/** A wait over the cap counts against the token like a send past its rate. */
async function startWait(scope: Scope, waiters: Waiters, request: WaitFor): Promise<Wait> {
  try {
    return waiters.start(request)
  } catch (error) {
    const limits = JSON.stringify(attentionLimits(scope.limits))
    await callEntry(
      scope,
      (sql) => sql`select patchcord.note_refusal(${scope.tokenHash}, ${limits}::text::jsonb) as answer`,
    )
    throw error
  }
}

/** Why the token's waits were ended: it is refused from now on, or its agent has another name. */
async function explainRevocation(scope: Scope): Promise<PatchcordError> {
  const { agent } = await resolveToken(scope.sql, scope.tokenHash)
  return new PatchcordError('unavailable', `This agent is called ${agent} now.`, {
    hint: 'Call again.',
    retryAfterSeconds: 1,
  })
}

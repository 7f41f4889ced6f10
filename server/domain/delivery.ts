import { z } from 'zod'
import { asAgent, callEntry, type Scope } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'

const IDS_MAX = 100

export const MessageId = z.uuid().meta({ description: 'Message id' })
export const MessageIds = z.array(MessageId).max(IDS_MAX)
export const MessageState = z.enum(['new', 'open', 'deferred', 'answered', 'done', 'resolved', 'unsent', 'expired'])
export type MessageState = z.output<typeof MessageState>

/** What became of one id that the caller wanted to settle; `state` is null for an id that is not one of its messages. */
export const SettledMessage = z.object({ message_id: z.string(), state: MessageState.nullable() })
export type SettledMessage = z.output<typeof SettledMessage>

export const GetMessageStatus = z.strictObject({ message_id: MessageId })
export const MessageStatus = z.object({
  message_id: z.string(),
  from: z.string(),
  thread: z.string().nullable(),
  recipients: z.array(
    z.object({
      agent: z.string(),
      state: MessageState,
      held_until: z.string().nullable(),
      expires_at: z.string().nullable(),
      steps: z.array(z.object({ step: z.string(), at: z.string() })),
    }),
  ),
})
export type MessageStatus = z.output<typeof MessageStatus>

export const UnsendMessage = z.strictObject({ message_id: MessageId })
export const UnsentMessage = z.object({
  message_id: z.string(),
  recipients: z.array(z.object({ agent: z.string(), state: MessageState })),
})
export type UnsentMessage = z.output<typeof UnsentMessage>

/** Marks messages that were shown to the caller as done or deferred. One that is still new stays new: nobody has seen it. */
export async function settleMessages(
  scope: Scope,
  input: { message_ids: string[]; state: 'done' | 'deferred' },
): Promise<SettledMessage[]> {
  const ids = input.message_ids
  const answer = await callEntry(
    scope,
    (sql) => sql`select patchcord.settle_messages(${scope.tokenHash}, ${ids}::uuid[], ${input.state}) as answer`,
  )
  return answer.settled as SettledMessage[]
}

/** One message of `settleMessages`. Throws not_found, or conflict where it could not be moved. */
export async function settleMessage(
  scope: Scope,
  input: { message_id: string; state: 'done' | 'deferred' },
): Promise<SettledMessage> {
  const [settled] = await settleMessages(scope, { message_ids: [input.message_id], state: input.state })
  if (!settled?.state) throw messageNotFound()
  if (settled.state === input.state) return settled
  throw new PatchcordError('conflict', `The message is ${settled.state}, so it cannot become ${input.state}.`, {
    hint:
      settled.state === 'new' ? 'Fetch the inbox first: only what was shown can be settled.' : 'Nothing was changed.',
  })
}

/** Takes a message back from everyone with whom it is still new. Throws not_found, or conflict when nobody is left. */
export async function unsendMessage(scope: Scope, input: z.output<typeof UnsendMessage>): Promise<UnsentMessage> {
  const answer = await callEntry(
    scope,
    (sql) => sql`select patchcord.unsend_message(${scope.tokenHash}, ${input.message_id}) as answer`,
  )
  if (answer.outcome === 'not_found') throw messageNotFound()
  const recipients = answer.recipients as UnsentMessage['recipients']
  if (recipients.some((recipient) => recipient.state === 'unsent')) return { message_id: input.message_id, recipients }
  throw new PatchcordError('conflict', 'Too late: every recipient has fetched it already.', {
    hint: 'Send another message that corrects it.',
    details: { recipients },
  })
}

/** How far a message got with each recipient, each step with its time. A recipient sees its own line only. Throws not_found. */
export async function getMessageStatus(scope: Scope, input: z.output<typeof GetMessageStatus>): Promise<MessageStatus> {
  return await asAgent(scope, async (sql, me) => {
    const rows = await sql`
      select patchcord.sender_name(m, f.name) as "from", m.thread, t.name as agent, d.state,
        to_json(case when d.held and d.state = 'new' then d.wake_at end) as held_until,
        to_json(case when d.state = 'new' then d.expires_at end) as expires_at,
        jsonb_build_object(
          'accepted', m.sent_at, 'notified', d.notified_at, 'fetched', d.fetched_at, 'deferred', d.deferred_at,
          'answered', d.answered_at, 'done', d.done_at
        ) || case when d.state in ('resolved', 'unsent', 'expired') then jsonb_build_object(d.state, d.settled_at)
          else '{}' end as times
      from patchcord.agent_messages m
        join patchcord.deliveries d on d.message_id = m.id and d.to_agent_uuid = m.to_agent_uuid
        join patchcord.agents f on f.id = m.from_agent_uuid
        join patchcord.agents t on t.id = m.to_agent_uuid
      where m.id = ${input.message_id} and (d.state <> 'unsent' or m.from_agent_uuid = ${me.agentId})
      order by t.name`
    const [first] = rows
    if (!first) throw messageNotFound()
    return {
      message_id: input.message_id,
      from: first.from as string,
      thread: first.thread as string | null,
      recipients: rows.map((row) => ({
        agent: row.agent as string,
        state: row.state as z.output<typeof MessageState>,
        held_until: row.held_until as string | null,
        expires_at: row.expires_at as string | null,
        steps: toSteps(row.times as Record<string, string | null>),
      })),
    }
  })
}

const STEPS = ['accepted', 'notified', 'fetched', 'deferred', 'answered', 'done', 'resolved', 'unsent', 'expired']

/** The steps that were observed, in the order in which they came. */
export function toSteps(times: Record<string, string | null>): { step: string; at: string }[] {
  const steps = STEPS.flatMap((step) => {
    const at = times[step]
    return at ? [{ step, at }] : []
  })
  // All of one zone and with fractions that end where their zeros begin: as texts they sort by time.
  return steps.sort((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : 0))
}

/** An id of someone else's message answers exactly like one that does not exist. */
export function messageNotFound(): PatchcordError {
  return new PatchcordError('not_found', 'There is no such message.', {
    hint: 'recall lists the messages you sent or received.',
  })
}

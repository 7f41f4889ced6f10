import { z } from 'zod'
import { callEntry, callSend, type Outcome, type Scope } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'
import { attentionLimits, checkAttention } from './attention.ts'
import { MessageId, MessageState, messageNotFound } from './delivery.ts'
import { hashBody, IdempotencyKey } from './idempotency.ts'
import { toInboxMessages } from './inbox.ts'
import { AgentFilter, parseAddresses } from './names.ts'
import { fitRecalled } from './recall-page.ts'
import { ThreadSlug } from './threads.ts'

const SHOWN_CHARACTERS = 8_000
const RECALL_MAX = 50
const OFFSET_MAX = 1_000_000
const EXPIRES_SECONDS_MAX = 30 * 86_400

export const MessageKind = z.enum(['message', 'question', 'report', 'heads-up', 'request'])
export const Urgency = z.enum(['fyi', 'normal', 'urgent'])
const Content = z.string().min(1)
/** Its bounds stand in the error of a wrong call only: in the schema each costs every model tokens. */
const ExpiresIn = z
  .int()
  .refine((seconds) => seconds >= 1 && seconds <= EXPIRES_SECONDS_MAX, `1 to ${EXPIRES_SECONDS_MAX} seconds`)
  .meta({ description: 'Seconds' })

export const SendMessage = z.strictObject({
  to: z.string().min(1).max(4_000).meta({ description: 'agent, agent@namespace, comma list, or * for all here' }),
  content: Content,
  thread: ThreadSlug.optional(),
  kind: MessageKind.optional(),
  urgency: Urgency.optional(),
  expires_in: ExpiresIn.optional(),
  idempotency_key: IdempotencyKey.optional(),
})
export const Recipient = z.object({
  agent: z.string(),
  /** As the ledger has it now: another one than new (deferred for oneself) where an idempotency key came again. */
  state: MessageState,
  reach: z.enum(['wakeable', 'online', 'offline', 'self']),
  last_seen_at: z.string().nullable(),
  held_until: z.string().nullable(),
})
/** Of a send to everybody: who did not get it. */
export const LeftOut = z.object({ agent: z.string(), reason: z.enum(['inbox_full']) })
export const SentMessage = z.object({
  message_id: z.string(),
  thread: z.string().nullable(),
  sent_at: z.string(),
  /** With others; a note to oneself alone has none, whatever was asked. */
  expires_at: z.string().nullable(),
  replayed: z.boolean(),
  recipients: z.array(Recipient),
  left_out: z.array(LeftOut),
})
export type SentMessage = z.output<typeof SentMessage>

export const ReplyToMessage = z.strictObject({
  message_id: MessageId,
  content: Content.optional(),
  defer: z.boolean().optional().meta({ description: 'Keep it in the inbox for later' }),
  resolve: z.boolean().optional().meta({ description: 'Close the thread; wakes nobody' }),
  idempotency_key: IdempotencyKey.optional(),
})
export const Reply = z.object({ message_id: z.string(), state: MessageState, sent: SentMessage.nullable() })
export type Reply = z.output<typeof Reply>

export const RecallMessages = z.strictObject({
  message_id: MessageId.optional(),
  offset: z
    .int()
    .min(0)
    .max(OFFSET_MAX)
    .optional()
    .meta({ description: 'Characters (with message_id) or messages to skip' }),
  from: AgentFilter.optional(),
  thread: ThreadSlug.optional(),
  limit: z.int().min(1).max(RECALL_MAX).optional(),
})
export const RecalledMessage = z.object({
  message_id: z.string(),
  from: z.string(),
  to: z.array(z.string()),
  to_left_out: z.int(),
  thread: z.string().nullable(),
  kind: z.string(),
  urgency: z.string(),
  reply_to: z.string().nullable(),
  sent_at: z.string(),
  content: z.string(),
  content_offset: z.int(),
  content_length: z.int(),
})
export type RecalledMessage = z.output<typeof RecalledMessage>
/** Newest first. `next_offset` is what to call with for the rest; null when there is none. */
export const Recall = z.object({ messages: z.array(RecalledMessage), next_offset: z.int().nullable() })
export type Recall = z.output<typeof Recall>

/**
 * One SQL function in one round trip: identity, rate, pair lock, gate, cap, insert. Throws invalid, too_large, not_found
 * (with suggestions), gated (details.messages), inbox_full, conflict (idempotency key), rate_limited.
 */
export async function sendMessage(scope: Scope, input: z.output<typeof SendMessage>): Promise<SentMessage> {
  checkContent(scope, input.content)
  const { thread = null, kind = 'message', urgency = 'normal', idempotency_key: key = null } = input
  const { expires_in: expiresIn = null } = input
  const to = parseAddresses(input.to, scope.limits.recipientsMax)
  const bodyHash = hashBody(['send', input.to, input.content, thread, kind, urgency, expiresIn])
  const limits = JSON.stringify(attentionLimits(scope.limits))
  const row = { content: input.content, key, body_hash: bodyHash, thread, kind, urgency, expires_in: expiresIn }
  const answer = await callSend(
    scope,
    to && { ...row, to: to.names, namespaces: to.namespaces },
    (sql) => sql`
      select patchcord.send_message(
        ${scope.tokenHash}, ${to?.names ?? null}::text[], ${to?.namespaces ?? null}::text[], ${input.content}, ${thread},
        ${kind}, ${urgency}, ${key}, ${bodyHash}, ${limits}::text::jsonb, ${expiresIn}::float8) as answer`,
  )
  checkAttention(answer, toInboxMessages)
  return toSentMessage(answer)
}

/** Answers, defers or resolves a message that the caller received. Throws as sendMessage, but is never gated. */
export async function replyToMessage(scope: Scope, input: z.output<typeof ReplyToMessage>): Promise<Reply> {
  const { content = null, idempotency_key: key = null } = input
  if (input.defer && input.resolve) {
    throw new PatchcordError('invalid', 'A message can be deferred or resolved, not both.', {
      hint: 'Choose one of them.',
    })
  }
  if (content === null && !input.defer && !input.resolve) {
    throw new PatchcordError('invalid', 'A reply needs content.', {
      hint: 'Give content, or defer or resolve without it.',
    })
  }
  if (content !== null) checkContent(scope, content)
  const state = input.resolve ? 'resolved' : input.defer ? 'deferred' : 'answered'
  const bodyHash = hashBody(['reply', input.message_id, content, state])
  const limits = JSON.stringify(attentionLimits(scope.limits))
  const answer = await callSend(
    scope,
    { content, key, body_hash: bodyHash, answers: input.message_id, state },
    (sql) => sql`
      select patchcord.reply_message(
        ${scope.tokenHash}, ${input.message_id}, ${content}, ${state}, ${key}, ${bodyHash}, ${limits}::text::jsonb)
        as answer`,
  )
  checkAnswerable(answer.outcome)
  checkAttention(answer, toInboxMessages)
  return {
    message_id: input.message_id,
    state: answer.settled as Reply['state'],
    sent: answer.outcome === 'sent' ? toSentMessage(answer) : null,
  }
}

function checkAnswerable(outcome: string): void {
  switch (outcome) {
    case 'not_found':
      throw messageNotFound()
    case 'unseen':
      throw new PatchcordError(
        'conflict',
        'That message is still new: nobody has seen its text. Nothing was changed.',
        {
          hint: 'Fetch the inbox first.',
        },
      )
    case 'notice':
      throw new PatchcordError('conflict', 'That is a notice of the server: nobody reads an answer to it.', {
        hint: 'Nothing was stored, and nothing is left to settle.',
      })
    case 'resolved_before':
      throw new PatchcordError('conflict', 'That message is resolved already. Nothing was stored.', {
        hint: 'Call without resolve to tell its sender more, or without content to close a reopened thread.',
      })
  }
}

/** History of what the caller sent or received. Text that is still new to it is not shown, and nothing changes. */
export async function recallMessages(scope: Scope, input: z.output<typeof RecallMessages>): Promise<Recall> {
  const { message_id: id = null, from = null, thread = null, limit = 10, offset = 0 } = input
  const start = id ? offset : 0
  const skip = id ? 0 : offset
  const answer = await callEntry(
    scope,
    (sql) => sql`
      select patchcord.recall_messages(
        ${scope.tokenHash}, ${id}, ${from}, ${thread}, ${start}, ${SHOWN_CHARACTERS}, ${skip}, ${limit + 1}) as answer`,
  )
  const rows = answer.messages as Omit<RecalledMessage, 'content_offset' | 'to_left_out'>[]
  if (id && rows.length === 0) throw messageNotFound()
  const recalled = rows.map((row) => ({ ...row, content_offset: start, to_left_out: 0 }))
  const messages = fitRecalled(recalled.slice(0, limit))
  if (id) return { messages, next_offset: findRest(messages[0] as RecalledMessage) }
  return { messages, next_offset: messages.length < recalled.length ? offset + messages.length : null }
}

/** Where the text goes on, in characters as Postgres counts them; null: all of it was shown. */
function findRest({ content, content_offset: start, content_length: length }: RecalledMessage): number | null {
  const end = start + [...content].length
  return end < length ? end : null
}

function toSentMessage(answer: Outcome): SentMessage {
  const {
    message_id,
    thread,
    sent_at,
    expires_at,
    replayed,
    recipients,
    left_out = [],
  } = answer as unknown as SentMessage
  return { message_id, thread, sent_at, expires_at, replayed, recipients, left_out }
}

function checkContent(scope: Scope, content: string): void {
  const max = scope.limits.bodyCharactersMax
  if (content.length > max && [...content].length > max) {
    throw new PatchcordError('too_large', `The text is longer than ${max} characters. Nothing was stored.`, {
      hint: 'Send the gist, and where the rest can be found.',
    })
  }
  // Postgres cannot store NUL, and half a character would be stored as another one: the text would change in silence.
  if (/\0|\p{Surrogate}/u.test(content)) {
    throw new PatchcordError('invalid', 'The text holds a NUL or half a character (a lone surrogate).', {
      hint: 'Remove it and send again.',
    })
  }
  if (content.trim() === '') throw new PatchcordError('invalid', 'The text is empty.', { hint: 'Write something.' })
}

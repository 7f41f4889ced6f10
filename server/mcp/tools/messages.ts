import { z } from 'zod'
import {
  type Recall,
  RecallMessages,
  Recall as RecallSchema,
  Reply,
  ReplyToMessage,
  recallMessages,
  replyToMessage,
  SendMessage,
  SentMessage,
  sendMessage,
} from '../../domain/messages.ts'
import { describeExpiry, describeReach, describeTraits } from '../lines.ts'
import { countLeftOut, describeLeftOut, fitSent, RecipientsLeftOut } from '../recipients.ts'
import { defineTool, type View } from '../tool.ts'

const ADDS = { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: false }

const SentFacts = SentMessage.extend({
  recipients_left_out: RecipientsLeftOut,
  left_out_more: z.int().nullable(),
})
type SentFacts = z.output<typeof SentFacts>

export const sendMessageTool = defineTool({
  name: 'send_message',
  title: 'Send a message',
  description: 'Sends text to other agents; says who sees it how soon.',
  input: SendMessage,
  output: SentFacts,
  annotations: ADDS,
  isAlwaysLoaded: true,
  run: sendMessage,
  facts: (sent) => ({ ...sent, ...fitSent(sent.recipients, sent.left_out) }),
  render: describeSent,
})

export const replyTool = defineTool({
  name: 'reply',
  title: 'Reply',
  description: 'Answers a received message in its thread, which settles it; or defers or resolves it.',
  input: ReplyToMessage,
  output: Reply,
  annotations: ADDS,
  isAlwaysLoaded: true,
  run: replyToMessage,
  render({ message_id, state, sent }, view) {
    return [...(sent ? describeSent(sent, view) : []), `${message_id} is ${state}`]
  },
})

export const recallTool = defineTool({
  name: 'recall',
  title: 'Recall messages',
  description: 'History of messages sent and received, newest first; one in full by its id. Changes nothing.',
  input: RecallMessages,
  output: RecallSchema,
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  run: recallMessages,
  render: describeRecall,
})

/** One recipient stands in the first line; several are grouped by what is known of them. */
function describeSent(sent: SentMessage & Partial<SentFacts>, { nowMs }: View): string[] {
  const { message_id, replayed, expires_at, recipients, recipients_left_out: left = null } = sent
  const verb = replayed ? 'Already sent, with the same idempotency key,' : 'Sent'
  const isPending = recipients.some(({ state }) => state === 'new') || (left?.new ?? 0) > 0
  const expiry = expires_at && isPending ? `; ${describeExpiry(expires_at, nowMs)}` : ''
  const [only] = recipients
  if (recipients.length === 1 && only)
    return [`${verb} to ${only.agent} [${message_id}]: ${describeReach(only, nowMs)}${expiry}`, ...describeFull(sent)]
  const names = new Map<string, string[]>()
  for (const recipient of recipients) {
    const how = describeReach(recipient, nowMs)
    names.set(how, [...(names.get(how) ?? []), recipient.agent])
  }
  const groups = [...names].map(([how, agents]) => `${agents.join(', ')}: ${how}`)
  const count = recipients.length + countLeftOut(left)
  return [
    `${verb} to ${count} agents [${message_id}]${expiry}`,
    ...groups,
    ...describeLeftOut(left),
    ...describeFull(sent),
  ]
}

function describeFull({ left_out, left_out_more: more }: SentMessage & Partial<SentFacts>): string[] {
  const names = left_out.map(({ agent }) => agent).join(', ')
  return names ? [`Not to ${names}${more ? ` and ${more} more` : ''}: inbox full`] : []
}

function describeRecall({ messages, next_offset: next }: Recall, { nowMs }: View): string[] {
  const rest = next === null ? '' : `; offset ${next} shows more`
  const blocks = messages.flatMap((message) => [
    `${message.from} to ${listRecipients(message)}: ${describeTraits(message, nowMs).join(', ')}`,
    message.content,
  ])
  return [`${messages.length} message${messages.length === 1 ? '' : 's'}, newest first${rest}`, ...blocks]
}

function listRecipients({ to, to_left_out: left }: Recall['messages'][number]): string {
  return left ? `${to.join(', ')} and ${left} more` : to.join(', ')
}

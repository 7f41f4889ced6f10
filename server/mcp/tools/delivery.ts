import {
  GetMessageStatus,
  getMessageStatus,
  MessageStatus,
  UnsendMessage,
  UnsentMessage,
  unsendMessage,
} from '../../domain/delivery.ts'
import { describeExpiry, describeSeconds } from '../lines.ts'
import { describeLeftOut, fitRecipients, RecipientsLeftOut } from '../recipients.ts'
import { defineTool } from '../tool.ts'

const LEFT_OUT = { recipients_left_out: RecipientsLeftOut }

export const unsendTool = defineTool({
  name: 'unsend',
  title: 'Unsend a message',
  description: 'Takes a sent message back from everyone who has not fetched it yet.',
  input: UnsendMessage,
  output: UnsentMessage.extend(LEFT_OUT),
  // Not destructive: nothing that anyone has seen changes, and the text stays with its sender, in recall.
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  run: unsendMessage,
  facts: (answer) => ({ ...answer, ...fitRecipients(answer.recipients) }),
  render({ recipients, recipients_left_out: left }) {
    const back = recipients.filter(({ state }) => state === 'unsent').map(({ agent }) => agent)
    const late = recipients.filter(({ state }) => state !== 'unsent').map(({ agent, state }) => `${agent} (${state})`)
    return [
      `Unsent: ${back.join(', ')}${late.length > 0 ? `. Too late: ${late.join(', ')}` : ''}`,
      ...describeLeftOut(left),
    ]
  },
})

export const messageStatusTool = defineTool({
  name: 'message_status',
  title: 'Message status',
  description: 'How far a message got with each recipient, each step with its time.',
  input: GetMessageStatus,
  output: MessageStatus.extend(LEFT_OUT),
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  run: getMessageStatus,
  facts: (answer) => ({ ...answer, ...fitRecipients(answer.recipients) }),
  render({ message_id, from, thread, recipients, recipients_left_out: left }, { nowMs }) {
    const states = recipients.map(({ agent, state, held_until, expires_at, steps }) => {
      const times = steps.map(({ step, at }) => `${step} ${describeTime(at)}`).join(', ')
      const held = held_until ? `; wakes them in ${describeSeconds((Date.parse(held_until) - nowMs) / 1000)}` : ''
      const expires = expires_at ? `; ${describeExpiry(expires_at, nowMs)}` : ''
      return `${agent}: ${state} (${times})${held}${expires}`
    })
    return [`${message_id} from ${from}${thread ? `, thread ${thread}` : ''}`, ...states, ...describeLeftOut(left)]
  },
})

/** UTC to the millisecond; the database has microseconds and an offset. */
function describeTime(iso: string): string {
  return new Date(iso).toISOString()
}

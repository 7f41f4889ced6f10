import { z } from 'zod'
import { estimateTokens } from '../domain/answer-size.ts'
import { takeWhile } from '../domain/inbox-page.ts'

/** Of one answer; JSON and programs get all recipients from the API. */
const ANSWER_TOKENS = 9_600
/** Names of those who did not get a message may take so much of it. */
const LEFT_OUT_TOKENS = 2_000
/** What stands around the name of each: keys, state, reach; and each time that is known, with its key. */
const RECIPIENT_TOKENS = 30
const TIME_TOKENS = 32
const TIME = /^\d{4}-\d\d-\d\dT/

export const RecipientsLeftOut = z.record(z.string(), z.int()).nullable()
type RecipientsLeftOut = z.output<typeof RecipientsLeftOut>

/** As many of the recipients of a message as one answer can hold; the rest counted by state. */
export function fitRecipients<R extends { agent: string; state: string }>(
  recipients: R[],
  max = ANSWER_TOKENS,
): { recipients: R[]; recipients_left_out: RecipientsLeftOut } {
  const shown = takeWhile(recipients, max, sizeOf)
  if (shown.length === recipients.length) return { recipients, recipients_left_out: null }
  const left: Record<string, number> = {}
  for (const { state } of recipients.slice(shown.length)) left[state] = (left[state] ?? 0) + 1
  return { recipients: shown, recipients_left_out: left }
}

/** The same of a message that was sent, where those who did not get it are named too. */
export function fitSent<R extends { agent: string; state: string }, L extends { agent: string }>(
  recipients: R[],
  leftOut: L[],
) {
  const named = takeWhile(leftOut, LEFT_OUT_TOKENS, sizeOf)
  const max = ANSWER_TOKENS - named.reduce((sum, each) => sum + sizeOf(each), 0)
  return { ...fitRecipients(recipients, max), left_out: named, left_out_more: leftOut.length - named.length || null }
}

/** `240 new, 10 open`; nothing when all are named. */
export function describeLeftOut(left: RecipientsLeftOut): string[] {
  const counts = Object.entries(left ?? {}).map(([state, count]) => `${count} ${state}`)
  return counts.length > 0 ? [`and ${countLeftOut(left)} more: ${counts.join(', ')}`] : []
}

export function countLeftOut(left: RecipientsLeftOut): number {
  return Object.values(left ?? {}).reduce((sum, count) => sum + count, 0)
}

function sizeOf(recipient: { agent: string }): number {
  return RECIPIENT_TOKENS + estimateTokens(recipient.agent) + TIME_TOKENS * countTimes(recipient)
}

function countTimes(value: unknown): number {
  if (typeof value === 'string') return TIME.test(value) ? 1 : 0
  if (typeof value !== 'object' || value === null) return 0
  return Object.values(value).reduce((sum: number, each) => sum + countTimes(each), 0)
}

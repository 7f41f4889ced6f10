import type { Limits } from '../config.ts'
import type { Outcome } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'
import { unknownAgents } from './names.ts'

/** The limits that the SQL functions count with: send rate and what comes of calling past it, loop budget, cap of an inbox. */
export function attentionLimits(limits: Limits) {
  const { sendBurst, sendPerSecond, refusalsPerMinuteMax, banSeconds } = limits
  const { turnsMax, turnsUnattendedMax, turnsWindowSeconds, newPerRecipientMax } = limits
  return {
    sendBurst,
    sendPerSecond,
    refusalsPerMinuteMax,
    banSeconds,
    turnsMax,
    turnsUnattendedMax,
    turnsWindowSeconds,
    newPerRecipientMax,
  }
}

const NAMES_MAX = 20

/** Everybody's may be full. */
function listSome(names: string[]): string {
  const more = names.length > NAMES_MAX ? ` and ${names.length - NAMES_MAX} more` : ''
  return `${names.slice(0, NAMES_MAX).join(', ')}${more}`
}

/** Throws the error of a send or reply that was refused: by the gate, the recipient's cap, its address or its key. */
export function checkAttention(answer: Outcome, toMessages: (shown: unknown) => unknown): void {
  switch (answer.outcome) {
    case 'gated':
      throw new PatchcordError('gated', 'Not sent: there are messages from this recipient that you had not read.', {
        hint: 'Read them; the same send goes through next time if it is still what you want to say.',
        details: { messages: toMessages(answer.messages) },
      })
    case 'unknown':
      throw unknownAgents(answer.unknown as string[], answer.agents as string[])
    case 'inbox_full':
      throw new PatchcordError('inbox_full', `Not sent: the inbox of ${listSome(answer.full as string[])} is full.`, {
        hint: 'Nothing was stored. Try again when they have read what waits there.',
        retryAfterSeconds: 60,
        details: { full: answer.full },
      })
    case 'conflict':
      throw new PatchcordError('conflict', 'This idempotency key was used for another message in the last 24 hours.', {
        hint: 'Use a new key for a new message.',
      })
  }
}

import type { Agent } from '../domain/agents.ts'
import type { MessageState } from '../domain/delivery.ts'
import type { InboxMessage } from '../domain/inbox.ts'

type Reach = {
  reach: Agent['reach'] | 'self'
  last_seen_at: string | null
  held_until?: string | null
  state?: MessageState
}

/** How long ago an ISO time was, in its largest unit: `20 s ago`. */
/** In each answer of a paused namespace that says who can be woken. */
export const PAUSED =
  'A person has paused this namespace: nothing is sent, and nobody is woken, until a person resumes it.'

export function describeAge(iso: string, nowMs: number): string {
  return `${describeSeconds((nowMs - Date.parse(iso)) / 1000)} ago`
}

export function describeSeconds(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds))
  if (whole < 120) return `${whole} s`
  if (whole < 7_200) return `${Math.round(whole / 60)} min`
  if (whole < 172_800) return `${Math.round(whole / 3_600)} h`
  return `${Math.round(whole / 86_400)} d`
}

/** Until when it waits for its recipient. */
export function describeExpiry(iso: string, nowMs: number): string {
  return `expires unread in ${describeSeconds((Date.parse(iso) - nowMs) / 1000)}`
}

/** A message in full: one line of ours, then its text, which is fenced already. */
export function describeMessage(message: InboxMessage, nowMs: number): string[] {
  const { reply_to: replyTo, shown_seconds_ago: shown } = message
  const facts = [
    ...describeTraits(message, nowMs),
    ...(replyTo ? [`in reply to ${replyTo}`] : []),
    ...(shown === null ? [] : [`shown ${describeSeconds(shown)} ago`]),
  ]
  return [`${message.from}: ${facts.join(', ')}`, message.content]
}

/** What a line says of a message beside its text; the usual kind and urgency go without saying. */
export function describeTraits(
  message: { kind?: string; urgency?: string; thread: string | null; sent_at: string },
  nowMs: number,
): string[] {
  const { kind, urgency, thread } = message
  return [
    ...(urgency && urgency !== 'normal' ? [urgency] : []),
    ...(kind && kind !== 'message' ? [kind] : []),
    ...(thread ? [`thread ${thread}`] : []),
    describeAge(message.sent_at, nowMs),
  ]
}

/** What is known of how soon a message is seen. */
export function describeReach(recipient: Reach, nowMs: number): string {
  const { reach, last_seen_at: seenAt, held_until: heldUntil, state = 'new' } = recipient
  if (reach === 'self') return 'kept in your inbox as deferred'
  // Sent before, under the same key: what has become of it says more than who could see it soon.
  if (state !== 'new') return `${state} by now`
  const seen = seenAt ? `last seen ${describeAge(seenAt, nowMs)}` : 'never seen'
  const how = reach === 'offline' ? `offline, ${seen}: it waits in their inbox` : reach
  if (!heldUntil) return how
  const seconds = (Date.parse(heldUntil) - nowMs) / 1000
  return `${how}; too many turns without a person, so it wakes them in ${describeSeconds(seconds)}`
}

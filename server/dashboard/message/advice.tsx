import type { Child } from 'hono/jsx'
import type { MessageStory, RecipientStory } from '../../domain/message-story.ts'
import { formatAbsolute, formatRelative } from '../components/index.ts'

export interface Advice {
  kind: 'info' | 'warn' | 'bad'
  text: Child
}

/** What to do, or to wait for, where a message has not come to its end; null where there is nothing to say. */
export function adviseOn(message: MessageStory, recipient: RecipientStory, now: Date): Advice | null {
  const { agent, state, expires_at: expiresAt } = recipient
  switch (state) {
    case 'new':
      return adviseOnNew(message, recipient, now)
    case 'expired':
      return {
        kind: 'bad',
        text: `${agent} did not fetch it ${expiresAt ? `before ${formatAbsolute(new Date(expiresAt))}` : 'in time'}, so it has expired and is shown to nobody. ${message.from} was told; send it again if it is still wanted.`,
      }
    case 'open':
      return {
        kind: 'info',
        text: `${agent} has fetched it and not settled it yet: it stays in the inbox of ${agent} until it is answered, resolved or marked done.`,
      }
    case 'deferred':
      return {
        kind: 'info',
        text:
          message.from === agent
            ? `A note of ${agent} to itself: it stays in its inbox under “deferred” until it is marked done.`
            : `${agent} has put it off: it stays in its inbox under “deferred” until it is answered or marked done.`,
      }
    case 'unsent':
      return { kind: 'info', text: `${message.from} took it back before ${agent} fetched it.` }
    default:
      return null
  }
}

function adviseOnNew(message: MessageStory, recipient: RecipientStory, now: Date): Advice {
  const { agent, reach, wake_at: wakeAt, held_until: heldUntil } = recipient
  if (reach === null) return { kind: 'bad', text: `${agent} was deleted: nobody will fetch it.` }
  if (wakeAt === null) {
    return {
      kind: 'info',
      text: `It was sent so that it wakes nobody; ${agent} sees it at its next look into the inbox.`,
    }
  }
  if (message.paused_at !== null) {
    return {
      kind: 'warn',
      text: 'The namespace is paused: nobody is woken until an owner or an admin resumes it in Settings.',
    }
  }
  if (heldUntil !== null) {
    const until = new Date(heldUntil)
    return {
      kind: 'warn',
      text: `Held by the loop budget until ${formatAbsolute(until)} (${formatRelative(until, now)}): ${message.from} and ${agent} have answered each other many times without a person. It is announced then by itself; a prompt that somebody types in one of the two sessions gives later messages a fresh budget.`,
    }
  }
  return adviseOnDue(recipient, now)
}

function adviseOnDue({ agent, reach, last_seen_at: seenAt, steps }: RecipientStory, now: Date): Advice {
  const seen = seenAt ? `last seen ${formatRelative(new Date(seenAt), now)}` : 'it has never connected'
  if (steps.some(({ step }) => step === 'notified')) {
    return {
      kind: reach === 'wakeable' ? 'info' : 'warn',
      text:
        reach === 'wakeable'
          ? `The listener of ${agent} has announced it; ${agent} has not fetched it yet.`
          : `It was announced, but ${agent} has not fetched it and has no listener any more (${seen}): run /patchcord:subscribe there.`,
    }
  }
  if (reach === 'wakeable') return { kind: 'info', text: `${agent} has a listener: it is announced any moment now.` }
  if (reach === 'online') {
    return {
      kind: 'warn',
      text: `${agent} has no listener: run /patchcord:subscribe there. It waits in the inbox until then.`,
    }
  }
  return {
    kind: 'warn',
    text: `${agent} is offline and has no listener (${seen}). It waits in the inbox: start the client of ${agent}, and run /patchcord:subscribe there so that the next one wakes it.`,
  }
}

import { cutToTokens, estimateTokens } from './answer-size.ts'
import { MESSAGE_TOKENS, MESSAGES_TOKENS, takeWhile } from './inbox-page.ts'

interface Recalled {
  content: string
  to: string[]
  to_left_out: number
}

/** As many as a list of recipients has; a message to everyone may have thousands. */
const NAMES_MAX = 50
const NAME_TOKENS = 4

/**
 * As many of these messages, from the first one on, as one answer can hold, and at least one, whose text is cut if need be:
 * `content_length` tells. Of recipients, some are named and the rest counted.
 */
export function fitRecalled<M extends Recalled>(messages: M[]): M[] {
  const [first, ...rest] = messages.map(nameSome)
  if (!first) return []
  const room = MESSAGES_TOKENS - sizeOf({ ...first, content: '' })
  return takeWhile([{ ...first, content: cutToTokens(first.content, room) }, ...rest], MESSAGES_TOKENS, sizeOf)
}

function nameSome<M extends Recalled>(message: M): M {
  const left = Math.max(0, message.to.length - NAMES_MAX)
  return { ...message, to: message.to.slice(0, NAMES_MAX), to_left_out: left }
}

function sizeOf({ content, to }: Recalled): number {
  const names = to.reduce((sum, name) => sum + NAME_TOKENS + estimateTokens(name), 0)
  return MESSAGE_TOKENS + names + estimateTokens(content)
}

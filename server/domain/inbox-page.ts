import { cutToTokens, estimateTokens, shareTokens } from './answer-size.ts'

interface Message {
  message_id: string
  content: string
}

/** What of an inbox takes room; its numbers and names are short. */
interface Page {
  new: Message[]
  /** In the order in which they were shown. */
  again: Message[]
  notices: { content: string }[]
  open: { preview: string }[]
  open_left: number
  deferred: { preview: string }[]
  deferred_left: number
  settled: unknown[]
  /** The nearest first. */
  agents: { agent: string }[]
  agents_left_out: number
}

/** Of one answer, in either form in which a model may be shown it. Estimates are too high rather than too low. */
export const ANSWER_TOKENS = 9_900
export const HEADER_TOKENS = 250
/** New messages get as much as this; SQL takes fewer, but for a first one that is longer. */
export const MESSAGES_TOKENS = 8_700
/** What stands around each: names, ids, times, the fence. */
export const MESSAGE_TOKENS = 230
const LINE_TOKENS = 170
const SETTLED_TOKENS = 45
const AGENT_TOKENS = 14
/** Kept for what comes after new messages, and after everything but the agents. */
const REST_TOKENS = 900
const AGENTS_TOKENS = 400

/** The same messages, the long ones cut (`content_length` tells, and recall shows the rest) so that all of them fit. */
export function fitMessages<M extends { content: string }>(messages: M[], max = MESSAGES_TOKENS): M[] {
  const wanted = messages.map(({ content }) => estimateTokens(content))
  const shares = shareTokens(wanted, max - messages.length * MESSAGE_TOKENS)
  return messages.map((message, index) => ({ ...message, content: cutToTokens(message.content, shares[index] ?? 0) }))
}

/** An inbox as one answer can hold it: what is new first, then what was shown lately, then lines and agents, the rest counted. */
export function fitInbox<P extends Page>(inbox: P): P {
  let left = ANSWER_TOKENS - HEADER_TOKENS - inbox.settled.length * SETTLED_TOKENS
  const fresh = fitMessages(inbox.new, Math.min(MESSAGES_TOKENS, left - REST_TOKENS))
  left -= sizeOf(fresh)
  const notices = fitMessages(inbox.notices, left - AGENTS_TOKENS)
  left -= sizeOf(notices)
  const again = takeLatest(inbox.again, left - AGENTS_TOKENS)
  left -= sizeOf(again)
  const open = takeWhile(inbox.open, left - AGENTS_TOKENS, sizeOfLine)
  left -= open.reduce((sum, line) => sum + sizeOfLine(line), 0)
  const deferred = takeWhile(inbox.deferred, left - AGENTS_TOKENS, sizeOfLine)
  left -= deferred.reduce((sum, line) => sum + sizeOfLine(line), 0)
  const agents = takeWhile(inbox.agents, left, ({ agent }) => AGENT_TOKENS + estimateTokens(agent))
  return {
    ...inbox,
    new: fresh,
    notices,
    again,
    open,
    open_left: inbox.open_left + (inbox.again.length - again.length) + (inbox.open.length - open.length),
    deferred,
    deferred_left: inbox.deferred_left + (inbox.deferred.length - deferred.length),
    agents,
    agents_left_out: inbox.agents_left_out + (inbox.agents.length - agents.length),
  }
}

/** Whoever asks again may have lost the last answer: what that one showed comes first, the latest one cut rather than left out. */
function takeLatest(messages: Message[], max: number): Message[] {
  const latestFirst = [...messages].reverse()
  const [latest] = latestFirst
  if (!latest || max < 2 * MESSAGE_TOKENS) return []
  const [first] = fitMessages([latest], max)
  const taken = new Set(takeWhile([first ?? latest, ...latestFirst.slice(1)], max, sizeOfMessage).map(idOf))
  return messages.flatMap((message) =>
    taken.has(idOf(message)) ? [message === latest ? (first ?? message) : message] : [],
  )
}

const idOf = ({ message_id }: { message_id: string }) => message_id
const sizeOfMessage = ({ content }: { content: string }) => MESSAGE_TOKENS + estimateTokens(content)
const sizeOfLine = ({ preview }: { preview: string }) => LINE_TOKENS + estimateTokens(preview)
const sizeOf = (messages: { content: string }[]) => messages.reduce((sum, each) => sum + sizeOfMessage(each), 0)

/** As many items from the first one on as take `max` together. */
export function takeWhile<T>(items: T[], max: number, sizeOfItem: (item: T) => number): T[] {
  let left = max
  const end = items.findIndex((item) => {
    left -= sizeOfItem(item)
    return left < 0
  })
  return end === -1 ? items : items.slice(0, end)
}

import { isRecord } from '../../scripts/lib/basics.cjs'
import { getWhoami, type Server } from './api.ts'
import { CommandError } from './errors.ts'
import { cleanLabel, type Frame } from './frame.ts'
import type { Output } from './output.ts'

/** A message as the JSON API gives it; `content` in full or in part. */
export interface Message {
  message_id: string
  from: string
  to?: string[]
  to_left_out?: number
  thread: string | null
  kind: string
  urgency: string
  reply_to?: string | null
  sent_at: string
  content: string
  content_offset?: number
  content_length?: number
}

export interface Recipient {
  agent: string
  state: string
  reach: string
  last_seen_at: string | null
  held_until?: string | null
}

export interface Sent {
  message_id: string
  thread: string | null
  sent_at: string
  expires_at: string | null
  replayed: boolean
  recipients: Recipient[]
  /** Of a send to everybody: whose inbox was full. */
  left_out?: { agent: string }[]
}

const PERSONS_WORDS = new Set(['content', 'preview'])

/** One line of ours, then the message's text in its frame, and what is missing of it. */
/** While a person has paused the namespace. */
export const PAUSED =
  'A person has paused this namespace: nothing is sent, and nobody is woken, until a person resumes it.'

export function describeMessage(message: Message, namespace: string, frame: Frame, nowMs = Date.now()): string[] {
  const { message_id: id, from, content } = message
  const more = message.to_left_out ? ` and ${cleanLabel(message.to_left_out)} more` : ''
  const to = message.to === undefined ? '' : ` to ${message.to.map((name) => cleanLabel(name)).join(', ')}${more}`
  return [
    `${cleanLabel(from)}${to}: ${describeTraits(message, nowMs)} [${cleanLabel(id)}]`,
    frame.wrap({ from: `${from}@${namespace}`, id }, content),
    ...describeRest(message),
  ]
}

/** What is missing of a text that was cut, and how to see it. */
export function describeRest(message: Message): string[] {
  const { message_id: id, content, content_offset: offset = 0, content_length: length = 0 } = message
  const end = offset + [...content].length
  return end < length
    ? [`[${end} of ${cleanLabel(length)} characters: patchcord recall ${cleanLabel(id)} --offset ${end}]`]
    : []
}

type Traits = { kind?: string; urgency?: string; thread: string | null; sent_at: string }

/** What a line says of a message beside its text; the usual kind and urgency go without saying. */
export function describeTraits({ kind, urgency, thread, sent_at }: Traits, nowMs = Date.now()): string {
  const traits = [
    ...(urgency && urgency !== 'normal' ? [urgency] : []),
    ...(kind && kind !== 'message' ? [kind] : []),
    ...(thread ? [`thread ${thread}`] : []),
  ]
  return [...traits.map((trait) => cleanLabel(trait)), describeAge(sent_at, nowMs)].join(', ')
}

/** A time of the server in the one form that all of ours have: ISO 8601, UTC, `2026-11-29T19:42:14.026Z`. */
export function describeTime(iso: string): string {
  const time = new Date(iso)
  return Number.isNaN(time.getTime()) ? cleanLabel(iso) : time.toISOString()
}

/** How long ago an ISO time was, in its largest unit: `20 s ago`. */
export function describeAge(iso: string, nowMs = Date.now()): string {
  const seconds = Math.max(0, Math.round((nowMs - Date.parse(iso)) / 1000))
  if (Number.isNaN(seconds)) return 'at an unknown time'
  if (seconds < 120) return `${seconds} s ago`
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min ago`
  return seconds < 172_800 ? `${Math.round(seconds / 3_600)} h ago` : `${Math.round(seconds / 86_400)} d ago`
}

export function describeReach({ reach, last_seen_at: seenAt, held_until: heldUntil }: Recipient): string {
  const seen = seenAt ? `last seen ${describeAge(seenAt)}` : 'never seen'
  const offline = `offline, ${seen}: it waits in their inbox`
  const how = reach === 'self' ? 'kept in your inbox as deferred' : reach === 'offline' ? offline : cleanLabel(reach)
  return heldUntil ? `${how}; held until ${describeTime(heldUntil)}: too many turns without a person` : how
}

export function describeSent(sent: Sent): string[] {
  const { message_id: id, replayed, expires_at: expiresAt, recipients, left_out: leftOut = [] } = sent
  const verb = replayed ? 'Already sent, with the same idempotency key,' : 'Sent'
  const isPending = recipients.some(({ state }) => state === 'new')
  const expiry = expiresAt && isPending ? `; expires unread at ${describeTime(expiresAt)}` : ''
  const without = leftOut.map(({ agent }) => `  not to ${cleanLabel(agent)}: inbox full`)
  const [only] = recipients
  if (only && recipients.length === 1)
    return [`${verb} to ${cleanLabel(only.agent)} [${cleanLabel(id)}]: ${describeReach(only)}${expiry}`, ...without]
  const lines = recipients.map((each) => `  ${cleanLabel(each.agent)}: ${describeReach(each)}`)
  return [`${verb} to ${recipients.length} agents [${cleanLabel(id)}]${expiry}`, ...lines, ...without]
}

/** An answer as `--json` may show it: what people wrote stands in the frame (at a terminal as it is), the rest is cleaned. */
export function protect(value: unknown, namespace: string, output: Output): unknown {
  if (typeof value === 'string') return cleanLabel(value, 500)
  if (Array.isArray(value)) return value.map((each) => protect(each, namespace, output))
  if (!isRecord(value)) return value
  const entries = Object.entries(value).map(([key, each]) => {
    if (typeof each !== 'string' || !PERSONS_WORDS.has(key)) return [key, protect(each, namespace, output)]
    if (output.isTerminal) return [key, each]
    const provenance = { from: `${value.from ?? 'unknown'}@${namespace}`, id: String(value.message_id ?? '') }
    return [key, key === 'content' ? output.frame.wrap(provenance, each) : output.frame.wrapLine(provenance, each)]
  })
  return Object.fromEntries(entries)
}

/**
 * An error that came with messages, as a closed gate does: they count as fetched, so they must be seen. They are printed
 * before the error is thrown on.
 */
export async function showGated(server: Server, output: Output, thrown: unknown): Promise<never> {
  const messages = thrown instanceof CommandError ? thrown.details?.messages : undefined
  if (!(thrown instanceof CommandError) || !Array.isArray(messages)) throw thrown
  const namespace = await getNamespace(server)
  if (!output.isJson) {
    for (const message of messages as Message[]) output.print(describeMessage(message, namespace, output.frame), null)
  }
  const { code, message, hint, exit, details } = thrown
  const shown = protect(details, namespace, output) as Record<string, unknown>
  throw new CommandError(code, message, { hint, exit, details: shown, cause: thrown })
}

/** The namespace that names stand in; `unknown` where the server cannot say, since an answer must not be lost for that. */
export async function getNamespace(server: Server): Promise<string> {
  return await getWhoami(server).then(
    ({ namespace }) => namespace,
    () => 'unknown',
  )
}

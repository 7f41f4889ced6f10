import { TICKET_ROLE } from '../domain/tickets.ts'
import { jsonbText } from './jsonb.ts'

/** Every topic of Supabase Realtime starts with this; what follows is what `realtime.topic()` says in a policy. */
export const TOPIC_PREFIX = 'realtime:'

/** The topic of an agent's wakes, as clients join it. */
export function wakeTopic(namespaceId: string, agentId: string): string {
  return `${TOPIC_PREFIX}agent:${namespaceId}:${agentId}`
}

/**
 * Whether a JWT with these claims may read the private topic (without its prefix). It must say what the database's policy
 * on `realtime.messages` says, to role patchcord_ticket, with the claims as jsonb:
 *
 *     realtime.topic() = 'agent:' || (auth.jwt()->>'ns') || ':' || (auth.jwt()->>'agent')
 *     and (auth.jwt()->>'exp')::float8 > extract(epoch from now())
 *
 * so claims that are no strings count as the text that `->>` gives, and what is an error there is a refusal here.
 */
export function mayReadTopic(claims: unknown, topic: string, nowSeconds: number): boolean {
  if (!isObject(claims) || !isJsonb(claims) || claims.role !== TICKET_ROLE) return false
  const namespace = claimText(claims, 'ns')
  const agent = claimText(claims, 'agent')
  const exp = claimText(claims, 'exp')
  if (namespace === null || agent === null || exp === null) return false
  return topic === `agent:${namespace}:${agent}` && isLater(parseFloat8(exp), nowSeconds)
}

/** Postgres sorts NaN above every number. */
function isLater(expSeconds: number | null, nowSeconds: number): boolean {
  return expSeconds !== null && (Number.isNaN(expSeconds) || expSeconds > nowSeconds)
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** jsonb refuses U+0000 and lone surrogates anywhere in a document, also in a claim that nobody reads. */
function isJsonb(value: unknown): boolean {
  if (typeof value === 'string') return !value.includes('\0') && !/\p{Surrogate}/u.test(value)
  if (Array.isArray(value)) return value.every(isJsonb)
  return !isObject(value) || Object.entries(value).every(([key, member]) => isJsonb(key) && isJsonb(member))
}

/** `claims->>'name'`: null where the claim is missing or null. */
export function claimText(claims: Record<string, unknown>, name: string): string | null {
  const value = Object.hasOwn(claims, name) ? claims[name] : undefined
  if (value === undefined || value === null) return null
  return typeof value === 'string' ? value : jsonbText(value)
}

const DECIMAL = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i
const HEXADECIMAL = /^([+-]?)0x([\da-f]+\.?[\da-f]*|\.[\da-f]+)(?:p([+-]?\d+))?$/i
const INFINITE = /^([+-]?)inf(inity)?$/i
const NOT_A_NUMBER = /^[+-]?nan(\(\w*\))?$/i

/** `text::float8`, which is C's strtod between white space; null: an error there, overflow included. */
function parseFloat8(text: string): number | null {
  const trimmed = text.replace(/^[ \t\n\v\f\r]+|[ \t\n\v\f\r]+$/g, '')
  if (NOT_A_NUMBER.test(trimmed)) return Number.NaN
  const infinite = INFINITE.exec(trimmed)
  if (infinite) return infinite[1] === '-' ? -Infinity : Infinity
  const value = DECIMAL.test(trimmed) ? Number(trimmed) : parseHexadecimal(trimmed)
  return Number.isFinite(value) ? value : null
}

function parseHexadecimal(text: string): number {
  const [, sign, mantissa = '', exponent = '0'] = HEXADECIMAL.exec(text) ?? []
  if (sign === undefined) return Number.NaN
  const [whole = '', fraction = ''] = mantissa.split('.')
  const value = Number(`0x${whole}${fraction}`) * 2 ** (Number(exponent) - 4 * fraction.length)
  return sign === '-' ? -value : value
}

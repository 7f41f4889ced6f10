import { z } from 'zod'
import { PatchcordError } from '../errors.ts'

export const NAME_PATTERN = /^[a-z0-9](?:[a-z0-9._-]{0,38}[a-z0-9])?$/
const NAME_RULE =
  'Names are 1 to 40 characters: a-z, 0-9, dot, underscore and hyphen, with a letter or digit at both ends.'

/** An agent as an argument that filters: `alice`, or `alice@acme` as messages show it. */
export const AgentFilter = z
  .string()
  .regex(/^[a-z0-9][a-z0-9._-]{0,39}(?:@[a-z0-9][a-z0-9._-]{0,39})?$/, 'an agent is named like alice or alice@acme')

/** The name in an address, without its namespace. */
export function nameOf(address: string): string {
  return address.split('@', 1)[0] ?? ''
}

/** The name of a namespace or an agent. Throws invalid, with the lower-case form as the hint where only capitals are wrong. */
export function checkName(text: string, what: 'namespace' | 'agent'): string {
  if (NAME_PATTERN.test(text)) return text
  const lower = text.toLowerCase()
  throw new PatchcordError(
    'invalid',
    `"${text.slice(0, 60)}" is not a name for ${what === 'agent' ? 'an' : 'a'} ${what}.`,
    {
      hint: NAME_PATTERN.test(lower) ? `Names are lower case: use "${lower}".` : NAME_RULE,
    },
  )
}

/** A name that somebody has, or had while messages carry it. */
export class NameTaken extends PatchcordError {
  constructor(message: string, cause?: unknown) {
    super('conflict', message, { hint: 'Choose another name.', ...(cause === undefined ? {} : { cause }) })
  }
}

/** Agents of an address text: names, with the namespace where one is given; null for `*`, everyone in the caller's namespace. */
export function parseAddresses(text: string, max: number): { names: string[]; namespaces: (string | null)[] } | null {
  const parts = text.split(',').map((part) => part.trim())
  if (parts.length === 1 && parts[0] === '*') return null
  const addresses = [...new Set(parts.filter((part) => part !== ''))]
  if (addresses.length === 0)
    throw new PatchcordError('invalid', 'No recipient.', { hint: 'Name an agent, or * for everyone here.' })
  if (addresses.length > max)
    throw new PatchcordError('invalid', `More than ${max} recipients.`, { hint: 'Use * for everyone here.' })
  const split = addresses.map(splitAddress)
  return { names: split.map((each) => each.name), namespaces: split.map((each) => each.namespace) }
}

function splitAddress(address: string): { name: string; namespace: string | null } {
  if (address === '*')
    throw new PatchcordError('invalid', '* stands alone, not in a list.', { hint: 'Send to * only.' })
  if (address.startsWith('#'))
    throw new PatchcordError('invalid', 'There are no rooms yet.', { hint: 'Name agents instead.' })
  const [name = '', namespace, ...rest] = address.split('@')
  if (rest.length > 0)
    throw new PatchcordError('invalid', `"${address.slice(0, 90)}" is not an address.`, {
      hint: 'Write agent or agent@namespace.',
    })
  return {
    name: checkName(name, 'agent'),
    namespace: namespace === undefined ? null : checkName(namespace, 'namespace'),
  }
}

/** The names of `known` that are nearest to `wanted`, best first, at most three; none that share too little. */
export function suggestNames(wanted: string, known: string[]): string[] {
  return known
    .map((name) => ({ name, distance: editDistance(wanted, name) }))
    .filter(({ name, distance }) => distance <= Math.max(2, Math.floor(wanted.length / 2)) || name.startsWith(wanted))
    .sort((a, b) => a.distance - b.distance || (a.name < b.name ? -1 : 1))
    .slice(0, 3)
    .map(({ name }) => name)
}

/** Levenshtein's distance, one row at a time. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const substitution = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(substitution, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1))
    }
    row = next
  }
  return row[b.length] ?? 0
}

/** The error for recipients that do not exist; agents of another namespace answer exactly the same. */
export function unknownAgents(unknown: string[], roster: string[]): PatchcordError {
  if (unknown.length === 0) {
    return new PatchcordError('not_found', 'There is no other agent in this namespace yet.', {
      hint: 'Nothing was stored.',
    })
  }
  const suggestions = [...new Set(unknown.flatMap((address) => suggestNames(nameOf(address), roster)))]
  const names = unknown.map((address) => `"${address}"`).join(', ')
  return new PatchcordError('not_found', `Unknown agent ${names}. Nothing was stored.`, {
    hint: suggestions.length > 0 ? `Did you mean ${suggestions.join(' or ')}?` : 'list_agents shows who is here.',
    details: { unknown, suggestions },
  })
}

import { MESSAGE_KINDS, MessageFilters } from '../../domain/message-list.ts'

export interface ReadFilters {
  filters: MessageFilters
  before: string | undefined
  /** As they were typed, for the form to show again. */
  typed: Record<FilterName, string>
  /** What was typed that can be none: nothing is found by it. */
  problems: string[]
}

export const FILTERS = ['text', 'agent', 'direction', 'state', 'kind', 'thread'] as const
export type FilterName = (typeof FILTERS)[number]

const RULES: Record<FilterName, (value: string) => string> = {
  text: () => 'A search is up to 200 characters long.',
  agent: (value) => `No agent can be named “${value}”.`,
  direction: (value) => `“${value}” is no direction: from and to are.`,
  state: (value) => `“${value}” is no state of a message.`,
  kind: (value) => `“${value}” is no kind of message: ${MESSAGE_KINDS.join(', ')} are.`,
  thread: (value) => `No thread can be named “${value}”: their names are of a-z, 0-9 and hyphen.`,
}

/** The filters of a list out of its address; empty ones, as a form sends them, are none. */
export function readFilters(query: unknown): ReadFilters {
  const given = (query ?? {}) as Record<string, unknown>
  const textOf = (name: string) => (typeof given[name] === 'string' ? given[name].trim() : '')
  const typed = Object.fromEntries(FILTERS.map((name) => [name, textOf(name)])) as Record<FilterName, string>
  const wanted = { ...typed, agent: typed.agent.toLowerCase(), thread: typed.thread.toLowerCase() }
  const filled = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== ''))
  const parsed = MessageFilters.safeParse(filled)
  const before = textOf('before') || undefined
  if (parsed.success) return { filters: parsed.data, before, typed, problems: [] }
  const names = new Set(parsed.error.issues.map(({ path }) => path[0] as FilterName))
  return { filters: {}, before, typed, problems: [...names].map((name) => RULES[name](typed[name].slice(0, 60))) }
}

/** The address of a list with these filters, and a page of it. */
export function listPath(path: string, typed: Partial<Record<FilterName, string>>, before?: string | null): string {
  const query = new URLSearchParams()
  for (const name of FILTERS) if (typed[name]) query.set(name, typed[name])
  if (before) query.set('before', before)
  return query.size > 0 ? `${path}?${query}` : path
}

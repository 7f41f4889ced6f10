import { cleanLabel, type Fence } from './fence.ts'

/** The keys of a message under which its sender's own words stand. */
interface Said {
  message_id: string
  from: string
  content?: string
  preview?: string
  content_offset?: number
  content_length?: number
}

/**
 * The answer of a domain function as a model may see it: words of a sender stand in the fence of this answer, every other
 * text is cleaned. Nothing is shown that has not come through here.
 */
export function protect<T>(value: T, fence: Fence, namespace: string): T {
  if (typeof value === 'string') return cleanLabel(value) as T
  if (Array.isArray(value)) return value.map((each) => protect(each, fence, namespace)) as T
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).map(([key, each]) => [
    key,
    isSaid(value, key) ? fenceWords(value, key, fence, namespace) : protect(each, fence, namespace),
  ])
  return Object.fromEntries(entries) as T
}

function isSaid(value: object, key: string): value is Said {
  return (key === 'content' || key === 'preview') && typeof (value as Record<string, unknown>)[key] === 'string'
}

function fenceWords(said: Said, key: string, fence: Fence, namespace: string): string {
  const provenance = { from: `${said.from}@${namespace}`, id: said.message_id, trust: 'same-namespace' as const }
  if (key === 'preview') return fence.wrapLine(provenance, said.preview ?? '')
  const content = said.content ?? ''
  return fence.wrap(provenance, content) + describeRest(said, content)
}

/** Lengths are in characters as Postgres counts them: code points. */
function describeRest({ message_id, content_offset = 0, content_length = 0 }: Said, content: string): string {
  const end = content_offset + [...content].length
  if (end < content_length) {
    const shown = content_offset === 0 ? `cut at ${end}` : `${content_offset} to ${end}`
    return `\n[${shown} of ${content_length} characters: recall with message_id ${message_id} and offset ${end} shows the rest]`
  }
  return content_offset === 0 ? '' : `\n[${content_offset} to ${end} of ${content_length} characters]`
}

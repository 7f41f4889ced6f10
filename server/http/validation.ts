import { PatchcordError } from '../errors.ts'

/** Arguments that had another name once: told with the new one instead of being guessed. */
const RENAMED: Record<string, string> = { to_agent: 'to', from_agent: 'from' }
const SHOWN_CHARACTERS_MAX = 60
const PARTS: Record<string, string> = {
  body: 'body',
  querystring: 'query',
  params: 'path',
  headers: 'headers',
}

interface Issue {
  keyword?: string
  instancePath?: string
  message?: string
  params?: unknown
}

/** A failed validation of fastify-type-provider-zod as one sentence about one field; its value is never repeated. */
export function toInvalid(error: { validation?: unknown; validationContext?: unknown }): PatchcordError {
  const issues = (error.validation ?? []) as Issue[]
  const part = PARTS[String(error.validationContext)] ?? 'request'
  const unknown = issues.flatMap((issue) => (issue.keyword === 'unrecognized_keys' ? listKeys(issue) : []))
  const renamed = unknown.find((key) => Object.hasOwn(RENAMED, key))
  if (renamed !== undefined) {
    return new PatchcordError('invalid', `${part}: "${renamed}" is called "${RENAMED[renamed]}" now.`, {
      hint: `Use "${RENAMED[renamed]}".`,
    })
  }
  const [key] = unknown
  if (key !== undefined) return new PatchcordError('invalid', `${part}: unknown field "${shorten(key)}".`)
  return new PatchcordError('invalid', describeIssue(part, issues[0] ?? {}))
}

function describeIssue(part: string, { instancePath = '', keyword, message = 'not valid' }: Issue): string {
  const field = instancePath.replace(/^\//, '').replaceAll('/', '.')
  const nothing = field === '' ? 'received null' : 'received undefined'
  const isMissing = keyword === 'invalid_type' && message.endsWith(nothing)
  if (field === '') return isMissing ? `The ${part} is missing.` : `${part}: ${message}.`
  return isMissing ? `${part}: "${shorten(field)}" is missing.` : `${part}: "${shorten(field)}": ${message}.`
}

function listKeys({ params }: Issue): string[] {
  const { keys } = (params ?? {}) as { keys?: unknown }
  return Array.isArray(keys) ? keys.map(String) : []
}

function shorten(text: string): string {
  return text.length <= SHOWN_CHARACTERS_MAX ? text : `${text.slice(0, SHOWN_CHARACTERS_MAX)}…`
}

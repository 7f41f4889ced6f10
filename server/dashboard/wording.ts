import { PatchcordError } from '../errors.ts'

/** Hints that name a verb of the operator's program, as who looks at a page can follow them. */
const HINTS: Record<string, string> = {
  'list-tokens shows their ids.': 'The page of tokens shows those that are there.',
  'issue-token makes a new one.': 'Make a new token instead.',
  'create-agent makes one.': 'The page of agents shows who is here.',
  'create-namespace makes one.': 'Your namespaces are on the first page.',
}
const UUID = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
const ENDED_TOKEN = new RegExp(`^Token ${UUID} `)

/** What the domain says to everybody, in the words of the pages. */
export function reword(error: PatchcordError): PatchcordError {
  const hint = error.hint === undefined ? undefined : (HINTS[error.hint] ?? error.hint)
  const message = error.message
    .replace(ENDED_TOKEN, 'This token ')
    .replace(/^There is no token .*\.$/s, 'There is no such token.')
  if (hint === error.hint && message === error.message) return error
  const { retryAfterSeconds, details, cause } = error
  return new PatchcordError(error.code, message, {
    cause,
    ...(hint !== undefined && { hint }),
    ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
    ...(details !== undefined && { details }),
  })
}

import { usageError } from './errors.ts'
import { cleanLabel } from './frame.ts'

/** Where to find one. */
export const SHOWN_IDS = 'patchcord inbox and patchcord recall show the ids, in [brackets].'
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/** The id of a message in a command line. What is none is told before anybody is asked. */
export function parseMessageId(text: string): string {
  if (UUID.test(text)) return text
  throw usageError(`"${cleanLabel(text, 60)}" is not the id of a message.`, SHOWN_IDS)
}

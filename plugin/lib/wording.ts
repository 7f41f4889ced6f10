import { SHOWN_IDS } from './message-id.ts'

interface Said {
  message: string
  hint: string | undefined
}

/** What each field of a call is on the command line. */
const FIELDS: Record<string, readonly [message: string, hint: string]> = {
  content: ['There is no text.', 'Give it as one argument, or - to read it from stdin.'],
  to: ['Nobody is named to send it to.', 'Name an agent, a comma list, or * for everyone here (patchcord who --all).'],
  id: ['That is not the id of a message.', SHOWN_IDS],
  done: ['--done takes ids of messages, with commas between them.', SHOWN_IDS],
  from: ['--from takes an agent, such as alice or alice@acme.', 'patchcord who --all lists them.'],
  kind: ['--kind takes message, question, report, heads-up or request.', 'Choose one of them.'],
  urgency: ['--urgency takes fyi, normal or urgent.', 'Choose one of them.'],
  thread: ['--thread takes 1 to 64 of a-z, 0-9 and hyphen.', 'Choose such a name.'],
  limit: ['--limit takes a number from 1 to 50.', 'Without it ten are shown.'],
  offset: ['--offset takes a number from 0 to 1000000.', 'The last line of an answer names the one that goes on.'],
  idempotency_key: ['--idempotency-key takes 1 to 200 characters without control characters.', 'Choose such a key.'],
}
/** `body: "done.0": …` as the API says it; `wait_for_message: from: …` as a tool does. */
const FIELD = /^(?:(?:body|query|path): "([a-z_]+)[.\d]*"|[a-z_]+: ([a-z_]+):)/

/** How hints begin that name a tool, or a call. */
const PHRASES: readonly (readonly [RegExp, string])[] = [
  [/^list_agents shows/, 'patchcord who --all shows'],
  [/^recall lists/, 'patchcord recall lists'],
  [/^Fetch the inbox/, 'Run patchcord inbox'],
  [/^End another wait_for_message/, 'End another patchcord wait'],
  [/^Call again\./, 'Try again.'],
  [/\binbox and recall show\b/, 'patchcord inbox and patchcord recall show'],
  [/^Ask for a new token and put it into \.mcp\.json\./, 'Ask for a new one, then: patchcord connect --server URL.'],
]

/** What the server says in the words of its API and its tools, said in the words of this command. */
export function toOurWords(code: string, { message, hint }: Said): Said {
  const [, ofCall, ofTool] = (code === 'invalid' && FIELD.exec(message)) || []
  const field = ofCall ?? ofTool ?? ''
  const known = Object.hasOwn(FIELDS, field) ? FIELDS[field] : undefined
  if (known) return { message: known[0], hint: known[1] }
  return { message, hint: PHRASES.reduce((text, [theirs, ours]) => text?.replace(theirs, ours), hint) }
}

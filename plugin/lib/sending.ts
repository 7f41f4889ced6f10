import { callApi, type Server } from './api.ts'
import { readContent } from './content.ts'
import { parseSeconds } from './duration.ts'
import { CommandError, EXIT, usageError } from './errors.ts'
import { cleanLabel } from './frame.ts'
import { type Sent, showGated } from './show.ts'
import { type Invocation, textOption } from './verb.ts'

/** How many names a hint holds. */
const NAMES_MAX = 8
const EXPIRES_SECONDS_MAX = 30 * 86_400

export const SEND_OPTIONS = {
  thread: { type: 'string' },
  kind: { type: 'string' },
  urgency: { type: 'string' },
  'expires-in': { type: 'string' },
  'idempotency-key': { type: 'string' },
  'online-only': { type: 'boolean' },
} as const

export const SEND_HELP = `  --thread SLUG          the conversation it belongs to
  --kind KIND            message, question, report, heads-up or request
  --urgency URGENCY      fyi, normal or urgent
  --expires-in TIME      unread by then it is shown to nobody, and you are told: seconds, or 90s, 5m, 2h, 7d
  --idempotency-key KEY  sending again with the same key sends nothing twice
  --online-only          send nothing to who is offline: exit 3`

interface AgentHere {
  agent: string
  reach: string
  is_you: boolean
}

/** Sends what the command line says. Messages that closed the gate are shown, as they count as fetched. */
export async function sendFrom(
  server: Server,
  invocation: Invocation,
  defaults: Record<string, string> = {},
): Promise<Sent> {
  const { options, output } = invocation
  const [to = '', text] = invocation.arguments
  const body = {
    ...defaults,
    to,
    content: await readContent(text, 'message'),
    ...pick('thread', textOption(options, 'thread')),
    ...pick('kind', textOption(options, 'kind')),
    ...pick('urgency', textOption(options, 'urgency')),
    ...readExpiry(textOption(options, 'expires-in')),
    ...pick('idempotency_key', textOption(options, 'idempotency-key')),
  }
  if (options['online-only'] === true) await requireOnline(server, to)
  try {
    return await callApi<Sent>(server, 'POST', '/api/messages', { body })
  } catch (error) {
    return await showGated(server, output, await nameWhoIsHere(server, error))
  }
}

function readExpiry(text: string | undefined): { expires_in?: number } {
  if (text === undefined) return {}
  const seconds = parseSeconds(text)
  if (seconds !== null && seconds <= EXPIRES_SECONDS_MAX) return { expires_in: seconds }
  throw usageError('--expires-in takes seconds, or a number and s, m, h or d, such as 2h; 30d at most.')
}

function pick(name: string, value: string | undefined): Record<string, string> {
  return value === undefined ? {} : { [name]: value }
}

/** Where no name is near to the one that was written, the agent may be called otherwise by now: those who are here help. */
async function nameWhoIsHere(server: Server, thrown: unknown): Promise<unknown> {
  const { unknown, suggestions } = (thrown instanceof CommandError && thrown.details) || {}
  if (!(thrown instanceof CommandError) || !Array.isArray(unknown)) return thrown
  if (!Array.isArray(suggestions) || suggestions.length > 0) return thrown
  // What was refused is the news; who is here only helps, and may be left out.
  const agents = await listAgents(server).catch(() => [])
  const names = agents.filter(({ is_you: isYou }) => !isYou).map(({ agent }) => cleanLabel(agent))
  if (names.length === 0) return thrown
  const left = names.length - NAMES_MAX
  const rest = left > 0 ? ` and ${left} more: patchcord who --all` : ''
  const { code, message, exit, details } = thrown
  const hint = `Agents here: ${names.slice(0, NAMES_MAX).join(', ')}${rest}.`
  return new CommandError(code, message, { hint, exit, details, cause: thrown })
}

async function listAgents(server: Server): Promise<AgentHere[]> {
  return (await callApi<{ agents: AgentHere[] }>(server, 'GET', '/api/agents?all=1')).agents
}

/** Before anything is stored: whoever goes offline in the moment after is reached by the inbox as ever. */
async function requireOnline(server: Server, to: string): Promise<void> {
  const agents = await listAgents(server)
  const names = to.split(',').map((address) => address.trim().split('@')[0] ?? '')
  const others = agents.filter((agent) => !agent.is_you)
  const isForAll = to.trim() === '*'
  const named = isForAll ? others : agents.filter(({ agent, is_you }) => !is_you && names.includes(agent))
  const offline = named.filter(({ reach }) => reach === 'offline')
  if (isForAll ? offline.length < others.length : offline.length === 0) return
  const who = isForAll ? 'Everyone here' : offline.map(({ agent }) => agent).join(', ')
  throw new CommandError('offline', `${who} is offline. Nothing was sent.`, {
    hint: 'Without --online-only the message waits in their inbox.',
    exit: EXIT.offline,
  })
}

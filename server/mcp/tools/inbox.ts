import { z } from 'zod'
import { Agent } from '../../domain/agents.ts'
import type { SettledMessage } from '../../domain/delivery.ts'
import {
  FetchInbox,
  fetchInbox,
  Inbox,
  InboxMessage,
  WaitedMessage,
  WaitForMessage,
  waitForMessage,
} from '../../domain/inbox.ts'
import { describeMessage, describeTraits, PAUSED } from '../lines.ts'
import { defineTool } from '../tool.ts'

const AgentHere = Agent.pick({ agent: true, reach: true, state: true })

/**
 * Of the domain's answer: the caller's own name stands in the summary, the evidence for a reach in list_agents. `messages`
 * are all that are shown in full; those shown again say when that was.
 */
const InboxFacts = Inbox.omit({ agent: true, namespace: true, new: true, again: true }).extend({
  messages: z.array(InboxMessage),
  new_left: z.int().nullable(),
  notices_left: z.int().nullable(),
  open_left: z.int().nullable(),
  deferred_left: z.int().nullable(),
  offline_left_out: z.int().nullable(),
  agents_left_out: z.int().nullable(),
  you: z.enum(['wakeable', 'not wakeable']),
  agents: z.array(AgentHere),
})
type InboxFacts = z.output<typeof InboxFacts>

const HINT = ': run /patchcord:subscribe'
/** Codex has no commands of plugins; its plugin's hooks start the listener, and are skipped in silence until they are trusted. */
const HINT_CODEX = ": review the plugin's hooks in /hooks"
const CODEX = 'codex-mcp-client/'

export const inboxTool = defineTool({
  name: 'inbox',
  title: 'Inbox',
  description: 'Shows new messages in full (they become open) and lists open and deferred ones and the agents here.',
  input: FetchInbox,
  output: InboxFacts,
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: false },
  isAlwaysLoaded: true,
  run: fetchInbox,
  facts: toFacts,
  render(facts, { me, userAgent, nowMs }) {
    const { counts } = facts
    const hint = facts.you === 'wakeable' ? '' : userAgent.startsWith(CODEX) ? HINT_CODEX : HINT
    return [
      `${me.agent}@${me.namespace} | ${counts.new} new, ${counts.open} open, ${counts.deferred} deferred | you: ${facts.you}${hint}`,
      ...(facts.paused_at ? [PAUSED] : []),
      ...facts.messages.flatMap((message) => describeMessage(message, nowMs)),
      ...(facts.new_left ? [`${facts.new_left} more are new: the next inbox shows them`] : []),
      ...facts.notices.flatMap(({ from, thread, reply_to, content }) => [
        `${from} resolved ${thread ? `thread ${thread}` : (reply_to ?? 'a message')}`,
        content,
      ]),
      ...(facts.notices_left ? [`${facts.notices_left} more were resolved: the next inbox shows them`] : []),
      ...describeLines('open', facts.open, facts.open_left, nowMs),
      ...describeLines('deferred', facts.deferred, facts.deferred_left, nowMs),
      ...facts.settled.map(({ message_id, state }) => `${message_id} ${describeSettled(state)}`),
      ...describeAgents(facts),
    ]
  },
})

export const waitForMessageTool = defineTool({
  name: 'wait_for_message',
  title: 'Wait for a message',
  description:
    'Waits for the next new message and shows it; it becomes open. Several waits in a row make a longer one.',
  input: WaitForMessage,
  output: WaitedMessage,
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: false },
  isAlwaysLoaded: true,
  isLong: true,
  run: (scope, input, { waiters, signal }) => waitForMessage(scope, waiters, input, signal),
  render({ end, message }, { nowMs }) {
    if (message) return describeMessage(message, nowMs)
    return [end === 'restarting' ? 'The server is restarting, call again.' : 'Nothing yet. Call again.']
  },
})

function toFacts(inbox: Inbox): InboxFacts {
  const { agent: _, namespace: __, new: fresh, again, you, agents, ...facts } = inbox
  return {
    ...facts,
    messages: [...fresh, ...again],
    new_left: facts.new_left || null,
    notices_left: facts.notices_left || null,
    open_left: facts.open_left || null,
    deferred_left: facts.deferred_left || null,
    offline_left_out: facts.offline_left_out || null,
    agents_left_out: facts.agents_left_out || null,
    you: you.reach === 'wakeable' ? 'wakeable' : 'not wakeable',
    agents: agents.map(({ agent, reach, state }) => ({ agent, reach, state })),
  }
}

function describeSettled(state: SettledMessage['state']): string {
  if (state === null) return 'is not a message of yours'
  return state === 'new' ? 'was still new and not shown to you before, so it was not marked done' : `is ${state}`
}

function describeLines(name: string, lines: Inbox['open'], left: number | null, nowMs: number): string[] {
  if (lines.length === 0 && !left) return []
  const shown = lines.map((line) => `- ${line.preview} ${describeTraits(line, nowMs).join(', ')}`)
  const rest = 'later ones: shown here once older ones are settled, and by recall, newest first'
  return [`${name}:`, ...shown, ...(left ? [`- ${left} more, ${rest}`] : [])]
}

function describeAgents({ agents, offline_left_out: offlineLeft, agents_left_out: left }: InboxFacts): string[] {
  const here = agents.map(({ agent, reach, state }) => `${agent} ${reach}${state === 'busy' ? ' (busy)' : ''}`)
  const all = [...here, ...(left ? [`${left} more`] : []), ...(offlineLeft ? [`${offlineLeft} offline`] : [])]
  return all.length > 0 ? [`agents: ${all.join(', ')}`] : []
}

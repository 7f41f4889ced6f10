import { z } from 'zod'
import { type Agent, Agents, ListAgents, listAgents } from '../../domain/agents.ts'
import { estimateTokens } from '../../domain/answer-size.ts'
import { takeWhile } from '../../domain/inbox-page.ts'
import { describeAge, PAUSED } from '../lines.ts'
import { defineTool } from '../tool.ts'

/** Of one answer; JSON and programs get all agents from the API. */
const ANSWER_TOKENS = 9_700
/** What stands around the names of each: two times, keys. */
const AGENT_TOKENS = 110
const REACHES: Agent['reach'][] = ['wakeable', 'online', 'offline']

const AgentsFacts = Agents.extend({ agents_left_out: z.int().nullable() })

export const listAgentsTool = defineTool({
  name: 'list_agents',
  title: 'List agents',
  description: 'Agents of this namespace: who can be woken, who is online, and how that is known.',
  input: ListAgents,
  output: AgentsFacts,
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  run: listAgents,
  facts: fitAgents,
  render({ namespace, agents, offline_left_out: left, agents_left_out: more, paused_at: pausedAt }, { nowMs }) {
    const rest = [
      ...(more ? [`, ${more} more do not fit here: messages reach them by name`] : []),
      ...(left > 0 ? [`, ${left} offline not listed (all: true)`] : []),
    ].join('')
    const lines = agents.map(
      (agent) => `${agent.agent}${agent.is_you ? ' (you)' : ''}: ${describeEvidence(agent, nowMs)}`,
    )
    return [`${namespace} | ${agents.length} listed${rest}`, ...(pausedAt ? [PAUSED] : []), ...lines]
  },
})

/** Who can be reached soonest stays when not all fit. */
function fitAgents(answer: Agents): z.output<typeof AgentsFacts> {
  const rank = (agent: Agent) => (agent.is_you ? -1 : REACHES.indexOf(agent.reach))
  const nearestFirst = [...answer.agents].sort((a, b) => rank(a) - rank(b))
  const shown = new Set(takeWhile(nearestFirst, ANSWER_TOKENS, sizeOf))
  const left = answer.agents.length - shown.size
  return { ...answer, agents: answer.agents.filter((agent) => shown.has(agent)), agents_left_out: left || null }
}

function sizeOf({ agent, client, machine }: Agent): number {
  return AGENT_TOKENS + [agent, client ?? '', machine ?? ''].reduce((sum, text) => sum + estimateTokens(text), 0)
}

function describeEvidence(agent: Agent, nowMs: number): string {
  const { reach, state, client, machine, lease_renewed_at: renewedAt, last_seen_at: seenAt } = agent
  return [
    reach,
    ...(state && reach !== 'offline' ? [state] : []),
    ...(client ? [client] : []),
    ...(machine ? [`on ${machine}`] : []),
    ...(renewedAt ? [`listener renewed ${describeAge(renewedAt, nowMs)}`] : []),
    seenAt ? `seen ${describeAge(seenAt, nowMs)}` : 'never seen',
  ].join(', ')
}

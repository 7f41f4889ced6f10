import { type Agent, Agents, ListAgents, listAgents } from '../../domain/agents.ts'
import { describeAge } from '../lines.ts'
import { defineTool } from '../tool.ts'

export const listAgentsTool = defineTool({
  name: 'list_agents',
  title: 'List agents',
  description: 'Agents of this namespace: who can be woken, who is online, and how that is known.',
  input: ListAgents,
  output: Agents,
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  run: listAgents,
  render({ namespace, agents, offline_left_out: left }, { nowMs }) {
    const rest = left > 0 ? `, ${left} offline not listed (all: true)` : ''
    const lines = agents.map(
      (agent) => `${agent.agent}${agent.is_you ? ' (you)' : ''}: ${describeEvidence(agent, nowMs)}`,
    )
    return [`${namespace} | ${agents.length} listed${rest}`, ...lines]
  },
})

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

import type { AgentCard } from '../../domain/agents.ts'
import type { TokenCard } from '../../domain/tokens.ts'
import { Reach, State } from '../components/index.ts'

/** Whether an agent was ever here: the line that somebody watches while connecting it. */
export function AgentHello({ agent, now }: { agent: AgentCard; now: Date }) {
  if (agent.last_seen_at === null && agent.reach === 'offline') return <Waiting agent={agent} />
  return <Arrived agent={agent} now={now} />
}

/** The same for one new token: that the agent was here with another one says nothing of it. */
export function TokenHello({ agent, token, now }: { agent: AgentCard; token: TokenCard | null; now: Date }) {
  if (!token?.last_used_at) return <Waiting agent={agent} />
  return <Arrived agent={agent} now={now} />
}

function Waiting({ agent }: { agent: AgentCard }) {
  return (
    <p class="hello" role="status">
      <State kind="off">Waiting for {agent.agent} to say hello.</State>
      <span class="soft"> It does when its client calls a tool or its listener starts.</span>
    </p>
  )
}

function Arrived({ agent, now }: { agent: AgentCard; now: Date }) {
  return (
    <p class="hello good" role="status">
      <State kind="good">{agent.agent} has said hello.</State>
      <span class="soft">
        {' '}
        It is <Reach agent={agent} now={now} />
      </span>
    </p>
  )
}

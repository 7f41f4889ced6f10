import type { AgentCard } from '../../domain/agents.ts'
import type { TokenCard } from '../../domain/tokens.ts'
import { Reach, State } from '../components/index.ts'

interface Arrival {
  agent: AgentCard
  now: Date
  /** Nobody in its namespace is woken. */
  isPaused: boolean
}

/** Whether an agent was ever here: the line that somebody watches while connecting it. */
export function AgentHello({ agent, now, isPaused }: Arrival) {
  if (agent.last_seen_at === null && agent.reach === 'offline') return <Waiting agent={agent} />
  return <Arrived agent={agent} now={now} isPaused={isPaused} />
}

/** The same for one new token: that the agent was here with another one says nothing of it. */
export function TokenHello({ agent, token, now, isPaused }: Arrival & { token: TokenCard | null }) {
  if (!token?.last_used_at) return <Waiting agent={agent} />
  return <Arrived agent={agent} now={now} isPaused={isPaused} />
}

function Waiting({ agent }: { agent: AgentCard }) {
  return (
    <p class="hello" role="status">
      <State kind="off">Waiting for {agent.agent} to say hello.</State>
      <span class="soft"> It does when its client calls a tool or its listener starts.</span>
    </p>
  )
}

function Arrived({ agent, now, isPaused }: Arrival) {
  return (
    <p class="hello good" role="status">
      <State kind="good">{agent.agent} has said hello.</State>
      <span class="soft">
        {' '}
        It is <Reach agent={agent} now={now} isPaused={isPaused} />
      </span>
    </p>
  )
}

import type { FastifyRequest } from 'fastify'
import type { Member } from '../../db/scope.ts'
import type { AgentCard } from '../../domain/agents.ts'
import { Disclosure } from '../components/disclosure.tsx'
import { Filters } from '../components/filters.tsx'
import {
  Button,
  ButtonLink,
  Empty,
  Field,
  Form,
  Layout,
  Live,
  Pager,
  Reach,
  State,
  Table,
} from '../components/index.ts'
import { NameField } from './name-field.tsx'
import { count, isAdmin } from './words.ts'

/** So many are found without a search. */
const FEW = 12

export interface AgentsProps {
  request: FastifyRequest
  member: Member
  agents: AgentCard[]
  next: string | null
  q: string
  isFirstPage: boolean
  /** The name of a new one that was refused, as it was typed, and why. */
  problem?: { name: string; message: string }
}

/** Is my agent connected? */
export function AgentsPage(props: AgentsProps) {
  const { request, member, agents } = props
  const frame = { request, namespace: member, tab: 'agents' as const }
  const isWhole = props.q === '' && props.isFirstPage
  // The answer to a form is the whole list again, wherever the form stood.
  const livePage = props.problem ? { ...request.page, path: listPath(props) } : request.page
  if (isWhole && agents.length === 0) {
    return (
      <Layout {...frame} title="Agents">
        <FirstAgent {...props} />
      </Layout>
    )
  }
  return (
    <Layout {...frame} title="Agents" action={isAdmin(member) && <Add {...props} />}>
      {(!isWhole || agents.length > FEW) && <Search {...props} />}
      <Live name="list" page={livePage} events={`/n/${member.namespace}/events`}>
        <AgentTable {...props} />
      </Live>
      <Pager next={pagePath(props)} first={props.isFirstPage ? null : listPath(props)} />
    </Layout>
  )
}

function Add(props: AgentsProps) {
  return (
    <Disclosure summary="Add agent" kind="primary" isOpen={props.problem !== undefined} id="add">
      <AddAgent {...props} />
    </Disclosure>
  )
}

function listPath({ member, q }: Pick<AgentsProps, 'member' | 'q'>): string {
  const query = q === '' ? '' : `?${new URLSearchParams({ q })}`
  return `/n/${member.namespace}/agents${query}`
}

function pagePath({ member, q, next }: AgentsProps): string | null {
  if (next === null) return null
  return `/n/${member.namespace}/agents?${new URLSearchParams({ ...(q !== '' && { q }), after: next })}`
}

function FirstAgent(props: AgentsProps) {
  if (!isAdmin(props.member)) {
    return (
      <Empty title="No agent yet">
        <p>An owner or an admin adds the first one. The page of members shows who they are.</p>
        <ButtonLink href={`/n/${props.member.namespace}/members`}>To the members</ButtonLink>
      </Empty>
    )
  }
  return (
    <Empty title="Name your first agent">
      <p>
        An agent is one project on one machine: one name, one inbox. Give it the name by which others will write to it.
      </p>
      <AddAgent {...props} />
      <ol class="steps">
        <li>Add it here.</li>
        <li>Make a token for it on the next page.</li>
        <li>Paste one command into its project, and watch it say hello.</li>
      </ol>
    </Empty>
  )
}

function AddAgent({ request, member, problem }: AgentsProps) {
  return (
    <Form action={`/n/${member.namespace}/agents`} csrf={request.page.csrf} layout="row">
      <NameField label="Name of the new agent" placeholder="backend" problem={problem} />
      <Button kind="primary">Add</Button>
    </Form>
  )
}

function Search({ member, q }: AgentsProps) {
  return (
    <Filters action={`/n/${member.namespace}/agents`} label="Filter agents" isFiltered={q !== ''}>
      <Field name="q" label="Part of a name" type="search" value={q} mono />
    </Filters>
  )
}

/** The part of the page that is kept fresh. */
export function AgentTable({ request, member, agents, q }: Pick<AgentsProps, 'request' | 'member' | 'agents' | 'q'>) {
  if (agents.length === 0) {
    return (
      <Empty title="No such agent" level={2}>
        <p>{q === '' ? 'There is none on this page.' : 'No name has this part in it.'}</p>
      </Empty>
    )
  }
  const rows = agents.map((agent) => ({
    key: agent.agent,
    cells: [
      <a class="mono" href={`/n/${member.namespace}/agents/${agent.agent}`}>
        {agent.agent}
      </a>,
      <Reach agent={agent} now={request.page.now} isPaused={member.pausedAt !== null} />,
      <Mail agent={agent} />,
      <Tokens agent={agent} member={member} />,
    ],
  }))
  const columns = [{ label: 'Agent' }, { label: 'State' }, { label: 'Messages' }, { label: 'Tokens' }]
  return <Table caption={`Agents of ${member.namespace}`} columns={columns} rows={rows} />
}

/** New ones of an agent that nobody can wake wait for a person. */
export function Mail({ agent }: { agent: AgentCard }) {
  if (agent.new === 0 && agent.open === 0) return <span class="soft">none</span>
  const isStuck = agent.new > 0 && agent.reach !== 'wakeable'
  return (
    <span class="nowrap">
      {isStuck ? <State kind="warn">{agent.new} new</State> : `${agent.new} new`}
      {agent.open > 0 && ` · ${agent.open} open`}
    </span>
  )
}

function Tokens({ agent, member }: { agent: AgentCard; member: Member }) {
  const path = `/n/${member.namespace}/tokens?agent=${agent.agent}`
  if (agent.tokens > 0) {
    return (
      <a class="nowrap" href={path}>
        {count(agent.tokens, 'token')}
      </a>
    )
  }
  if (!isAdmin(member)) return <span class="soft nowrap">no token</span>
  return (
    <a class="nowrap" href={`${path}&new=1#new`}>
      Make a token
    </a>
  )
}

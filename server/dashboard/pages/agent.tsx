import type { FastifyRequest } from 'fastify'
import type { Member } from '../../db/scope.ts'
import type { AgentCard } from '../../domain/agents.ts'
import type { TokenCard } from '../../domain/tokens.ts'
import {
  Button,
  ButtonLink,
  Confirm,
  Copy,
  Empty,
  Facts,
  Form,
  Layout,
  Live,
  Reach,
  Section,
  Time,
} from '../components/index.ts'
import { Mail } from './agents.tsx'
import { AgentHello } from './hello.tsx'
import { NameField } from './name-field.tsx'
import { Snippets } from './snippets.tsx'
import { connectCommand } from './token-snippets.ts'
import { TokenTable } from './token-table.tsx'
import { count, isAdmin } from './words.ts'

export interface AgentProps {
  request: FastifyRequest
  member: Member
  agent: AgentCard
  /** Those that open its door now, the newest first. */
  tokens: TokenCard[]
  hasMoreTokens: boolean
  /** The new name that was refused, as it was typed, and why. */
  problem?: { name: string; message: string }
}

/** Is this agent connected, and how do I connect it? */
export function AgentPage(props: AgentProps) {
  const { request, member, agent } = props
  const isNew = agent.last_seen_at === null && agent.reach === 'offline'
  return (
    <Layout
      request={request}
      namespace={member}
      tab="agents"
      title={agent.agent}
      action={isAdmin(member) && <MakeToken {...props} kind={isNew && agent.tokens > 0 ? 'plain' : 'primary'} />}
    >
      <Live name="state" page={livePage(props)} events={`/n/${member.namespace}/events`}>
        <AgentState {...props} />
      </Live>
      {isNew ? <ConnectFirst {...props} /> : null}
      <Tokens {...props} />
      {isNew ? null : <ConnectAgain {...props} />}
      {isAdmin(member) && <Rename {...props} />}
      {isAdmin(member) && <Delete {...props} />}
    </Layout>
  )
}

/** Also where the page is the answer to a form, whose address has no parts. */
function livePage({ request, member, agent }: AgentProps) {
  return { ...request.page, path: `/n/${member.namespace}/agents/${agent.agent}` }
}

function MakeToken({ member, agent, kind }: AgentProps & { kind: 'primary' | 'plain' }) {
  return (
    <ButtonLink href={`/n/${member.namespace}/tokens?agent=${agent.agent}&new=1#new`} kind={kind}>
      Make a token
    </ButtonLink>
  )
}

/** The part of the page that is kept fresh. */
export function AgentState({ request, agent, member }: Pick<AgentProps, 'request' | 'agent' | 'member'>) {
  const { now } = request.page
  return (
    <div class="agent-state">
      <Reach agent={agent} now={now} isPaused={member.pausedAt !== null} />
      <Facts
        facts={[
          ['Address', <code>{`${agent.agent}@${member.namespace}`}</code>],
          ['Messages', <Mail agent={agent} />],
          ['Added', <Time at={agent.created_at} now={now} />],
        ]}
      />
    </div>
  )
}

function ConnectFirst(props: AgentProps) {
  const { request, member, agent } = props
  if (agent.tokens === 0) {
    return (
      <Empty title={`${agent.agent} has no token yet`}>
        <p>
          A token is what an agent proves itself with.{' '}
          {isAdmin(member)
            ? 'Make one, and the next page shows what to paste where.'
            : 'An owner or an admin makes one and gives it to you.'}
        </p>
      </Empty>
    )
  }
  return (
    <Empty title={`Connect ${agent.agent}`}>
      <p>With its token at hand:</p>
      <Snippets url={request.page.origin} token={null} />
      <Live name="hello" page={livePage(props)} events={`/n/${member.namespace}/events`} everySeconds={3}>
        <AgentHello agent={agent} now={request.page.now} isPaused={member.pausedAt !== null} />
      </Live>
    </Empty>
  )
}

function ConnectAgain(props: AgentProps) {
  return (
    <Section title="Connect it again" lead="With a token of this agent at hand, in the folder of its project:">
      <Copy text={`${connectCommand({ url: props.request.page.origin })} --replace`} />
      <Clients {...props} />
    </Section>
  )
}

function Clients({ request }: AgentProps) {
  return (
    <details class="fold">
      <summary>Every client, and by hand</summary>
      <Snippets url={request.page.origin} token={null} />
    </details>
  )
}

function Tokens(props: AgentProps) {
  const { member, agent, tokens } = props
  if (tokens.length === 0 && agent.last_seen_at === null) return null
  return (
    <Section
      title="Tokens"
      aside={<a href={`/n/${member.namespace}/tokens?agent=${agent.agent}&state=all`}>Ended ones too</a>}
    >
      {tokens.length === 0 ? (
        <p class="soft">None opens its door now: {agent.agent} cannot send or fetch anything.</p>
      ) : (
        <TokenTable {...props} isOfOneAgent filterAgent={agent.agent} />
      )}
      {props.hasMoreTokens && (
        <p>
          <a href={`/n/${member.namespace}/tokens?agent=${agent.agent}`}>All of its tokens</a>
        </p>
      )}
    </Section>
  )
}

function Rename({ request, member, agent, problem }: AgentProps) {
  return (
    <Section
      title="Name"
      lead="Its tokens, messages and history stay with it. Connections under the old name end within a second, and its listeners connect again by themselves; others must write to the new name."
    >
      <Form action={`/n/${member.namespace}/agents/${agent.agent}/rename`} csrf={request.page.csrf} layout="row">
        <NameField label="New name" value={agent.agent} problem={problem} />
        <Button>Rename</Button>
      </Form>
    </Section>
  )
}

function Delete({ request, member, agent }: AgentProps) {
  return (
    <Section title="Delete" lead="Ends everything of this agent at once. This cannot be undone.">
      <Confirm
        summary={`Delete ${agent.agent}`}
        button="Delete now"
        action={`/n/${member.namespace}/agents/${agent.agent}/delete`}
        csrf={request.page.csrf}
      >
        <ul>
          <li>{describeTokens(agent)}</li>
          <li>{describeMail(agent)}</li>
          {agent.last_seen_at !== null && (
            <li>
              What it has sent stays with those who got it, and so does its name: another agent can be called{' '}
              <code>{agent.agent}</code> only when those messages are gone.
            </li>
          )}
        </ul>
      </Confirm>
    </Section>
  )
}

function describeTokens({ tokens }: AgentCard): string {
  if (tokens === 0) return 'It has no token that works, so nothing is disconnected.'
  return `${count(tokens, 'token')} ${tokens === 1 ? 'stops' : 'stop'} working, and what is connected with ${tokens === 1 ? 'it' : 'them'} is disconnected within a second.`
}

function describeMail({ new: unread, open }: AgentCard): string {
  if (unread + open === 0) return 'No message waits for it.'
  const parts = [unread > 0 && count(unread, 'new message'), open > 0 && count(open, 'open message')].filter(Boolean)
  return `${parts.join(' and ')} will never be answered.`
}

import type { FastifyRequest } from 'fastify'
import type { MyNamespace } from '../../domain/namespaces.ts'
import { Button, Empty, Form, Layout, Notice, Section, State } from '../components/index.ts'
import { NameField } from './name-field.tsx'

export interface HomeProps {
  request: FastifyRequest
  namespaces: MyNamespace[]
  /** What was wrong with the name of a new one. */
  problem?: { name: string; message: string }
}

/** The namespaces that I belong to, and what needs me in them. */
export function Home(props: HomeProps) {
  const { request, namespaces } = props
  if (namespaces.length === 0) return <FirstNamespace {...props} />
  const waiting = namespaces.filter(({ waiting: count }) => count > 0)
  return (
    <Layout request={request} title="Namespaces">
      {waiting.length > 0 && <Waiting namespaces={waiting} />}
      <ul class="cards">
        {namespaces.map((namespace) => (
          <li>
            <NamespaceCard namespace={namespace} />
          </li>
        ))}
      </ul>
      <Section
        title="New namespace"
        lead="Agents reach each other inside a namespace, and its members see what they say."
      >
        <NewNamespace {...props} />
      </Section>
    </Layout>
  )
}

function FirstNamespace(props: HomeProps) {
  return (
    <Layout request={props.request} title="Name your first namespace" width="narrow">
      <div class="panel">
        <p>
          A namespace is where your agents reach each other: usually one for each team or project. You can invite people
          to it and rename it later.
        </p>
        <NewNamespace {...props} isFirst />
      </div>
      <Empty title="What comes next" level={2}>
        <ol class="steps">
          <li>Add an agent, and make a token for it.</li>
          <li>Paste the ready snippet into Claude Code, Codex, Cursor or another client.</li>
          <li>Watch it say hello here.</li>
        </ol>
      </Empty>
    </Layout>
  )
}

function NewNamespace({ request, problem, isFirst }: HomeProps & { isFirst?: boolean }) {
  return (
    <Form action="/namespaces" csrf={request.page.csrf} layout={isFirst ? 'stack' : 'row'}>
      <NameField label="Name" placeholder="acme" problem={problem} />
      <Button kind="primary">Create namespace</Button>
    </Form>
  )
}

function Waiting({ namespaces }: { namespaces: MyNamespace[] }) {
  return (
    <Notice kind="warn" title="Messages are waiting for agents that nobody can wake">
      <ul>
        {namespaces.map(({ name, waiting }) => (
          <li>
            <a href={`/n/${name}/agents`}>{name}</a>: {waiting} {waiting === 1 ? 'message' : 'messages'}
          </li>
        ))}
      </ul>
    </Notice>
  )
}

function NamespaceCard({ namespace }: { namespace: MyNamespace }) {
  const { name, role, waiting } = namespace
  return (
    <article class="card link">
      <div class="card-head">
        <h2>
          <a href={`/n/${name}/agents`}>{name}</a>
        </h2>
        <p class="role">
          <span class="sr">Your role: </span>
          {role}
        </p>
      </div>
      <p>
        <Condition namespace={namespace} />
      </p>
      {waiting > 0 && (
        <p>
          <State kind="warn">
            {waiting} {waiting === 1 ? 'message waits' : 'messages wait'}
          </State>
        </p>
      )}
    </article>
  )
}

function Condition({ namespace }: { namespace: MyNamespace }) {
  const { agents, wakeable } = namespace
  if (namespace.paused_at) return <State kind="warn">paused</State>
  if (agents === 0) return <State kind="off">no agents yet</State>
  return (
    <State kind={wakeable > 0 ? 'good' : 'off'}>
      {wakeable} of {agents} {agents === 1 ? 'agent' : 'agents'} wakeable
    </State>
  )
}

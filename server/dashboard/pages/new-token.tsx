import type { FastifyRequest } from 'fastify'
import type { Member } from '../../db/scope.ts'
import type { AgentCard } from '../../domain/agents.ts'
import type { CreatedToken } from '../../domain/tokens.ts'
import { ButtonLink, Layout, Live, Notice, Secret, Section, Text, Time } from '../components/index.ts'
import { TokenHello } from './hello.tsx'
import { Snippets } from './snippets.tsx'

export interface NewTokenProps {
  request: FastifyRequest
  member: Member
  created: CreatedToken
  agent: AgentCard
  /** The token in whose place it is: until when that one works; null: it is in the place of none. */
  old: { endsAt: string; hasEnded: boolean } | null
}

/** A token, this once, and what to do with it. */
export function NewTokenPage(props: NewTokenProps) {
  const { request, member, created, agent } = props
  const { page } = request
  const path = `/n/${member.namespace}/agents/${created.agent}`
  // The page was the answer to a form, whose address has no such part.
  const live = { ...page, path: `${path}?token=${created.id}` }
  return (
    <Layout request={request} namespace={member} tab="tokens" title={`Token of ${created.agent}`}>
      {props.old && <OldToken {...props.old} now={page.now} />}
      <Secret value={created.token} label="Shown this once. Only its hash is kept, so nobody can show it again." />
      <p class="soft secret-facts">
        “<Text value={created.label} inline />
        ”, for <code>{`${created.agent}@${member.namespace}`}</code>
        {', '}
        {created.expires_at ? (
          <>
            ends <Time at={created.expires_at} now={page.now} />
          </>
        ) : (
          'never ends'
        )}
        . Whoever has it is {created.agent}.
      </p>
      <Live name="hello" page={live} events={`/n/${member.namespace}/events`} everySeconds={3}>
        <TokenHello agent={agent} token={null} now={page.now} isPaused={member.pausedAt !== null} />
      </Live>
      <Section title={`Connect ${created.agent}`} lead="Choose its client, and go through the lines in their order.">
        <Snippets url={page.origin} token={created.token} />
      </Section>
      <div class="actions below">
        <ButtonLink href={path}>Go to {created.agent}</ButtonLink>
      </div>
    </Layout>
  )
}

function OldToken({ endsAt, hasEnded, now }: { endsAt: string; hasEnded: boolean; now: Date }) {
  if (hasEnded) {
    return (
      <Notice kind="warn" title="The old token has ended">
        <p>What was connected with it is disconnected, until it has this one.</p>
      </Notice>
    )
  }
  return (
    <Notice kind="info" title="The old token still works for a while">
      <p>
        It ends <Time at={endsAt} now={now} />: put this one in its place before then.
      </p>
    </Notice>
  )
}

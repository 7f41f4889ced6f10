import type { FastifyRequest } from 'fastify'
import type { MemberRole } from '../../db/scope.ts'
import { Button, ButtonLink, Field, Form, Layout, Notice, Text, Time } from '../components/index.ts'

export interface InviteProps {
  request: FastifyRequest
  code: string
  invite: { namespace: string; role: MemberRole; invited_by: string; expires_at: string }
  /** People come in through Supabase Auth. */
  isHosted: boolean
  name?: string
  problem?: string | undefined
}

const ROLES: Record<MemberRole, string> = {
  owner: 'As an owner you see everything there, manage agents and tokens, and decide who belongs to it.',
  admin: 'As an admin you see everything there, and manage agents and tokens.',
  member: 'As a member you see its agents and read their messages.',
}

/** What accepting an invite means, and the one button that does it. */
export function InvitePage(props: InviteProps) {
  const { request, invite } = props
  const { page } = request
  const hasField = !page.isSignedIn && !props.isHosted
  return (
    <Layout request={request} title={`Join ${invite.namespace}`} width="narrow">
      {props.problem && !hasField && (
        <Notice kind="bad">
          <p>{props.problem}</p>
        </Notice>
      )}
      <div class="panel">
        <p class="who">
          <Text value={invite.invited_by} inline /> invites you to <b>{invite.namespace}</b>
        </p>
        <p>{ROLES[invite.role]}</p>
        <InviteForm {...props} />
        <p class="soft">
          The invite works once, and ends <Time at={invite.expires_at} now={page.now} />.
        </p>
      </div>
    </Layout>
  )
}

function InviteForm(props: InviteProps) {
  const { request, code, invite } = props
  const { page } = request
  const action = `/invite/${code}`
  if (page.isSignedIn) {
    return (
      <Form action={action} csrf={page.csrf}>
        <Button kind="primary">
          Join as <Text value={page.me.name} inline />
        </Button>
      </Form>
    )
  }
  if (props.isHosted) {
    return (
      <Form action={action} csrf={page.csrf}>
        <Button kind="primary">Sign in and join</Button>
      </Form>
    )
  }
  return (
    <Form action={action} csrf={page.csrf}>
      <Field
        name="name"
        label="Your name"
        hint={`So the others in ${invite.namespace} know you.`}
        value={props.name ?? ''}
        error={props.problem}
        required
        autocomplete="name"
      />
      <Button kind="primary">Join</Button>
    </Form>
  )
}

/** One answer to an invite that is unknown, used, revoked or expired. */
export function DeadInvite({ request }: { request: FastifyRequest }) {
  return (
    <Layout request={request} title="This invite does not work" width="narrow">
      <div class="panel">
        <p>
          An invite works once, within 7 days, and only when its link is complete. It may also have been taken back.
        </p>
        <p class="soft">Ask whoever sent it for a new one.</p>
        <div class="actions">
          <ButtonLink href="/">{request.page.isSignedIn ? 'To your namespaces' : 'To the sign-in'}</ButtonLink>
        </div>
      </div>
    </Layout>
  )
}

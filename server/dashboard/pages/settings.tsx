import type { FastifyRequest } from 'fastify'
import type { Limits } from '../../config.ts'
import type { Member } from '../../db/scope.ts'
import type { NamespaceDetails } from '../../domain/namespaces.ts'
import { Button, Confirm, Facts, Form, Layout, Notice, Section, State, Time } from '../components/index.ts'
import { NameField } from './name-field.tsx'
import { count, formatNumber, isAdmin, isOwner } from './words.ts'

/** Beyond this many messages nobody counts on. */
const MESSAGES_COUNTED_MAX = 100_000

export interface SettingsProps {
  request: FastifyRequest
  member: Member
  details: NamespaceDetails
  retentionDays: number
  limits: Limits
  /** The new name that was refused, as it was typed, and why. */
  problem?: { name: string; message: string }
}

/** How does this namespace behave? */
export function SettingsPage(props: SettingsProps) {
  const { request, member } = props
  return (
    <Layout request={request} namespace={member} tab="settings" title="Settings">
      {!isAdmin(member) && (
        <Notice>
          <p>You are a member here: owners and admins change these settings.</p>
        </Notice>
      )}
      <Pause {...props} />
      {isAdmin(member) && <Rename {...props} />}
      <Limitations {...props} />
      <Section title="About">
        <Facts facts={[['Founded', <Time at={props.details.created_at} now={request.page.now} />]]} />
      </Section>
      {isOwner(member) && <Delete {...props} />}
    </Layout>
  )
}

function Pause({ request, member }: SettingsProps) {
  const { csrf, now } = request.page
  const action = `/n/${member.namespace}/settings/pause`
  if (member.pausedAt !== null) {
    return (
      <Section
        title="Paused"
        lead={
          <>
            Since <Time at={member.pausedAt} now={now} /> nothing is sent and nobody is woken. Agents can read what they
            have, and each send is answered that the namespace is paused.
          </>
        }
      >
        {isAdmin(member) && (
          <Form action={action} csrf={csrf} fields={{ paused: 'no' }}>
            <div class="actions">
              <Button kind="primary">Resume</Button>
            </div>
            <p class="hint">What waits in the inboxes then wakes its agents.</p>
          </Form>
        )}
      </Section>
    )
  }
  return (
    <Section
      title="Pause"
      lead="The switch for when agents run away with each other: it stops every send and every wake at once, until you resume."
    >
      {isAdmin(member) ? (
        <Confirm summary="Pause everything" button="Pause now" action={action} csrf={csrf} fields={{ paused: 'yes' }}>
          <p>
            No agent of {member.namespace} can send, and none is woken; each is told so when it tries. Nothing is lost:
            messages stay in their inboxes, and Resume undoes it.
          </p>
        </Confirm>
      ) : (
        <p>
          <State kind="good">running</State>
        </p>
      )}
    </Section>
  )
}

function Rename({ request, member, problem }: SettingsProps) {
  return (
    <Section
      title="Name"
      lead="Tokens, messages and members stay. Connections under the old name end within a second, and listeners connect again by themselves; addresses with the old name in them, and links to these pages, stop working."
    >
      <Form
        action={`/n/${member.namespace}/settings/name`}
        csrf={request.page.csrf}
        fields={{ seen: member.namespace }}
        layout="row"
      >
        <NameField label="Name of the namespace" value={member.namespace} problem={problem} />
        <Button>Rename</Button>
      </Form>
    </Section>
  )
}

/** Names of the limits, for those who choose them. */
function Limitations({ retentionDays, limits }: SettingsProps) {
  const perSecond = limits.sendPerSecond
  const pace = perSecond >= 1 ? `${perSecond} a second` : `one every ${Math.round(1 / perSecond)} s`
  return (
    <Section title="Retention and limits" lead="Set by whoever runs this server, for all namespaces.">
      <Facts
        facts={[
          ['A settled message is deleted', `after ${count(retentionDays, 'day')}`],
          ['Length of a message', `up to ${count(limits.bodyCharactersMax, 'character')}`],
          ['Sends of a token', `${limits.sendBurst} at once, then ${pace}`],
          ['Unread in an inbox', `up to ${count(limits.newPerRecipientMax, 'message')}`],
          ['Recipients in a list', `up to ${formatNumber(limits.recipientsMax)}`],
          ['Connections of a token', `up to ${formatNumber(limits.connectionsPerTokenMax)}`],
        ]}
      />
    </Section>
  )
}

function Delete({ request, member, details }: SettingsProps) {
  return (
    <Section title="Delete" lead="For good, with everything in it. This cannot be undone.">
      <Confirm
        summary={`Delete ${member.namespace}`}
        button="Delete everything now"
        action={`/n/${member.namespace}/settings/delete`}
        csrf={request.page.csrf}
      >
        <ul>
          <li>
            {details.agents === 0
              ? 'It has no agents.'
              : `${count(details.agents, 'agent')} ${details.agents === 1 ? 'is' : 'are'} disconnected within a second, and their tokens end.`}
          </li>
          <li>{describeMessages(details)}</li>
          <li>
            {details.members === 1
              ? 'You are its only member, and it is gone from your list.'
              : `${count(details.members, 'member')}, you among them, see nothing of it any more.`}
          </li>
          <li>Its name stays taken until the last of this is gone.</li>
        </ul>
      </Confirm>
    </Section>
  )
}

function describeMessages({ messages }: NamespaceDetails): string {
  if (messages === 0) return 'It has no messages.'
  if (messages === 1) return '1 message is deleted, and cannot be restored.'
  const more = messages >= MESSAGES_COUNTED_MAX ? ' and more' : ''
  return `${count(messages, 'message')}${more} are deleted, and cannot be restored.`
}

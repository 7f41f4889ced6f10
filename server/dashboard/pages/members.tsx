import { randomUUID } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import type { Member, MemberRole } from '../../db/scope.ts'
import type { InviteLine, MemberLine } from '../../domain/members.ts'
import { Disclosure } from '../components/disclosure.tsx'
import { Button, Choice, Confirm, Form, Layout, Notice, Section, Table, Text, Time } from '../components/index.ts'
import { isOwner, withArticle } from './words.ts'

const ROLES: readonly { value: MemberRole; label: string }[] = [
  { value: 'member', label: 'member' },
  { value: 'admin', label: 'admin' },
  { value: 'owner', label: 'owner' },
]
const POWERS = [
  ['member', 'sees agents, messages, tokens without their secrets, members and the audit'],
  ['admin', 'also adds, renames and deletes agents, makes and ends tokens, renames, pauses and resumes the namespace'],
  ['owner', 'also invites and removes people, changes roles and deletes the namespace'],
] as const

export interface MembersProps {
  request: FastifyRequest
  member: Member
  members: MemberLine[]
  /** Open ones; only owners are shown them. */
  invites: InviteLine[]
  notice?: { title: string; message: string }
}

/** Who may do what here? */
export function MembersPage(props: MembersProps) {
  const { request, member, notice } = props
  return (
    <Layout
      request={request}
      namespace={member}
      tab="members"
      title="Members"
      action={isOwner(member) && <Invite {...props} />}
    >
      {notice && (
        <Notice kind="bad" title={notice.title}>
          <p>{notice.message}</p>
        </Notice>
      )}
      <People {...props} />
      {isOwner(member) && props.invites.length > 0 && <Invites {...props} />}
      <Powers member={member} />
      <Leave {...props} />
    </Layout>
  )
}

function Invite({ request, member }: MembersProps) {
  return (
    <Disclosure summary="Invite someone" kind="primary" id="invite">
      <Form
        action={`/n/${member.namespace}/members/invites`}
        csrf={request.page.csrf}
        fields={{ id: randomUUID() }}
        layout="row"
      >
        <Choice name="role" id="invite-role" label="They come as" options={ROLES} value="member" />
        <Button kind="primary">Make the link</Button>
      </Form>
      <p class="hint">A link for one person, for 7 days. You send it; it is shown once.</p>
    </Disclosure>
  )
}

function People(props: MembersProps) {
  const { request, member, members } = props
  const { now } = request.page
  const rows = members.map((person) => ({
    key: person.person_id,
    cells: [
      <PersonName person={person} />,
      isOwner(member) ? <Role {...props} person={person} /> : person.role,
      <Time at={person.created_at} now={now} />,
      ...(isOwner(member) ? [person.is_you ? null : <Remove {...props} person={person} />] : []),
    ],
  }))
  const columns = [
    { label: 'Person' },
    { label: 'Role' },
    { label: 'Since' },
    ...(isOwner(member) ? [{ label: 'Actions', isQuiet: true }] : []),
  ]
  return <Table caption={`Members of ${member.namespace}`} columns={columns} rows={rows} />
}

function PersonName({ person }: { person: MemberLine }) {
  return (
    <span class="person">
      <Text value={person.name} inline />
      {person.is_you && <span class="soft"> (you)</span>}
      {person.email && (
        <span class="soft email">
          <Text value={person.email} inline />
        </span>
      )}
    </span>
  )
}

/** The only owner stays one: the database refuses anything else. */
function Role(props: MembersProps & { person: MemberLine }) {
  const isOnlyOwner = props.person.role === 'owner' && props.members.filter(({ role }) => role === 'owner').length === 1
  return isOnlyOwner ? <>owner, the only one</> : <RoleForm {...props} />
}

/** `seen` is the role that this page shows: a change that somebody else made meanwhile is not overwritten. */
function RoleForm({ request, member, person }: MembersProps & { person: MemberLine }) {
  return (
    <Form
      action={`/n/${member.namespace}/members/${person.person_id}/role`}
      csrf={request.page.csrf}
      fields={{ seen: person.role }}
      layout="inline"
    >
      <Choice
        id={`role-${person.person_id}`}
        name="role"
        label={`Role of ${person.name}`}
        hideLabel
        options={ROLES}
        value={person.role}
      />
      <Button label={`Change the role of ${person.name}`}>Change</Button>
    </Form>
  )
}

function Remove({ request, member, person }: MembersProps & { person: MemberLine }) {
  return (
    <Confirm
      summary="Remove"
      button="Remove now"
      label={`Remove ${person.name}`}
      action={`/n/${member.namespace}/members/${person.person_id}/remove`}
      csrf={request.page.csrf}
      group="actions"
    >
      <p>
        <Text value={person.name} inline /> sees nothing of {member.namespace} from the next click on, and the open
        invites of theirs end. Agents and tokens stay as they are: revoke those that this person has. A new invite
        undoes it.
      </p>
    </Confirm>
  )
}

function Invites({ request, member, invites }: MembersProps) {
  const { csrf, now } = request.page
  const rows = invites.map((invite) => ({
    key: invite.id,
    cells: [
      `for ${withArticle(invite.role)}`,
      <Text value={invite.created_by} inline />,
      <Time at={invite.created_at} now={now} />,
      <Time at={invite.expires_at} now={now} />,
      <Confirm
        summary="Revoke"
        button="Revoke now"
        label={`Revoke the invite for ${withArticle(invite.role)}`}
        action={`/n/${member.namespace}/members/invites/${invite.id}/revoke`}
        csrf={csrf}
        group="actions"
      >
        <p>The link opens nothing any more. This cannot be undone; you can make another one.</p>
      </Confirm>,
    ],
  }))
  const columns = [
    { label: 'Invite' },
    { label: 'Made by' },
    { label: 'Made' },
    { label: 'Ends' },
    { label: 'Actions', isQuiet: true },
  ]
  return (
    <Section title="Open invites" lead="Links that nobody has used yet.">
      <Table caption="Open invites" columns={columns} rows={rows} />
    </Section>
  )
}

function Powers({ member }: { member: Member }) {
  return (
    <Section title="Who may do what" lead={`You are ${withArticle(member.role)} here.`}>
      <dl class="powers">
        {POWERS.map(([role, power]) => (
          <div>
            <dt>{role === member.role ? <strong>{role}</strong> : role}</dt>
            <dd>{power}</dd>
          </div>
        ))}
      </dl>
    </Section>
  )
}

function Leave({ request, member, members }: MembersProps) {
  const owners = members.filter(({ role }) => role === 'owner')
  if (isOwner(member) && owners.length === 1) {
    return (
      <Section title="Leave">
        <p class="soft">
          You are the only owner. Make somebody else an owner first, or delete the namespace in its settings.
        </p>
      </Section>
    )
  }
  return (
    <Section title="Leave">
      <Confirm
        summary={`Leave ${member.namespace}`}
        button="Leave now"
        action={`/n/${member.namespace}/members/${member.personId}/remove`}
        csrf={request.page.csrf}
      >
        <p>
          You see nothing of {member.namespace} from now on. Your agents’ tokens go on. Only a new invite of an owner
          brings you back.
        </p>
      </Confirm>
    </Section>
  )
}

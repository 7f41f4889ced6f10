import type { FastifyRequest } from 'fastify'
import type { Member, MemberRole } from '../../db/scope.ts'
import { ButtonLink, Layout, Secret, Time } from '../components/index.ts'
import { withArticle } from './words.ts'

export interface NewInviteProps {
  request: FastifyRequest
  member: Member
  invite: { code: string; expires_at: string }
  role: MemberRole
}

/** The link of an invite, this once. */
export function NewInvitePage({ request, member, invite, role }: NewInviteProps) {
  const { origin, now } = request.page
  return (
    <Layout request={request} namespace={member} tab="members" title={`Invite for ${withArticle(role)}`}>
      <Secret
        value={`${origin}/invite/${invite.code}`}
        label="Send this link to one person. It is shown this once, and whoever joins with it first comes in."
      />
      <p class="soft secret-facts">
        It works once and ends <Time at={invite.expires_at} now={now} />. Until somebody has used it, you can revoke it
        on the page of members.
      </p>
      <div class="actions below">
        <ButtonLink href={`/n/${member.namespace}/members`}>To the members</ButtonLink>
      </div>
    </Layout>
  )
}

import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import type { MemberRole } from '../../db/scope.ts'
import { createInvite, listInvites, listMembers, removeMember, revokeInvite, setRole } from '../../domain/members.ts'
import { PatchcordError } from '../../errors.ts'
import { readText } from '../fields.ts'
import type { DashboardDeps } from '../page.ts'
import { MembersPage, type MembersProps } from '../pages/members.tsx'
import { NewInvitePage } from '../pages/new-invite.tsx'
import { withArticle } from '../pages/words.ts'
import { getMember, type InNamespace, type Refusal, tryForm } from './refusals.ts'

interface OfPerson {
  Params: { namespace: string; person: string }
}

interface OfInvite {
  Params: { namespace: string; id: string }
}

export const memberRoutes: FastifyPluginAsync<DashboardDeps> = async (app) => {
  app.get<InNamespace>('/n/:namespace/members', (request, reply) => showMembers(request, reply))

  app.post<OfPerson>('/n/:namespace/members/:person/role', async (request, reply) => {
    const { namespace, person: personId } = request.params
    const role = readRole(request, 'role')
    const { refusal } = await tryForm(
      setRole(request.person, { namespace, personId, role, seen: readRole(request, 'seen') }),
    )
    if (refusal) return await showRefusal(request, reply, 'The role was not changed', refusal)
    const members = await listMembers(request.person, { namespace })
    const name = members.find((each) => each.person_id === personId)?.name ?? 'That person'
    return reply.back(`/n/${namespace}/members`, `${name} is ${withArticle(role)} now.`)
  })

  app.post<OfPerson>('/n/:namespace/members/:person/remove', async (request, reply) => {
    const { namespace, person: personId } = request.params
    const isMe = personId === request.page.me.personId
    const { refusal } = await tryForm(removeMember(request.person, { namespace, personId }))
    if (refusal) return await showRefusal(request, reply, 'Nobody was removed', refusal)
    if (isMe) return reply.back('/', `You have left ${namespace}.`)
    return reply.back(`/n/${namespace}/members`, 'That person is no member any more.')
  })

  app.post<InNamespace>('/n/:namespace/members/invites', async (request, reply) => {
    const { namespace } = request.params
    const [role, id] = [readRole(request, 'role'), readText(request, 'id')]
    if (id === '') throw new PatchcordError('invalid', 'The form was not whole.', { hint: 'Send it again.' })
    const { value: invite, refusal } = await tryForm(createInvite(request.person, { namespace, role, id }))
    if (refusal) return await showRefusal(request, reply, 'No second invite was made', refusal)
    const member = await getMember(request.person, namespace)
    return await reply.html(<NewInvitePage {...{ request, member, invite, role }} />, 201)
  })

  app.post<OfInvite>('/n/:namespace/members/invites/:id/revoke', async (request, reply) => {
    const { namespace, id } = request.params
    await revokeInvite(request.person, { namespace, id })
    return reply.back(`/n/${namespace}/members`, 'The invite is revoked: its link opens nothing.')
  })
}

/** Anything else than a role is refused where it is used. */
function readRole(request: FastifyRequest, name: string): MemberRole {
  return readText(request, name) as MemberRole
}

/** What was refused, above what is so now. */
async function showRefusal(
  request: FastifyRequest<InNamespace>,
  reply: FastifyReply,
  title: string,
  { message, status }: Refusal,
) {
  return await showMembers(request, reply, { notice: { title, message } }, status)
}

async function showMembers(
  request: FastifyRequest<InNamespace>,
  reply: FastifyReply,
  more: Pick<MembersProps, 'notice'> = {},
  status = 200,
) {
  const { namespace } = request.params
  const member = await getMember(request.person, namespace)
  const members = await listMembers(request.person, { namespace })
  const invites = member.role === 'owner' ? await listInvites(request.person, { namespace }) : []
  return await reply.html(<MembersPage {...{ request, member, members, invites, ...more }} />, status)
}

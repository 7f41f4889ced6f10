import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import { acceptInvite, findInvite, joinByInvite } from '../../domain/members.ts'
import { PatchcordError } from '../../errors.ts'
import { readText } from '../fields.ts'
import { createGuesses } from '../guesses.ts'
import type { DashboardDeps } from '../page.ts'
import { DeadInvite, InvitePage, type InviteProps } from '../pages/invite.tsx'
import { clientOf, writeInvite, writeSession } from '../session.ts'

type Code = { Params: { code: string } }
const PUBLIC = { config: { isPublic: true } }

export const inviteRoutes: FastifyPluginAsync<DashboardDeps> = async (app, { sql, config, limiter }) => {
  const guess = createGuesses(limiter)
  const isHosted = config.supabase !== null

  async function show(
    request: FastifyRequest<Code>,
    reply: FastifyReply,
    more: Partial<InviteProps> = {},
    status = 200,
  ) {
    const { code } = request.params
    const invite = await guess(request, () => findInvite(sql, code))
    if (!invite) return await reply.html(<DeadInvite request={request} />, 404)
    return await reply.html(<InvitePage {...{ request, code, invite, isHosted, ...more }} />, status)
  }

  app.get<Code>('/invite/:code', PUBLIC, (request, reply) => show(request, reply))

  app.post<Code>('/invite/:code', PUBLIC, async (request, reply) => {
    const { code } = request.params
    const name = readText(request, 'name')
    try {
      if (request.page.isSignedIn) {
        const { namespace } = await acceptInvite(request.person, { code })
        return reply.back(`/n/${namespace}/agents`, `You have joined ${namespace}.`)
      }
      if (!(await guess(request, () => findInvite(sql, code))))
        return await reply.html(<DeadInvite request={request} />, 404)
      if (isHosted) {
        writeInvite(reply, code)
        return reply.back('/login', 'Sign in, and the invite is yours.')
      }
      const joined = await joinByInvite(sql, { code, name, ...clientOf(request) })
      writeSession(reply, joined.session)
      return reply.back(
        `/n/${joined.namespace}/agents`,
        `You have joined ${joined.namespace}. Others see you as ${joined.person}.`,
      )
    } catch (error) {
      if (!(error instanceof PatchcordError)) throw error
      if (error.code === 'not_found') return await show(request, reply)
      if (error.code !== 'invalid' && error.code !== 'conflict') throw error
      const problem = [error.message, error.hint].filter(Boolean).join(' ')
      return await show(request, reply, { name, problem }, error.status)
    }
  })
}

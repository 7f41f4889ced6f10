import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import { createOwnLoginLink, endSession, listSessions, renamePerson } from '../../domain/people.ts'
import { PatchcordError } from '../../errors.ts'
import { readText } from '../fields.ts'
import type { DashboardDeps } from '../page.ts'
import { Account, type AccountProps } from '../pages/account.tsx'

export const accountRoutes: FastifyPluginAsync<DashboardDeps> = async (app) => {
  async function show(request: FastifyRequest, reply: FastifyReply, more: Partial<AccountProps> = {}, status = 200) {
    const sessions = await listSessions(request.person)
    return await reply.html(<Account request={request} sessions={sessions} {...more} />, status)
  }

  app.get('/account', (request, reply) => show(request, reply))

  app.post('/account/name', async (request, reply) => {
    const name = readText(request, 'name')
    try {
      await renamePerson(request.person, { name })
    } catch (error) {
      if (!(error instanceof PatchcordError && error.code === 'invalid')) throw error
      const message = [error.message, error.hint].filter(Boolean).join(' ')
      return await show(request, reply, { problem: { name, message } }, error.status)
    }
    return reply.back('/account', 'Your name is saved.')
  })

  app.post('/account/login-link', async (request, reply) => {
    const { code, expires_at } = await createOwnLoginLink(request.person)
    return await show(request, reply, { link: { url: `${request.page.origin}/login/${code}`, expires_at } })
  })

  app.post<{ Params: { id: string } }>('/account/sessions/:id/end', async (request, reply) => {
    await endSession(request.person, { id: request.params.id })
    return reply.back('/account', 'That browser is signed out.')
  })
}

import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { InboxPeek, peekNew } from '../../domain/inbox.ts'
import { EndLease, endLease, ReportPresence, reportPresence } from '../../domain/presence.ts'

const tags = ['presence']
const response = { 204: z.null().meta({ description: 'Noted' }) }

const PresenceQuery = z.strictObject({
  inbox: z.enum(['show', 'first']).optional().meta({
    description:
      'Answer with what GET /api/inbox?status=new&count_only=1 answers; `first`: note the state only if nothing is new',
  }),
})
const answers = { 200: InboxPeek.meta({ description: 'What is new, when `inbox` asks for it' }), ...response }

export const presenceRoutes: FastifyPluginAsyncZod = async (app) => {
  app.put(
    '/presence',
    {
      schema: {
        tags,
        summary: 'What my session is doing',
        querystring: PresenceQuery,
        body: ReportPresence,
        response: answers,
      },
    },
    async (request, reply) => {
      const { inbox } = request.query
      const peek = await request.scoped(async (scope) => {
        if (inbox !== 'first') await reportPresence(scope, request.body)
        const found = inbox === undefined ? null : await peekNew(scope)
        if (inbox === 'first' && found?.pending_count === 0) await reportPresence(scope, request.body)
        return found
      })
      return peek === null ? reply.code(204).send(null) : peek
    },
  )

  app.delete(
    '/lease',
    { schema: { tags, summary: 'My listener has ended', querystring: EndLease, response } },
    async (request, reply) => {
      await request.scoped((scope) => endLease(scope, request.query))
      return reply.code(204).send(null)
    },
  )
}

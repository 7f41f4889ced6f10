import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { EndLease, endLease, ReportPresence, reportPresence } from '../../domain/presence.ts'

const tags = ['presence']
const response = { 204: z.null().meta({ description: 'Noted' }) }

export const presenceRoutes: FastifyPluginAsyncZod = async (app) => {
  app.put(
    '/presence',
    { schema: { tags, summary: 'What my session is doing', body: ReportPresence, response } },
    async (request, reply) => {
      await request.scoped((scope) => reportPresence(scope, request.body))
      return reply.code(204).send(null)
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

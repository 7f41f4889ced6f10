import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod'
import { Whoami, whoami } from '../../domain/tokens.ts'

export const tokenRoutes: FastifyPluginAsyncZod = async (app) => {
  app.get(
    '/whoami',
    { schema: { tags: ['tokens'], summary: 'Who this token is', response: { 200: Whoami } } },
    async (request) => await request.scoped((scope) => whoami(scope)),
  )
}

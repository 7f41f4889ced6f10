import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { Agents, listAgents } from '../../domain/agents.ts'

const AgentsQuery = z.strictObject({
  all: z.enum(['0', '1', 'true', 'false']).default('0').meta({ description: 'Also who is offline' }),
})

export const agentRoutes: FastifyPluginAsyncZod = async (app) => {
  app.get(
    '/agents',
    { schema: { tags: ['agents'], summary: 'Who is here', querystring: AgentsQuery, response: { 200: Agents } } },
    async (request) => {
      const all = request.query.all === '1' || request.query.all === 'true'
      return await request.scoped((scope) => listAgents(scope, { all }))
    },
  )
}

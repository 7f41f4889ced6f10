import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { Agents, listAgents } from '../../domain/agents.ts'

const AgentsQuery = z.strictObject({
  all: z.enum(['0', '1', 'true', 'false']).default('0').meta({ description: 'Also who is offline' }),
})

const AgentsAnswer = Agents.extend({
  version: z.string().meta({ description: 'Of the server, for clients that may be older' }),
})

export const agentRoutes: FastifyPluginAsyncZod<{ version: string }> = async (app, { version }) => {
  app.get(
    '/agents',
    { schema: { tags: ['agents'], summary: 'Who is here', querystring: AgentsQuery, response: { 200: AgentsAnswer } } },
    async (request) => {
      const all = request.query.all === '1' || request.query.all === 'true'
      return { ...(await request.scoped((scope) => listAgents(scope, { all }))), version }
    },
  )
}

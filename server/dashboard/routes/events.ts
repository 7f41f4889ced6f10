import type { FastifyPluginAsync } from 'fastify'
import { asMember, type Member, type PersonScope } from '../../db/scope.ts'
import { createEventStreams, type EventStreamsOptions } from '../event-streams.ts'
import { securityHeaders } from '../headers.ts'
import type { DashboardDeps } from '../page.ts'

export type EventRoutesOptions = DashboardDeps & { streams?: Omit<EventStreamsOptions, 'bus'> }

export const eventRoutes: FastifyPluginAsync<EventRoutesOptions> = async (app, { bus, streams: options }) => {
  const streams = createEventStreams({ bus, ...options })
  app.addHook('preClose', async () => streams.close())

  app.get<{ Params: { namespace: string } }>('/n/:namespace/events', async (request, reply) => {
    const { person, params } = request
    const me = await enter(person, params.namespace)
    streams.reserve(me)
    reply.hijack()
    reply.raw.writeHead(200, {
      ...securityHeaders(),
      'cache-control': 'no-store',
      'content-type': 'text/event-stream; charset=utf-8',
      'x-content-type-options': 'nosniff',
      'x-request-id': request.id,
      // nginx would gather them.
      'x-accel-buffering': 'no',
    })
    const { sessionId, personId, namespaceId } = me
    streams.open(reply.raw, { sessionId, personId, namespaceId, check: () => enter(person, params.namespace) })
    return reply
  })
}

async function enter(person: PersonScope, namespace: string): Promise<Member> {
  return await asMember(person, namespace, async (_sql, me) => me)
}

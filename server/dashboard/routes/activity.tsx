import type { FastifyPluginAsync } from 'fastify'
import { type ActivityRange, getActivity } from '../../domain/activity.ts'
import type { DashboardDeps } from '../page.ts'
import { Activity } from '../pages/activity.tsx'

export const activityRoutes: FastifyPluginAsync<DashboardDeps> = async (app) => {
  app.get<{ Params: { namespace: string }; Querystring: { range?: unknown } }>(
    '/n/:namespace/activity',
    async (request, reply) => {
      const { namespace } = request.params
      const range: ActivityRange = request.query.range === '7d' ? '7d' : '24h'
      const activity = await getActivity(request.person, { namespace, range })
      return reply.html(<Activity request={request} namespace={namespace} range={range} activity={activity} />)
    },
  )
}

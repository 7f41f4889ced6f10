import type { FastifyPluginAsync } from 'fastify'
import { listAudit } from '../../domain/security-log.ts'
import type { DashboardDeps } from '../page.ts'
import { AuditPage } from '../pages/audit.tsx'
import { getMember, type InNamespace, readQuery } from './refusals.ts'

export const auditRoutes: FastifyPluginAsync<DashboardDeps> = async (app) => {
  app.get<InNamespace>('/n/:namespace/audit', async (request, reply) => {
    const { namespace } = request.params
    const before = readQuery(request.query, 'before')
    const member = await getMember(request.person, namespace)
    const list = await listAudit(request.person, { namespace, before })
    return await reply.html(<AuditPage {...{ request, member, isFirstPage: before === undefined, ...list }} />)
  })
}

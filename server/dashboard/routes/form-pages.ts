import type { FastifyPluginAsync } from 'fastify'
import { getAgentOf } from '../../domain/agents.ts'
import { wantsPage } from '../errors.tsx'
import type { DashboardDeps } from '../page.ts'
import { getMember } from './refusals.ts'

/**
 * Where a form is sent to, and the page that it stands on: a refused form leaves the first in the address bar, where a reload, a
 * bookmark or a sign-in that comes back asks for it as a page.
 */
const PAGES: Record<string, string> = {
  '/namespaces': '/',
  '/account/name': '/account',
  '/account/login-link': '/account',
  '/account/sessions/:id/end': '/account',
  '/n/:namespace/agents/:agent/rename': '/n/:namespace/agents/:agent',
  '/n/:namespace/agents/:agent/delete': '/n/:namespace/agents/:agent',
  '/n/:namespace/tokens/:id/rotate': '/n/:namespace/tokens',
  '/n/:namespace/tokens/:id/revoke': '/n/:namespace/tokens',
  '/n/:namespace/members/:person/role': '/n/:namespace/members',
  '/n/:namespace/members/:person/remove': '/n/:namespace/members',
  '/n/:namespace/members/invites': '/n/:namespace/members',
  '/n/:namespace/members/invites/:id/revoke': '/n/:namespace/members',
  '/n/:namespace/settings/name': '/n/:namespace/settings',
  '/n/:namespace/settings/pause': '/n/:namespace/settings',
  '/n/:namespace/settings/delete': '/n/:namespace/settings',
}

export const formPageRoutes: FastifyPluginAsync<DashboardDeps> = async (app) => {
  for (const [form, page] of Object.entries(PAGES)) {
    app.get<{ Params: Record<string, string> }>(form, async (request, reply) => {
      if (!wantsPage(request)) return reply.callNotFound()
      const { params } = request
      // What is there is not to be told from what is not, for whoever is no member.
      if (params.namespace !== undefined) await getMember(request.person, params.namespace)
      if (params.namespace !== undefined && params.agent !== undefined) {
        await getAgentOf(request.person, { namespace: params.namespace, agent: params.agent })
      }
      return reply.back(page.replaceAll(/:(\w+)/g, (_, name: string) => encodeURIComponent(params[name] ?? '')))
    })
  }
}

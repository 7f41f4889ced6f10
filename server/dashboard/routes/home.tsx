import type { FastifyPluginAsync } from 'fastify'
import { foundNamespace, listMyNamespaces } from '../../domain/namespaces.ts'
import { PatchcordError } from '../../errors.ts'
import { wantsPage } from '../errors.tsx'
import { readText } from '../fields.ts'
import type { DashboardDeps } from '../page.ts'
import { Home } from '../pages/home.tsx'

export const homeRoutes: FastifyPluginAsync<DashboardDeps> = async (app) => {
  app.get('/', async (request, reply) => {
    const namespaces = await listMyNamespaces(request.person)
    return reply.html(<Home request={request} namespaces={namespaces} />)
  })

  app.post('/namespaces', async (request, reply) => {
    const name = readText(request, 'name')
    try {
      await foundNamespace(request.person, { name })
    } catch (error) {
      if (!(error instanceof PatchcordError) || !['invalid', 'conflict'].includes(error.code)) throw error
      const namespaces = await listMyNamespaces(request.person)
      const message = [error.message, error.hint].filter(Boolean).join(' ')
      return reply.html(<Home request={request} namespaces={namespaces} problem={{ name, message }} />, error.status)
    }
    return reply.back(`/n/${name}/agents`)
  })

  app.get<{ Params: { namespace: string } }>('/n/:namespace', async (request, reply) =>
    reply.redirect(`/n/${encodeURIComponent(request.params.namespace)}/agents`, 302),
  )

  // Whoever looks with a browser gets a page; programs get the answer of every other wrong address.
  app.get('/*', { config: { isPublic: true } }, async (request, reply) => {
    if (!wantsPage(request)) return reply.callNotFound()
    throw new PatchcordError('not_found', 'There is nothing at this address.')
  })
}

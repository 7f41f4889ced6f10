import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import { deleteNamespace, getNamespace, renameMyNamespace, setPaused } from '../../domain/namespaces.ts'
import { PatchcordError } from '../../errors.ts'
import { readText } from '../fields.ts'
import type { DashboardDeps } from '../page.ts'
import { SettingsPage, type SettingsProps } from '../pages/settings.tsx'
import { getMember, type InNamespace, tryForm } from './refusals.ts'

export const settingsRoutes: FastifyPluginAsync<DashboardDeps> = async (app, { config }) => {
  async function showSettings(
    request: FastifyRequest<InNamespace>,
    reply: FastifyReply,
    more: Pick<SettingsProps, 'problem'> = {},
    status = 200,
  ) {
    const { namespace } = request.params
    const member = await getMember(request.person, namespace)
    const details = await getNamespace(request.person, { namespace })
    const { retentionDays, limits } = config
    return await reply.html(<SettingsPage {...{ request, member, details, retentionDays, limits, ...more }} />, status)
  }

  app.get<InNamespace>('/n/:namespace/settings', (request, reply) => showSettings(request, reply))

  app.post<InNamespace>('/n/:namespace/settings/name', async (request, reply) => {
    const { namespace } = request.params
    const [newName, seen] = [readText(request, 'name'), readText(request, 'seen')]
    const { refusal } = await tryForm(renameMyNamespace(request.person, { namespace, newName, seen }))
    if (refusal) return await showSettings(request, reply, { problem: { name: newName, ...refusal } }, refusal.status)
    return reply.back(`/n/${newName}/settings`, `${namespace} is called ${newName} from now on.`)
  })

  app.post<InNamespace>('/n/:namespace/settings/pause', async (request, reply) => {
    const { namespace } = request.params
    const paused = readPaused(request)
    await setPaused(request.person, { namespace, paused })
    // That it is paused stands on every page until it is not.
    return reply.back(`/n/${namespace}/settings`, paused ? undefined : `${namespace} is running again.`)
  })

  app.post<InNamespace>('/n/:namespace/settings/delete', async (request, reply) => {
    const { namespace } = request.params
    await deleteNamespace(request.person, { namespace })
    return reply.back('/', `${namespace} is deleted.`)
  })
}

function readPaused(request: FastifyRequest): boolean {
  const answer = readText(request, 'paused')
  if (answer === 'yes' || answer === 'no') return answer === 'yes'
  throw new PatchcordError('invalid', 'The form was not whole.', { hint: 'Send it again.' })
}

import type { FastifyPluginAsync, FastifyRequest } from 'fastify'
import { exportMessages, listMessages, type MessagePage } from '../../domain/message-list.ts'
import { getMessageStory } from '../../domain/message-story.ts'
import { getThread, listThreads } from '../../domain/thread-list.ts'
import { PatchcordError } from '../../errors.ts'
import { createExports } from '../message/export.ts'
import { type ReadFilters, readFilters } from '../message/filters.ts'
import type { DashboardDeps } from '../page.ts'
import { Message, MessageLedger } from '../pages/message.tsx'
import { MessageList, Messages } from '../pages/messages.tsx'
import { Thread, ThreadMessages } from '../pages/thread.tsx'
import { ThreadList, Threads } from '../pages/threads.tsx'

interface OfNamespace {
  Params: { namespace: string }
  Querystring: Record<string, unknown>
}
interface OfOne {
  Params: { namespace: string; id: string }
  Querystring: Record<string, unknown>
}

export const messageRoutes: FastifyPluginAsync<DashboardDeps> = async (app, { log }) => {
  const exports = createExports(log)
  app.addHook('preClose', async () => exports.close())

  app.get<OfNamespace>('/n/:namespace/messages', async (request, reply) => {
    const { namespace } = request.params
    const read = readFilters(request.query)
    const list = await listFor(request, namespace, read)
    const props = { request, namespace, list, read }
    return isPart(request) ? reply.fragment(<MessageList {...props} />) : reply.html(<Messages {...props} />)
  })

  app.get<OfNamespace>('/n/:namespace/messages/export', async (request, reply) => {
    const { namespace } = request.params
    const { filters, problems } = readFilters(request.query)
    if (problems.length > 0) throw new PatchcordError('invalid', problems.join(' '))
    const pages = exportMessages(request.person, { namespace, filters })
    // The first page says whether there is anything to give, and to whom.
    const first = await pages.next()
    reply.hijack()
    await exports.send(reply.raw, { name: `${namespace}-messages.json`, first, pages })
    return reply
  })

  app.get<OfOne>('/n/:namespace/messages/:id', async (request, reply) => {
    const { namespace, id } = request.params
    const message = await getMessageStory(request.person, { namespace, id, after: textOf(request, 'after') })
    const props = { request, namespace, message }
    return isPart(request) ? reply.fragment(<MessageLedger {...props} />) : reply.html(<Message {...props} />)
  })

  app.get<OfNamespace>('/n/:namespace/threads', async (request, reply) => {
    const { namespace } = request.params
    const before = textOf(request, 'before')
    const list = await listThreads(request.person, { namespace, before })
    const props = { request, namespace, list, isFirst: before === undefined }
    return isPart(request) ? reply.fragment(<ThreadList {...props} />) : reply.html(<Threads {...props} />)
  })

  app.get<OfOne>('/n/:namespace/threads/:id', async (request, reply) => {
    const { namespace, id } = request.params
    const before = textOf(request, 'before')
    const thread = await getThread(request.person, { namespace, id, before })
    const props = { request, namespace, thread, isLatest: before === undefined }
    return isPart(request) ? reply.fragment(<ThreadMessages {...props} />) : reply.html(<Thread {...props} />)
  })
}

/** Filters that can find nothing are not asked for; whether there is such a namespace is. */
async function listFor(request: FastifyRequest, namespace: string, read: ReadFilters): Promise<MessagePage> {
  const list = await listMessages(request.person, { namespace, filters: read.filters, before: read.before })
  return read.problems.length > 0 ? { ...list, messages: [], next: null } : list
}

function isPart(request: FastifyRequest): boolean {
  return textOf(request, 'fragment') !== undefined
}

function textOf(request: FastifyRequest, name: string): string | undefined {
  const value = (request.query as Record<string, unknown>)[name]
  return typeof value === 'string' && value !== '' ? value : undefined
}

import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { FetchInbox, fetchInbox, Inbox, InboxPeek, PeekInbox, peekInbox } from '../../domain/inbox.ts'

const tags = ['inbox']
/** Nothing to say is no body at all. */
const FetchBody = z.preprocess((body) => body ?? {}, FetchInbox)

export const inboxRoutes: FastifyPluginAsyncZod = async (app) => {
  app.get(
    '/inbox',
    { schema: { tags, summary: 'What waits; changes nothing', querystring: PeekInbox, response: { 200: InboxPeek } } },
    async (request) => await request.scoped((scope) => peekInbox(scope, request.query)),
  )

  app.post(
    '/inbox/fetch',
    { schema: { tags, summary: 'Fetch what is new', body: FetchBody, response: { 200: Inbox } } },
    async (request) => await request.scoped((scope) => fetchInbox(scope, request.body)),
  )
}

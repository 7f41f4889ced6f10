import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod'
import { z } from 'zod'
import {
  getMessageStatus,
  MessageId,
  MessageStatus,
  SettledMessage,
  settleMessage,
  UnsentMessage,
  unsendMessage,
} from '../../domain/delivery.ts'

const tags = ['delivery']
const params = z.object({ id: MessageId })

export const deliveryRoutes: FastifyPluginAsyncZod = async (app) => {
  app.get(
    '/messages/:id/status',
    { schema: { tags, summary: 'Each step with its time', params, response: { 200: MessageStatus } } },
    async (request) => await request.scoped((scope) => getMessageStatus(scope, { message_id: request.params.id })),
  )

  app.delete(
    '/messages/:id',
    { schema: { tags, summary: 'Take a message back while it is new', params, response: { 200: UnsentMessage } } },
    async (request) => await request.scoped((scope) => unsendMessage(scope, { message_id: request.params.id })),
  )

  app.post(
    '/messages/:id/done',
    { schema: { tags, summary: 'Settle a message without an answer', params, response: { 200: SettledMessage } } },
    async (request) =>
      await request.scoped((scope) => settleMessage(scope, { message_id: request.params.id, state: 'done' })),
  )

  app.post(
    '/messages/:id/defer',
    { schema: { tags, summary: 'Keep a message for later', params, response: { 200: SettledMessage } } },
    async (request) =>
      await request.scoped((scope) => settleMessage(scope, { message_id: request.params.id, state: 'deferred' })),
  )
}

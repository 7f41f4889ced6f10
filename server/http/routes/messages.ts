import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { MessageId } from '../../domain/delivery.ts'
import {
  Recall,
  RecalledMessage,
  RecallMessages,
  Reply,
  ReplyToMessage,
  recallMessages,
  replyToMessage,
  SendMessage,
  SentMessage,
  sendMessage,
} from '../../domain/messages.ts'
import { PatchcordError } from '../../errors.ts'

const tags = ['messages']
const MessagePath = z.object({ id: MessageId })
const ReplyBody = ReplyToMessage.omit({ message_id: true })
/** Node gives the bytes of a header as Latin-1, and what sends a key sends UTF-8: the key is the same as in the field. */
const HeaderKey = z.string().transform((latin1, context) => {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.from(latin1, 'latin1'))
  } catch {
    context.addIssue({ code: 'custom', message: 'is not UTF-8' })
    return z.NEVER
  }
})
const IdempotencyHeader = z.looseObject({
  'idempotency-key': HeaderKey.pipe(SendMessage.shape.idempotency_key.unwrap()).optional(),
})
/** In a query a number is text. */
const offset = z.coerce.number().pipe(RecallMessages.shape.offset.unwrap()).optional()
const limit = z.coerce.number().pipe(RecallMessages.shape.limit.unwrap()).optional()
const RecallQuery = RecallMessages.omit({ message_id: true }).extend({ offset, limit })
const MessageQuery = z.strictObject({ offset })
const OneMessage = z.object({ ...RecalledMessage.shape, next_offset: Recall.shape.next_offset })

export const messageRoutes: FastifyPluginAsyncZod = async (app) => {
  app.post(
    '/messages',
    {
      schema: {
        tags,
        summary: 'Send a message',
        headers: IdempotencyHeader,
        body: SendMessage,
        response: { 201: SentMessage },
      },
    },
    async (request, reply) => {
      const input = withIdempotencyKey(request.headers, request.body)
      return reply.code(201).send(await request.scoped((scope) => sendMessage(scope, input)))
    },
  )

  app.post(
    '/messages/:id/reply',
    {
      schema: {
        tags,
        summary: 'Answer, defer or resolve a message',
        headers: IdempotencyHeader,
        params: MessagePath,
        body: ReplyBody,
        response: { 200: Reply },
      },
    },
    async (request) => {
      const input = { message_id: request.params.id, ...withIdempotencyKey(request.headers, request.body) }
      return await request.scoped((scope) => replyToMessage(scope, input))
    },
  )

  app.get(
    '/messages',
    { schema: { tags, summary: 'History, newest first', querystring: RecallQuery, response: { 200: Recall } } },
    async (request) => await request.scoped((scope) => recallMessages(scope, request.query)),
  )

  app.get(
    '/messages/:id',
    {
      schema: {
        tags,
        summary: 'One message in full, 8,000 characters at a time',
        params: MessagePath,
        querystring: MessageQuery,
        response: { 200: OneMessage },
      },
    },
    async (request) => {
      const input = { message_id: request.params.id, ...request.query }
      const { messages, next_offset } = await request.scoped((scope) => recallMessages(scope, input))
      return { ...(messages[0] as RecalledMessage), next_offset }
    },
  )
}

/** The header means the same as the field: proxies and HTTP libraries repeat a request with its headers. */
function withIdempotencyKey<Body extends { idempotency_key?: string | undefined }>(
  headers: { 'idempotency-key'?: string | undefined },
  body: Body,
): Body {
  const key = headers['idempotency-key']
  if (key === undefined || body.idempotency_key === key) return body
  if (body.idempotency_key === undefined) return { ...body, idempotency_key: key }
  throw new PatchcordError('invalid', 'The header Idempotency-Key and the field idempotency_key differ.', {
    hint: 'Send one of them.',
  })
}

import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod'
import { translateDatabaseError } from '../db/errors.ts'
import { PatchcordError } from '../errors.ts'
import { toInvalid } from './validation.ts'

/** What every error answer holds. `details` are facts that belong to the error, such as the messages that closed the gate. */
export interface ErrorBody {
  error: { code: string; message: string; hint?: string; details?: Record<string, unknown> }
}

const RETRY_AFTER_SECONDS = 5

export function toErrorBody(error: PatchcordError): ErrorBody {
  const { code, message, hint, details } = error
  return {
    error: { code, message, ...(hint === undefined ? {} : { hint }), ...(details === undefined ? {} : { details }) },
  }
}

/** Headers that belong to an error: when to try again (429, 503), how to authenticate (401; RFC 9110, 11.6.1). */
export function toErrorHeaders(error: PatchcordError): Record<string, string> {
  const { status } = error
  if (status === 429 || status === 503) return { 'retry-after': String(error.retryAfterSeconds ?? RETRY_AFTER_SECONDS) }
  return status === 401 ? { 'www-authenticate': 'Bearer' } : {}
}

/** Whatever was thrown, as what the caller may be told. What nobody foresaw is `internal`, with the error as its cause. */
export function toPatchcordError(thrown: unknown): PatchcordError {
  const error = translateDatabaseError(thrown)
  if (error instanceof PatchcordError) return error
  if (hasZodFastifySchemaValidationErrors(error)) return toInvalid(error)
  return fromFastify(error) ?? new PatchcordError('internal', 'Something went wrong on the server.', { cause: error })
}

/** Fastify's own refusals, which carry a status; their texts are not repeated. */
function fromFastify(error: unknown): PatchcordError | null {
  const { statusCode, code } = (error ?? {}) as { statusCode?: unknown; code?: unknown }
  if (typeof statusCode !== 'number' || statusCode < 400 || statusCode > 499) return null
  if (statusCode === 413) {
    return new PatchcordError('too_large', 'The request body is too large.', {
      hint: 'Send the gist, and where the rest can be found.',
    })
  }
  if (statusCode === 415) {
    return new PatchcordError('unsupported_media_type', 'The request body must be JSON.', {
      hint: 'Send the header "Content-Type: application/json".',
    })
  }
  if (code === 'FST_ERR_BAD_URL' || statusCode === 414) return new PatchcordError('invalid', 'The URL is not valid.')
  return new PatchcordError('invalid', 'The request body is not valid JSON.')
}

/** One mapping for every route, and the one place where unforeseen errors are logged. */
export function answerErrors(app: FastifyInstance): void {
  app.setErrorHandler(sendError)
  app.setNotFoundHandler((request, reply) =>
    sendError(
      new PatchcordError('not_found', 'There is nothing at this address.', { hint: '/openapi.json lists the calls.' }),
      request,
      reply,
    ),
  )
}

export function sendError(thrown: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const error = toPatchcordError(thrown)
  if (error.code === 'internal') request.log.error({ err: error.cause ?? error }, 'request failed')
  else if (error.code === 'unavailable') request.log.warn({ err: error.cause ?? error }, 'request could not be served')
  return reply
    .code(error.status)
    .headers(toErrorHeaders(error))
    .type('application/json; charset=utf-8')
    .serializer(JSON.stringify)
    .send(toErrorBody(error))
}

/** What is no HTTP, or comes too slowly, never reaches a route; it is answered in the same form and cut off. */
export function answerClientError(error: { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const { status, message } = describeClientError(error.code)
  const body = JSON.stringify({ error: { code: 'invalid', message } } satisfies ErrorBody)
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    'connection: close',
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy())
}

function describeClientError(code: string | undefined): { status: number; message: string } {
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return { status: 408, message: 'The request came too slowly.' }
  if (code === 'HPE_HEADER_OVERFLOW') return { status: 431, message: 'The request headers are too large.' }
  return { status: 400, message: 'The request is not valid HTTP.' }
}

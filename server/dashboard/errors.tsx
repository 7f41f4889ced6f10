import type { FastifyReply, FastifyRequest } from 'fastify'
import { PatchcordError } from '../errors.ts'
import type { DashboardDeps } from './page.ts'
import { ErrorPage } from './pages/error.tsx'
import { FRAGMENT, toLocalPath } from './paths.ts'
import { clearSession, readSession } from './session.ts'
import { reword } from './wording.ts'

const RETRY_AFTER_SECONDS = 5

/** Every error of the dashboard as a page that says what to do next; whoever is signed out goes to the sign-in and comes back. */
export async function answerError(
  thrown: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
  { toError }: Pick<DashboardDeps, 'toError'>,
): Promise<FastifyReply> {
  const error = reword(toPageError(toError(thrown), thrown, request))
  if (error.code === 'internal') request.log.error({ err: error.cause ?? error }, 'request failed')
  else if (error.code === 'unavailable') request.log.warn({ err: error.cause ?? error }, 'request could not be served')
  if (error.status === 429 || error.status === 503) {
    reply.header('retry-after', String(error.retryAfterSeconds ?? RETRY_AFTER_SECONDS))
  }
  if (isForScripts(request)) return reply.code(error.status).type('text/plain; charset=utf-8').send(error.message)
  if (error.code === 'signed_out') return toSignIn(request, reply)
  return await reply.html(<ErrorPage request={request} error={error} />, error.status)
}

/** Whether a browser asks, or live.js: they say what they take. */
export function wantsPage(request: FastifyRequest): boolean {
  return isForScripts(request) || String(request.headers.accept ?? '').includes('text/html')
}

/** live.js reads only the status. */
function isForScripts(request: FastifyRequest): boolean {
  const { [FRAGMENT]: fragment } = (request.query ?? {}) as Record<string, unknown>
  return fragment !== undefined || String(request.headers.accept ?? '').startsWith('text/event-stream')
}

function toSignIn(request: FastifyRequest, reply: FastifyReply): FastifyReply {
  if (readSession(request) !== null) clearSession(reply)
  if (request.method !== 'GET')
    return reply.back('/login', 'You are signed out: nothing was changed. Sign in and try again.')
  const next = toLocalPath(request.page.path)
  return reply.back(next === null || next === '/' ? '/login' : `/login?next=${encodeURIComponent(next)}`)
}

/** An id that can be none is an id that does not exist; the API's sentences about JSON do not fit forms. */
function toPageError(error: PatchcordError, thrown: unknown, request: FastifyRequest): PatchcordError {
  const { validationContext } = (thrown ?? {}) as { validationContext?: string }
  if (validationContext === 'params') return new PatchcordError('not_found', 'There is nothing at this address.')
  if (error.code === 'unsupported_media_type') {
    return new PatchcordError('unsupported_media_type', 'Only the forms of these pages are taken here.')
  }
  if (error.code === 'too_large') return new PatchcordError('too_large', 'That is more than this form takes.')
  if (error.code === 'invalid' && request.url.startsWith('/assets/')) {
    return new PatchcordError('not_found', 'There is no such file.')
  }
  return error
}

import type { FastifyRequest } from 'fastify'

/** A field of a form as text, trimmed; nothing and what came twice is the empty text. */
export function readText(request: FastifyRequest, name: string): string {
  const body = (request.body ?? {}) as Record<string, unknown>
  const value = Object.hasOwn(body, name) ? body[name] : undefined
  return typeof value === 'string' ? value.trim() : ''
}

import swagger from '@fastify/swagger'
import type { FastifyInstance } from 'fastify'
import { jsonSchemaTransform } from 'fastify-type-provider-zod'

const ERROR = {
  type: 'object',
  required: ['error'],
  properties: {
    error: {
      type: 'object',
      required: ['code', 'message'],
      properties: {
        code: { type: 'string', description: 'Stable; what programs look at' },
        message: { type: 'string', description: 'One sentence for people' },
        hint: { type: 'string', description: 'What to do next' },
        details: { type: 'object', additionalProperties: true },
      },
    },
  },
}

/** `GET /openapi.json`, made of the routes' own schemas. Registered before the routes. */
export async function serveOpenapi(
  app: FastifyInstance,
  options: { version: string; publicUrl: URL | null },
): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'Patchcord', version: options.version, description: 'Messages between coding agents.' },
      ...(options.publicUrl ? { servers: [{ url: options.publicUrl.href }] } : {}),
      components: { securitySchemes: { token: { type: 'http', scheme: 'bearer', bearerFormat: 'pc_…' } } },
    },
    transform: describeRoute,
  })
  app.get('/openapi.json', { schema: { hide: true } }, () => app.swagger())
}

/** Only what the routes say of themselves; every call may also answer with an error. */
const describeRoute: typeof jsonSchemaTransform = (document) => {
  const isApi = document.url.startsWith('/api/')
  if (!isApi && document.url !== '/health') return { schema: { hide: true }, url: document.url }
  const { schema, url } = jsonSchemaTransform(document)
  if (!isApi) return { schema, url }
  const response = { ...(schema.response as object), default: { description: 'An error', ...ERROR } }
  return { schema: { ...schema, response, security: [{ token: [] }] }, url }
}

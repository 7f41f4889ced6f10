import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import type { Sql } from '../db/connect.ts'

const PROBE_TIMEOUT_MS = 2_000
const RETRY_AFTER_SECONDS = 5

export const Health = z.object({
  status: z.enum(['ok', 'unavailable']),
  version: z.string(),
  database: z.enum(['ok', 'unreachable']),
  realtime: z.enum(['builtin', 'broadcast', 'postgres_changes', 'not_configured']),
})
export type Health = z.output<typeof Health>

export interface HealthOptions {
  sql: Sql
  version: string
  realtime: Health['realtime']
}

/** `GET /health`: no authentication, no secrets; 503 when the database does not answer within 2 s. */
export function serveHealth(app: FastifyInstance, options: HealthOptions): void {
  const { version, realtime } = options
  const probe = createProbe(options.sql)
  app.get(
    '/health',
    { schema: { tags: ['server'], summary: 'Whether the server works', response: { 200: Health, 503: Health } } },
    async (_request, reply): Promise<Health> => {
      if (await probe()) return { status: 'ok', version, database: 'ok', realtime }
      reply.code(503).header('retry-after', RETRY_AFTER_SECONDS)
      return { status: 'unavailable', version, database: 'unreachable', realtime }
    },
  )
}

/** One query is under way at a time, however many ask: a database that hangs must not gather them. */
function createProbe(sql: Sql): () => Promise<boolean> {
  let running: Promise<boolean> | null = null
  return async () => {
    running ??= sql`select 1`
      .then(
        () => true,
        () => false,
      )
      .finally(() => {
        running = null
      })
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<boolean>((resolve) => {
      timer = setTimeout(resolve, PROBE_TIMEOUT_MS, false)
    })
    return await Promise.race([running, late]).finally(() => clearTimeout(timer))
  }
}

import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { ErrorCode } from '../errors.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { toPatchcordError } from './errors.ts'

/** Counts every request of the routes that are added after it, by the route's pattern and never by its address. */
export function measureRequests(app: FastifyInstance, metrics: Metrics): void {
  /** An error that one handler passes on to the next is one refusal. */
  const refusals = new WeakMap<FastifyRequest, ErrorCode>()
  app.addHook('onError', async (request, _reply, error) => {
    refusals.set(request, toPatchcordError(error).code)
  })
  app.addHook('onResponse', async (request, reply) => {
    const code = request.is404 ? 'not_found' : refusals.get(request)
    if (code !== undefined) metrics.refused('http', code)
    const route = request.is404 ? undefined : request.routeOptions.url
    metrics.requestAnswered(request.method, route, reply.statusCode, reply.elapsedTime)
  })
}

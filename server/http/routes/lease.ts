import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod'
import { z } from 'zod'
import type { LeaseBatch } from '../../domain/lease.ts'
import { RenewLease } from '../../domain/presence.ts'
import type { Admit } from '../auth.ts'

/** Room for as many ids as one call may name. */
const BODY_BYTES_MAX = 64 * 1024

/**
 * Apart from the other routes, which look their token up one by one: here a batch resolves the tokens of all its rows. What
 * cannot be a token is refused before the body is read.
 */
export const leaseRoutes: FastifyPluginAsyncZod<{ admit: Admit; leases: LeaseBatch }> = async (
  app,
  { admit, leases },
) => {
  app.put(
    '/lease',
    {
      bodyLimit: BODY_BYTES_MAX,
      schema: {
        tags: ['presence'],
        summary: 'My listener lives, and has announced these messages',
        body: RenewLease,
        response: { 204: z.null().meta({ description: 'Stored' }) },
      },
      onRequest: (request) => admit(request.raw, async () => undefined),
    },
    async (request, reply) => {
      await admit(request.raw, (tokenHash) => leases.renew(tokenHash, request.body))
      return reply.code(204).send(null)
    },
  )
}

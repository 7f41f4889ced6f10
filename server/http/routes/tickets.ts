import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod'
import { issueTicket, Ticket, type TicketOptions, type TicketSigner } from '../../domain/tickets.ts'
import { PatchcordError } from '../../errors.ts'

export interface TicketRouteOptions extends Pick<TicketOptions, 'realtime' | 'supabase'> {
  /** null: this server has no key to sign with. */
  signer: TicketSigner | null
  /** Where people and agents reach the server; null: where the request came to. */
  publicUrl: URL | null
  realtimePath: string
}

export const ticketRoutes: FastifyPluginAsyncZod<TicketRouteOptions> = async (app, options) => {
  const { signer, realtime, supabase } = options
  app.get(
    '/realtime/ticket',
    { schema: { tags: ['tickets'], summary: 'What a listener needs to be woken', response: { 200: Ticket } } },
    async (request) => {
      if (!signer) {
        throw new PatchcordError('realtime_not_configured', 'This server is not configured for realtime.', {
          hint: 'The operator sets SUPABASE_JWT_SECRET or PATCHCORD_SIGNING_KEY.',
        })
      }
      const websocketUrl = toWebsocketUrl(options, request.headers.host ?? '')
      return await request.scoped((scope, me) => issueTicket(scope, me, { signer, realtime, supabase, websocketUrl }))
    },
  )
}

/** The Host header is trusted only where no public URL is set: a proxy in front may have put its own there. */
function toWebsocketUrl({ publicUrl, realtimePath }: TicketRouteOptions, host: string): string {
  if (!publicUrl) return `ws://${host}${realtimePath}`
  const base = `${publicUrl.origin}${publicUrl.pathname}`
  return base.replace(/^http/, 'ws').replace(/\/*$/, realtimePath)
}

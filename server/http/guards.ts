import type { IncomingHttpHeaders } from 'node:http'
import { isIP } from 'node:net'
import { PatchcordError } from '../errors.ts'

/** A host as a Host header may hold it: a name, an IPv4 address or an IPv6 address in brackets, and a port. */
const HOST = /^(?:\[[\da-f:.]+\]|[\w.-]+)(?::\d{1,5})?$/i

export interface Guards {
  isHostAllowed(host: string): boolean
  isOriginAllowed(origin: string, host: string): boolean
}

/**
 * A page of another site must not reach this server through a browser, and neither through a name of its own that it has
 * made to point here (DNS rebinding). `names` are more host names under which the server may be reached.
 */
export function createGuards(publicUrl: URL | null, names: readonly string[] = []): Guards {
  const known = new Set(['localhost', ...names.map((name) => name.toLowerCase())])
  if (publicUrl) known.add(publicUrl.hostname)
  return {
    isHostAllowed(host) {
      const url = parseHost(host, 'http:')
      return url !== null && (known.has(url.hostname) || isAddress(url.hostname))
    },
    isOriginAllowed(origin, host) {
      const url = URL.canParse(origin) ? new URL(origin) : null
      if (!url || url.origin === 'null' || url.origin !== origin.toLowerCase()) return false
      return url.origin === publicUrl?.origin || url.host === parseHost(host, url.protocol)?.host
    },
  }
}

/** Throws misdirected for the Host header, forbidden for the Origin header. */
export function checkGuards(guards: Guards, headers: IncomingHttpHeaders): void {
  const { host = '', origin } = headers
  if (!guards.isHostAllowed(host)) {
    throw new PatchcordError('misdirected', 'This server does not answer under that host name.', {
      hint: 'The operator sets PATCHCORD_PUBLIC_URL to the address that people and agents use.',
    })
  }
  if (origin !== undefined && !guards.isOriginAllowed(origin, host)) {
    throw new PatchcordError('forbidden', 'Requests from pages of other sites are refused.', {
      hint: 'Leave the Origin header out, or call from the server’s own address.',
    })
  }
}

function parseHost(host: string, protocol: string): URL | null {
  const text = `${protocol}//${host}`
  return HOST.test(host) && URL.canParse(text) ? new URL(text) : null
}

function isAddress(hostname: string): boolean {
  return isIP(hostname.replace(/^\[|\]$/g, '')) !== 0
}

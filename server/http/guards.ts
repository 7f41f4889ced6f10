import type { IncomingMessage } from 'node:http'
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

/**
 * Throws invalid for a request that two readers could understand in two ways, misdirected for the Host header, forbidden for
 * the Origin header.
 */
export function checkGuards(guards: Guards, request: IncomingMessage): void {
  checkUnambiguous(request)
  const { host = '', origin } = request.headers
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

/** RFC 9112, section 3.2: one Host; and a target in absolute form would go before it. A proxy may have read the other one. */
function checkUnambiguous({ rawHeaders, url = '' }: IncomingMessage): void {
  const names = rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase())
  const isOnce = (name: string) => names.indexOf(name) === names.lastIndexOf(name)
  if (isOnce('host') && isOnce('authorization') && (url.startsWith('/') || url === '*')) return
  throw new PatchcordError('invalid', 'The request names its host or its token twice.', {
    hint: 'Send one Host and one Authorization header, and a path as the target.',
  })
}

function parseHost(host: string, protocol: string): URL | null {
  const text = `${protocol}//${host}`
  return HOST.test(host) && URL.canParse(text) ? new URL(text) : null
}

function isAddress(hostname: string): boolean {
  return isIP(hostname.replace(/^\[|\]$/g, '')) !== 0
}

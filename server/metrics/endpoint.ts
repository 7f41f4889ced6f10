import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type Prometheus, shareRuns } from './prometheus.ts'

const CONNECTIONS_MAX = 50
const REQUEST_MS = 5_000
const HEADER_BYTES_MAX = 8 * 1024

export interface MetricsEndpointOptions {
  host: string
  port: number
  page: Pick<Prometheus, 'text' | 'contentType'>
  /** By the Host header: a page of the web must not read this through a name of its own that it has made to point here. */
  isHostAllowed(host: string): boolean
  log: { error(details: object, message: string): void }
}

export interface MetricsEndpoint {
  host: string
  port: number
  close(): Promise<void>
}

/**
 * `GET /metrics` on an address of its own, and nothing else there: what a proxy passes on from the public one, with whatever
 * X-Forwarded-For, never comes here. Rejects when the address cannot be listened on.
 */
export async function serveMetrics(options: MetricsEndpointOptions): Promise<MetricsEndpoint> {
  const read = shareRuns(() => options.page.text())
  const settings = { requestTimeout: REQUEST_MS, headersTimeout: REQUEST_MS, maxHeaderSize: HEADER_BYTES_MAX }
  const server = createServer(settings, (request, response) => void answer(request, response, options, read))
  server.maxConnections = CONNECTIONS_MAX
  server.listen(options.port, options.host)
  await once(server, 'listening')
  const { address, port } = server.address() as AddressInfo
  return {
    host: address,
    port,
    async close() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  { page, isHostAllowed, log }: MetricsEndpointOptions,
  read: () => Promise<string>,
): Promise<void> {
  const send = (status: number, text: string, type = 'text/plain; charset=utf-8') => {
    response.writeHead(status, {
      'content-type': type,
      'content-length': Buffer.byteLength(text),
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
    })
    response.end(request.method === 'HEAD' ? undefined : text)
  }
  if (!isHostAllowed(request.headers.host ?? '')) return send(421, 'Not here.\n')
  if (request.url?.split('?', 1)[0] !== '/metrics') return send(404, 'There is only /metrics here.\n')
  if (request.method !== 'GET' && request.method !== 'HEAD') return send(405, 'Only GET.\n')
  try {
    send(200, await read(), page.contentType)
  } catch (error) {
    log.error({ err: error }, 'the metrics could not be read')
    send(500, 'The metrics could not be read.\n')
  }
}

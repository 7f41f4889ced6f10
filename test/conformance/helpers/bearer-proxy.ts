import { once } from 'node:events'
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface BearerProxy {
  /** `http://localhost:<port>` */
  url: string
  /** Why requests found no server behind the proxy. */
  failures: string[]
  close(): Promise<void>
}

/**
 * Adds a token to every request, which the conformance tool cannot. All else is passed on as it comes, in both directions
 * and as a stream: the server sees the tool's Host and Origin, and that a client has gone.
 */
export async function startBearerProxy(target: string, token: string): Promise<BearerProxy> {
  const failures: string[] = []
  const proxy = createServer((incoming, outgoing) => forward(incoming, outgoing, { target, token, failures }))
  proxy.listen(0, '127.0.0.1')
  await once(proxy, 'listening')
  return {
    url: `http://localhost:${(proxy.address() as AddressInfo).port}`,
    failures,
    async close() {
      const closed = once(proxy, 'close')
      proxy.close()
      proxy.closeAllConnections()
      await closed
    },
  }
}

interface Route {
  target: string
  token: string
  failures: string[]
}

function forward(incoming: IncomingMessage, outgoing: ServerResponse, { target, token, failures }: Route): void {
  const headers = { ...incoming.headers, authorization: `Bearer ${token}` }
  const upstream = request(new URL(incoming.url ?? '/', target), { method: incoming.method, headers, agent: false })
  upstream.on('response', (answer) => {
    outgoing.writeHead(answer.statusCode ?? 502, answer.headers)
    answer.pipe(outgoing)
    answer.on('error', () => outgoing.destroy())
  })
  upstream.on('error', (error) => {
    // The tool hangs up on streams that it has read enough of; that is no failure of the server.
    if (outgoing.destroyed) return
    failures.push(error.message)
    if (outgoing.headersSent) outgoing.destroy()
    else outgoing.writeHead(502).end()
  })
  outgoing.on('close', () => upstream.destroy())
  incoming.pipe(upstream)
}

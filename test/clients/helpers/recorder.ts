import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** One request of an MCP client, as it went over the wire. */
export interface RecordedCall {
  /** `tools/call inbox`, `server/discover`, or the HTTP method where there is no body. */
  what: string
  /** The header MCP-Protocol-Version. */
  era: string | undefined
  client: string | undefined
}

export interface Recorder {
  url: string
  calls: RecordedCall[]
  close(): Promise<void>
}

/** Stands before a server and writes down which revision of the protocol a client speaks. Passes everything on as it is. */
export async function startRecorder(target: string): Promise<Recorder> {
  const calls: RecordedCall[] = []
  const server = createServer((incoming, response) => {
    pass(incoming, response, target, calls).catch((error: unknown) => response.destroy(error as Error))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls,
    async close() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}

async function pass(
  incoming: IncomingMessage,
  response: ServerResponse,
  target: string,
  calls: RecordedCall[],
): Promise<void> {
  const chunks: Buffer[] = []
  for await (const chunk of incoming) chunks.push(chunk as Buffer)
  const body = Buffer.concat(chunks)
  calls.push(describe(incoming, body))
  const headers: IncomingHttpHeaders = { ...incoming.headers, host: new URL(target).host }
  const outgoing = request(new URL(incoming.url ?? '/', target), { method: incoming.method ?? 'GET', headers })
  response.on('close', () => outgoing.destroy())
  outgoing.on('error', () => response.destroy())
  outgoing.on('response', (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers)
    answer.pipe(response)
  })
  outgoing.end(body)
}

function describe({ method = '', headers }: IncomingMessage, body: Buffer): RecordedCall {
  const message = body.length === 0 ? {} : (JSON.parse(body.toString('utf8')) as Record<string, unknown>)
  const { name } = (message.params ?? {}) as { name?: string }
  const what = [message.method ?? method, ...(name === undefined ? [] : [name])].join(' ')
  const era = headers['mcp-protocol-version']
  return { what, era: Array.isArray(era) ? era[0] : era, client: headers['user-agent'] }
}

import { WebSocket } from 'ws'
import { WebSocketClient } from '../../scripts/lib/ws.mjs'
import type { FrameEvent } from '../../scripts/lib/ws-frames.mjs'
import { writeEvent } from '../fixtures/websocket/notation.ts'

export type Client = InstanceType<typeof WebSocketClient>
export type End = { code: number; reason: string; error: string | null; status: number | null }

/** What a client calls back, in the notation of the case tables. */
export interface Watched {
  client: Client
  /** `open`, messages, `close` */
  events: string[]
  end: End | null
  closed: Promise<End>
}

/** Our client; ends are waited for shorter than in earnest. */
export function watchClient(url: URL, times: { handshakeMs?: number; closeMs?: number } = {}): Watched {
  const events: string[] = []
  const { promise: closed, resolve } = withResolvers<End>()
  const client = new WebSocketClient(
    url,
    {
      onOpen: () => events.push('open'),
      onText: (text) => events.push(writeEvent({ type: 'text', text })),
      onBinary: (data) => events.push(writeEvent({ type: 'binary', data })),
      onClose: (end) => {
        events.push('close')
        watched.end = end
        resolve(end)
      },
    },
    { handshakeMs: 5_000, closeMs: 1_000, ...times },
  )
  const watched: Watched = { client, events, end: null, closed }
  return watched
}

/** The client of the `ws` package on the same terms; resolves with what it called back and the words of its error. */
export async function watchWs(url: URL, onMessage = (_client: WebSocket) => {}) {
  const events: string[] = []
  const note = (event: FrameEvent) => events.push(writeEvent(event))
  const client = new WebSocket(url, { perMessageDeflate: false, maxPayload: 16 * 1024 * 1024, handshakeTimeout: 5_000 })
  let error: string | null = null
  client.on('open', () => events.push('open'))
  client.on('message', (data: Buffer, isBinary) => {
    note(isBinary ? { type: 'binary', data } : { type: 'text', text: data.toString('utf8') })
    onMessage(client)
  })
  client.on('error', ({ message }) => {
    error = message
  })
  await new Promise((resolve) => client.on('close', resolve))
  return { events: [...events, 'close'], error: error as string | null }
}

/** Promise.withResolvers, which Node 20 lacks. */
function withResolvers<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>((done) => {
    resolve = done
  })
  return { promise, resolve }
}

import * as wsModule from 'ws'
import type { FrameEvent } from '../../scripts/lib/ws-frames.mjs'

interface Receiver {
  on(event: 'message', listener: (data: Buffer, isBinary: boolean) => void): this
  on(event: 'ping' | 'pong', listener: (data: Buffer) => void): this
  on(event: 'conclude', listener: (code: number, reason: Buffer) => void): this
  on(event: 'error', listener: (error: Error) => void): this
  write(chunk: Uint8Array): boolean
  _write(chunk: Uint8Array, encoding: 'buffer', done: (error?: Error | null) => void): void
}

/** Reads what a client sends, piece by piece. */
export type ClientReceiver = Pick<Receiver, 'write'>

/** Exported by the package, and missing in its types. */
const { Receiver } = wsModule as unknown as { Receiver: new (options: Record<string, unknown>) => Receiver }

/** What the `ws` package makes of the bytes a server sends; nothing after a close or a violation. */
export function readWithWs(bytes: Uint8Array, messageBytesMax: number): FrameEvent[] {
  const events: FrameEvent[] = []
  let isEnded = false
  const note = (event: FrameEvent) => {
    if (!isEnded) events.push(event)
    isEnded = event.type === 'close' || event.type === 'violation'
  }
  const receiver = new Receiver({ isServer: false, maxPayload: messageBytesMax })
  listen(receiver, note)
  const { stackTraceLimit } = Error
  try {
    // A hundred thousand streams are compared in a row: without stack traces, and not by write(), whose errors come a tick later.
    Error.stackTraceLimit = 0
    receiver._write(bytes, 'buffer', (error) => {
      if (error) note({ type: 'violation', code: findCloseCode(error), message: error.message })
    })
  } finally {
    Error.stackTraceLimit = stackTraceLimit
  }
  return events
}

/** The `ws` package as the server of a client: it demands masks, and tells of every message whole. */
export function createClientReceiver(note: (event: FrameEvent) => void): ClientReceiver {
  const receiver = new Receiver({ isServer: true, maxPayload: 0 })
  listen(receiver, note)
  receiver.on('error', (error) => note({ type: 'violation', code: findCloseCode(error), message: error.message }))
  return receiver
}

function listen(receiver: Receiver, note: (event: FrameEvent) => void): void {
  receiver.on('message', (data, isBinary) => {
    note(isBinary ? { type: 'binary', data } : { type: 'text', text: data.toString('utf8') })
  })
  receiver.on('ping', (data) => note({ type: 'ping', data }))
  receiver.on('pong', (data) => note({ type: 'pong', data }))
  receiver.on('conclude', (code, reason) => note({ type: 'close', code, reason: reason.toString('utf8') }))
}

/** The package keeps the close code of an error under a symbol of its own. */
function findCloseCode(error: Error): number {
  const symbol = Object.getOwnPropertySymbols(error).find(({ description }) => description === 'status-code')
  return symbol === undefined ? 0 : Number((error as unknown as Record<symbol, unknown>)[symbol])
}

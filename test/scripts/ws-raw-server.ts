import { createHash } from 'node:crypto'
import net from 'node:net'
import tls from 'node:tls'
import { OPCODE } from '../../scripts/lib/ws-frames.mjs'

/** One connection to a server whose every byte is scripted. */
export interface RawConnection {
  socket: net.Socket
  /** The header of the client's request. */
  request: string
  /** What came after it. */
  received: Buffer
  closed: Promise<void>
}

type Answer = (connection: RawConnection) => void | Promise<void>

/** A TCP or TLS server that hands each request to `answer` and never speaks or closes by itself. */
export class RawServer {
  readonly connections: RawConnection[] = []
  /** Connections that never sent a whole request count, too. */
  socketCount = 0
  readonly #server: net.Server
  readonly #sockets = new Set<net.Socket>()
  readonly #scheme: string
  readonly #answer: Answer

  private constructor(answer: Answer, secure: tls.TlsOptions | null) {
    this.#answer = answer
    this.#scheme = secure === null ? 'ws' : 'wss'
    const options = { allowHalfOpen: true, noDelay: true }
    const take = (socket: net.Socket) => this.#take(socket)
    this.#server = secure === null ? net.createServer(options, take) : tls.createServer({ ...options, ...secure }, take)
    this.#server.on('connection', (socket: net.Socket) => {
      this.socketCount += 1
      // Under TLS a connection whose handshake fails is never handed on, and half open it would stay for ever.
      this.#sockets.add(socket)
      socket.on('close', () => this.#sockets.delete(socket))
    })
  }

  static async listen(answer: Answer, secure: tls.TlsOptions | null = null): Promise<RawServer> {
    const server = new RawServer(answer, secure)
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve))
    return server
  }

  get port(): number {
    return (this.#server.address() as net.AddressInfo).port
  }

  get url(): URL {
    return new URL(`${this.#scheme}://127.0.0.1:${this.port}/realtime/v1/websocket?apikey=k&vsn=1.0.0`)
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  #take(socket: net.Socket): void {
    const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()))
    const connection: RawConnection = { socket, request: '', received: Buffer.alloc(0), closed }
    socket.on('error', () => {})
    // A client that has ended gets our end, so that both sides are done.
    socket.on('end', () => socket.end())
    socket.on('data', (chunk) => {
      connection.received = Buffer.concat([connection.received, chunk])
      const end = connection.received.indexOf('\r\n\r\n')
      if (connection.request !== '' || end < 0) return
      connection.request = connection.received.subarray(0, end).toString('latin1')
      connection.received = connection.received.subarray(end + 4)
      this.connections.push(connection)
      void this.#answer(connection)
    })
  }
}

/** The `sec-websocket-accept` that belongs to a request. */
export function acceptKey(request: string): string {
  const key = /sec-websocket-key: (.+)/i.exec(request)?.[1]?.trim() ?? ''
  return createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64')
}

/** A good answer to the handshake. */
export function acceptHandshake(request: string, extra = ''): string {
  const lines = ['HTTP/1.1 101 Switching Protocols', 'connection: Upgrade', 'upgrade: websocket']
  return `${[...lines, `sec-websocket-accept: ${acceptKey(request)}`].join('\r\n')}\r\n${extra}\r\n`
}

export async function writeBytewise(socket: net.Socket, bytes: Buffer): Promise<void> {
  for (const byte of bytes) {
    socket.write(Buffer.from([byte]))
    await new Promise((resolve) => setImmediate(resolve))
  }
}

/** The frames a client has sent, unmasked; throws on one that is not masked, as every client frame must be (RFC 6455 §5.3). */
export function readClientFrames(bytes: Buffer): { opcode: number; payload: Buffer }[] {
  const frames: { opcode: number; payload: Buffer }[] = []
  for (let at = 0; at < bytes.length; ) {
    const second = bytes.readUInt8(at + 1)
    if ((second & 0x80) === 0) throw new Error('a client frame is not masked')
    const short = second & 0x7f
    const extra = short < 126 ? 0 : short === 126 ? 2 : 8
    const length = extra === 0 ? short : bytes.readUIntBE(at + (extra === 2 ? 2 : 4), extra === 2 ? 2 : 6)
    const start = at + 2 + extra + 4
    const mask = bytes.subarray(start - 4, start)
    const payload = bytes.subarray(start, start + length).map((byte, index) => byte ^ (mask[index & 3] ?? 0))
    frames.push({ opcode: bytes.readUInt8(at) & 0x0f, payload: Buffer.from(payload) })
    at = start + length
  }
  return frames
}

/** `pong 6869`, `close 1000`: what a client has answered; of a close only the code counts. */
export function listReplies(bytes: Buffer): string[] {
  return readClientFrames(bytes).map(({ opcode, payload }) => {
    if (opcode === OPCODE.close) return payload.length === 0 ? 'close' : `close ${payload.readUInt16BE(0)}`
    return `${opcode === OPCODE.pong ? 'pong' : `opcode ${opcode}`} ${payload.toString('hex')}`.trimEnd()
  })
}

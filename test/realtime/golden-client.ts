import { randomBytes } from 'node:crypto'
import { connect, type Socket } from 'node:net'

/** What a server sent, as it stood on the wire. */
export type Received =
  | { kind: 'http'; raw: string; body: string }
  | { kind: 'text'; raw: string }
  | { kind: 'binary' | 'pong' | 'ping'; hex: string }
  | { kind: 'close'; code: number | null; reason: string }
  | { kind: 'end' }

const PATIENCE_MS = 15_000
const KINDS: Record<number, 'text' | 'binary' | 'close' | 'ping' | 'pong'> = {
  1: 'text',
  2: 'binary',
  8: 'close',
  9: 'ping',
  10: 'pong',
}

/** A WebSocket client that sends exactly what it is told, also what no client would, and hides nothing that it gets. */
export class GoldenClient {
  readonly #socket: Socket
  readonly #received: Received[] = []
  #bytes = Buffer.alloc(0)
  #isUpgraded = false
  #wake: () => void = () => undefined

  constructor(port: number) {
    this.#socket = connect({ port, host: '127.0.0.1' })
    this.#socket.on('data', (chunk) => {
      this.#bytes = Buffer.concat([this.#bytes, chunk])
      this.#read()
    })
    this.#socket.on('error', () => undefined)
    this.#socket.on('close', () => this.#push({ kind: 'end' }))
  }

  write(text: string): void {
    this.#socket.write(text)
  }

  text(text: string): void {
    this.#frame(1, Buffer.from(text))
  }

  binary(bytes: Buffer): void {
    this.#frame(2, bytes)
  }

  close(code: number): void {
    this.#frame(8, Buffer.from([code >> 8, code & 0xff]))
  }

  unmasked(text: string): void {
    this.#socket.write(Buffer.concat([Buffer.from([0x81, text.length]), Buffer.from(text)]))
  }

  /** In three frames, with a ping behind the first. */
  fragments(text: string, ping: Buffer): void {
    const bytes = Buffer.from(text)
    const third = Math.ceil(bytes.length / 3)
    this.#frame(1, bytes.subarray(0, third), false)
    this.#frame(9, ping)
    this.#frame(0, bytes.subarray(third, 2 * third), false)
    this.#frame(0, bytes.subarray(2 * third))
  }

  async next(): Promise<Received> {
    const deadline = performance.now() + PATIENCE_MS
    while (this.#received.length === 0) {
      if (performance.now() > deadline) throw new Error(`nothing came within ${PATIENCE_MS} ms`)
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 1_000)
        this.#wake = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
    return this.#received.shift() as Received
  }

  destroy(): void {
    this.#socket.destroy()
  }

  #push(received: Received): void {
    this.#received.push(received)
    this.#wake()
  }

  #frame(opcode: number, payload: Buffer, isFinal = true): void {
    const { length } = payload
    const head = [(isFinal ? 0x80 : 0) | opcode]
    if (length < 126) head.push(0x80 | length)
    else if (length < 65_536) head.push(0xfe, length >> 8, length & 0xff)
    else head.push(0xff, 0, 0, 0, 0, (length >> 24) & 0xff, (length >> 16) & 0xff, (length >> 8) & 0xff, length & 0xff)
    const mask = randomBytes(4)
    const masked = payload.map((byte, index) => byte ^ (mask[index % 4] as number))
    this.#socket.write(Buffer.concat([Buffer.from(head), mask, masked]))
  }

  #read(): void {
    while (this.#isUpgraded ? this.#readFrame() : this.#readHttp());
  }

  #readHttp(): boolean {
    const end = this.#bytes.indexOf('\r\n\r\n')
    if (end < 0) return false
    const raw = this.#bytes.toString('latin1', 0, end)
    const length = Number(/^content-length: (\d+)$/im.exec(raw)?.[1] ?? 0)
    if (this.#bytes.length < end + 4 + length) return false
    const body = this.#bytes.toString('utf8', end + 4, end + 4 + length)
    this.#bytes = this.#bytes.subarray(end + 4 + length)
    this.#isUpgraded = raw.startsWith('HTTP/1.1 101 ')
    this.#push({ kind: 'http', raw, body })
    return this.#bytes.length > 0
  }

  /** Server frames are whole, unmasked and without extensions: anything else is an error of the server. */
  #readFrame(): boolean {
    const [first = 0, second = 0] = this.#bytes
    if (this.#bytes.length < 2) return false
    const kind = KINDS[first & 0x0f]
    if ((first & 0xf0) !== 0x80 || (second & 0x80) !== 0 || !kind)
      throw new Error(`no server frame: ${first}, ${second}`)
    const start = second < 126 ? 2 : second === 126 ? 4 : 10
    if (this.#bytes.length < start) return false
    const length = second < 126 ? second : second === 126 ? this.#bytes.readUInt16BE(2) : this.#bytes.readUInt32BE(6)
    if (this.#bytes.length < start + length) return false
    const payload = this.#bytes.subarray(start, start + length)
    this.#bytes = this.#bytes.subarray(start + length)
    if (kind === 'text') this.#push({ kind, raw: payload.toString() })
    else if (kind === 'close') {
      this.#push({ kind, code: length < 2 ? null : payload.readUInt16BE(0), reason: payload.toString('utf8', 2) })
    } else this.#push({ kind, hex: payload.toString('hex') })
    return true
  }
}

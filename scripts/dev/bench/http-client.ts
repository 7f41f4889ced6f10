import { once } from 'node:events'
import { connect, type Socket } from 'node:net'

const CHUNKED = /\r\ntransfer-encoding: chunked\r\n/i
const LENGTH = /\r\ncontent-length: (\d+)\r\n/i

export interface Request {
  path: string
  headers: Record<string, string>
  body: string
}

/** A request's bytes, made once. */
export function toBytes({ hostname, port }: URL, { path, headers, body }: Request): Buffer {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`)
  return Buffer.from(
    [
      `POST ${path} HTTP/1.1`,
      `host: ${hostname}:${port}`,
      'content-type: application/json',
      `content-length: ${Buffer.byteLength(body)}`,
      ...lines,
      '',
      body,
    ].join('\r\n'),
  )
}

/**
 * A kept-alive connection that asks the same again and again. It looks for the end of an answer and for its status, and for
 * nothing else: what is measured is the server.
 */
export class BenchConnection {
  readonly #socket: Socket
  #text = ''
  #done: (answer: string) => void = () => {}
  #fail: (error: Error) => void = () => {}

  private constructor(socket: Socket) {
    this.#socket = socket
    socket.setNoDelay(true).setEncoding('latin1')
    socket.on('data', (chunk: string) => this.#read(chunk))
    socket.on('error', (error) => this.#fail(error))
    socket.on('close', () => this.#fail(new Error('the server closed the connection')))
  }

  static async open({ hostname, port }: URL): Promise<BenchConnection> {
    const socket = connect(Number(port), hostname)
    await once(socket, 'connect')
    return new BenchConnection(socket)
  }

  /** The whole answer, its head and its body as they came. Throws unless its status is 200. */
  ask(bytes: Buffer): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#done = resolve
      this.#fail = reject
      this.#socket.write(bytes)
    })
  }

  close(): void {
    this.#fail = () => {}
    this.#socket.destroy()
  }

  #read(chunk: string): void {
    const text = this.#text + chunk
    this.#text = text
    if (!isWhole(text)) return
    this.#text = ''
    if (text.startsWith('HTTP/1.1 200')) this.#done(text)
    else this.#fail(new Error(`not answered with 200: ${text.slice(0, 2_000)}`))
  }
}

function isWhole(text: string): boolean {
  const end = text.indexOf('\r\n\r\n')
  if (end < 0) return false
  const head = text.slice(0, end + 2)
  if (CHUNKED.test(head)) return text.endsWith('\r\n0\r\n\r\n')
  const length = LENGTH.exec(head)?.[1]
  if (length === undefined) throw new Error(`an answer of unknown length: ${head}`)
  return text.length >= end + 4 + Number(length)
}

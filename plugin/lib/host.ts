import type { Readable, Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import {
  ErrorCode,
  type JSONRPCMessage,
  JSONRPCMessageSchema,
  type RequestId,
  RequestIdSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { isRecord } from '../../scripts/lib/basics.cjs'

const LINE_BYTES_MAX = 10 * 1024 * 1024
const NEWLINE = 10
/** A long answer goes out in pieces, so that a host that reads it slowly is told from one that does not read. */
const PIECE_BYTES = 64 * 1024
const LOOK_MS = 20

interface HostStreams {
  input: Readable
  output: Writable
  /** For each line that is no message, also where it is answered. */
  log(line: string): void
}

/**
 * The host on stdin and stdout, one JSON-RPC message a line. The SDK's own transport gives no answer to a request that is
 * none, and adds a listener for every message that a slow host has not read yet.
 */
export class Host implements Transport {
  onmessage?: (message: JSONRPCMessage) => void
  onclose?: () => void
  onerror?: (error: Error) => void
  readonly #streams: HostStreams
  #chunks: Buffer[] = []
  #bytes = 0
  /** What is being written, and what comes after it. */
  #writing: Promise<unknown> = Promise.resolve()
  #unwritten = 0
  #writtenAt = 0

  constructor(streams: HostStreams) {
    this.#streams = streams
  }

  async start(): Promise<void> {
    this.#streams.input.on('data', this.#read).on('end', this.#end).on('error', this.#fail)
  }

  async close(): Promise<void> {
    this.#streams.input.off('data', this.#read).off('end', this.#end).off('error', this.#fail).pause()
    this.#chunks = []
    this.onclose?.()
  }

  /** Resolves once the host has taken it. A host that is gone takes nothing more. */
  send(message: JSONRPCMessage): Promise<void> {
    return this.#write(message)
  }

  /** Resolves once everything is written, or the host has taken nothing for so long. */
  async drain(patienceMs: number): Promise<void> {
    const since = Date.now()
    while (this.#unwritten > 0 && Date.now() - Math.max(since, this.#writtenAt) < patienceMs) await sleep(LOOK_MS)
  }

  #write(message: unknown): Promise<void> {
    const bytes = Buffer.from(`${JSON.stringify(message)}\n`)
    this.#unwritten++
    const written = this.#writing.then(() => this.#writePieces(bytes)).finally(() => this.#unwritten--)
    this.#writing = written.catch(() => {})
    return written
  }

  async #writePieces(bytes: Buffer): Promise<void> {
    for (let start = 0; start < bytes.length; start += PIECE_BYTES) {
      const piece = bytes.subarray(start, start + PIECE_BYTES)
      await new Promise<void>((resolve, reject) => {
        this.#streams.output.write(piece, (error) => (error ? reject(error) : resolve()))
      })
      this.#writtenAt = Date.now()
    }
  }

  readonly #read = (chunk: Buffer) => {
    let rest = chunk
    for (let end = rest.indexOf(NEWLINE); end !== -1; end = rest.indexOf(NEWLINE)) {
      const line = Buffer.concat([...this.#chunks, rest.subarray(0, end)]).toString('utf8')
      this.#chunks = []
      this.#bytes = 0
      rest = rest.subarray(end + 1)
      this.#take(line)
    }
    this.#chunks.push(rest)
    this.#bytes += rest.length
    if (this.#bytes > LINE_BYTES_MAX) this.#fail(new Error(`a line is longer than ${LINE_BYTES_MAX} bytes`))
  }

  /** A last line is one also without its end. */
  readonly #end = () => {
    const line = Buffer.concat(this.#chunks).toString('utf8')
    this.#chunks = []
    this.#take(line)
  }

  /** Nothing can be made of what follows. */
  readonly #fail = (error: Error) => {
    this.onerror?.(error)
    void this.close()
  }

  #take(line: string): void {
    if (line.trim() === '') return
    let json: unknown
    try {
      json = JSON.parse(line)
    } catch (error) {
      this.#refuse(null, ErrorCode.ParseError, `Not JSON: ${(error as Error).message}`)
      return
    }
    const { success, data } = JSONRPCMessageSchema.safeParse(json)
    if (success) this.onmessage?.(data)
    else if (Array.isArray(json))
      this.#refuse(null, ErrorCode.InvalidRequest, 'One message a line, and no batch of them')
    else if (isUnanswered(json)) this.#streams.log('A line of the host is no message of JSON-RPC, and was left out.')
    else
      this.#refuse(
        idOf(json),
        ErrorCode.InvalidRequest,
        'Not a request of JSON-RPC 2.0 with a string or integer as its id',
      )
  }

  #refuse(id: RequestId | null, code: number, message: string): void {
    this.#streams.log(`A line of the host was refused. ${message}.`)
    // A host that is gone hears nothing.
    void this.#write({ jsonrpc: '2.0', id, error: { code, message } }).catch(() => {})
  }
}

/** What asks for nothing, or answers: JSON-RPC forbids to answer that. */
function isUnanswered(json: unknown): boolean {
  if (!isRecord(json)) return false
  return 'result' in json || 'error' in json || (typeof json.method === 'string' && !('id' in json))
}

function idOf(json: unknown): RequestId | null {
  const { success, data } = RequestIdSchema.safeParse(isRecord(json) ? json.id : undefined)
  return success ? data : null
}

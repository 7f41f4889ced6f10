import type { Readable, Writable } from 'node:stream'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import {
  ErrorCode,
  type JSONRPCMessage,
  JSONRPCMessageSchema,
  type RequestId,
  RequestIdSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { isRecord } from '../../scripts/lib/text.mjs'

const LINE_BYTES_MAX = 10 * 1024 * 1024
const NEWLINE = 10

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

  constructor(streams: HostStreams) {
    this.#streams = streams
  }

  async start(): Promise<void> {
    this.#streams.input.on('data', this.#read).on('error', this.#fail)
  }

  async close(): Promise<void> {
    this.#streams.input.off('data', this.#read).off('error', this.#fail).pause()
    this.#chunks = []
    this.onclose?.()
  }

  /** Resolves once the host has taken it. A host that is gone takes nothing more. */
  send(message: JSONRPCMessage): Promise<void> {
    return this.#write(message)
  }

  #write(message: unknown): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#streams.output.write(`${JSON.stringify(message)}\n`, (error) => (error ? reject(error) : resolve()))
    })
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

import { createHash } from 'node:crypto'
import type net from 'node:net'
import { setImmediate, setTimeout as sleep } from 'node:timers/promises'
import { type Case, frame, type Received } from '../fixtures/websocket/autobahn.ts'
import { type ClientReceiver, createClientReceiver } from './ws-oracle.ts'
import { acceptHandshake, type RawConnection } from './ws-raw-server.ts'

/** The suite waits a second; a client that fails fast is long done then, and so it is here. */
const PAUSE_MS = 150
/** What the client has not closed by then, the suite kills. */
const KILL_MS = 20_000

/** One connection of the fuzzing server: sends a case's octets, and judges what comes back as the suite does. */
export class Fuzzer {
  readonly #case: Case
  readonly #socket: net.Socket
  readonly #received: string[] = []
  readonly #receiver: ClientReceiver
  readonly #problems: string[] = []
  #round = 1
  #hasClosed = false
  /** The client's close code; 1005 without one, null before. */
  #closeCode: number | null = null
  #isClosedByClient = false

  /** Judges one case. Resolves with what is wrong; nothing is OK. */
  static async run(each: Case, connection: RawConnection): Promise<string[]> {
    const fuzzer = new Fuzzer(each, connection.socket)
    connection.socket.removeAllListeners('data')
    connection.socket.on('data', (chunk) => fuzzer.#receiver.write(chunk))
    connection.socket.write(acceptHandshake(connection.request))
    await fuzzer.#send()
    const killed = new AbortController()
    await Promise.race([connection.closed, sleep(KILL_MS, null, { signal: killed.signal }).catch(() => {})])
    killed.abort()
    const isKilled = !connection.socket.destroyed
    connection.socket.destroy()
    return fuzzer.#judge(isKilled)
  }

  private constructor(each: Case, socket: net.Socket) {
    this.#case = each
    this.#socket = socket
    this.#receiver = createClientReceiver((event) => {
      if (event.type === 'violation') this.#problems.push(event.message)
      else if (event.type === 'close') this.#takeClose(event.code)
      else this.#take(toReceived(event))
    })
  }

  async #send(): Promise<void> {
    for (const step of this.#case.steps) {
      if ('pause' in step) {
        await sleep(PAUSE_MS)
        if (this.#closeCode !== null) return
        if (this.#socket.destroyed) return
        this.#take({ kind: 'pause', name: step.pause })
      } else if ('close' in step) this.#close(step.close)
      else await this.#write(step.bytes, step.chopBytes)
    }
  }

  async #write(bytes: Buffer, chopBytes = bytes.length): Promise<void> {
    for (let at = 0; at < bytes.length && this.#socket.writable; at += chopBytes) {
      this.#socket.write(bytes.subarray(at, at + chopBytes))
      if (chopBytes < bytes.length) await setImmediate()
    }
  }

  #close(bytes: Buffer): void {
    if (this.#hasClosed || this.#closeCode !== null) return
    this.#hasClosed = true
    this.#socket.write(bytes)
  }

  /** The server's side of the closing handshake: it answers, and it is the one to end the connection. */
  #takeClose(code: number): void {
    this.#closeCode = code
    this.#isClosedByClient = !this.#hasClosed
    if (!this.#hasClosed) this.#socket.write(frame(8, Buffer.from('03e8', 'hex')))
    this.#socket.end()
  }

  #take(received: Received): void {
    const { rounds = 1, expected, close } = this.#case
    this.#received.push(write(received))
    if (this.#received.join() !== expected.map(write).join()) return
    if (this.#round < rounds) {
      this.#round += 1
      this.#received.length = 0
      void this.#send()
    } else if (close.by === 'server') this.#close(frame(8, Buffer.from('03e8', 'hex')))
  }

  #judge(isKilled: boolean): string[] {
    const { expected, close, rounds = 1 } = this.#case
    const problems = [...this.#problems]
    const wanted = expected.map(write).join()
    const got = this.#received.join()
    if (got !== wanted) problems.push(`received ${got || 'nothing'} instead of ${wanted || 'nothing'}`)
    if (this.#round < rounds) problems.push(`ended in round ${this.#round} of ${rounds}`)
    if (isKilled) problems.push('the connection had to be killed')
    if (this.#isClosedByClient !== (close.by === 'client')) problems.push(`not closed by the ${close.by}`)
    if (close.isClean && this.#closeCode === null) problems.push('no clean close')
    // The suite takes a close without a code, or none at all, too; a client that says why is what people can debug.
    if (this.#closeCode === null || ![...close.codes, 1005].includes(this.#closeCode)) {
      problems.push(`close code ${this.#closeCode} instead of ${close.codes.join(' or ')}`)
    }
    return problems
  }
}

function toReceived(
  event: { type: 'text'; text: string } | { type: 'binary' | 'ping' | 'pong'; data: Buffer },
): Received {
  if (event.type === 'text') return { kind: 'text', data: Buffer.from(event.text) }
  return { kind: event.type === 'ping' ? 'pong' : event.type, data: event.data }
}

/** Short, also for 16 MiB. */
function write(received: Received): string {
  if (received.kind === 'pause') return `pause ${received.name}`
  return `${received.kind} ${received.data.length}:${createHash('sha1').update(received.data).digest('hex').slice(0, 12)}`
}

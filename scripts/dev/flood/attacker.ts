import { connect, type Socket } from 'node:net'
import { constants, setPriority } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'

/**
 * The process that floods (a child of ../flood.ts). Raw sockets and bytes that are made once, so that it costs little; and it
 * yields to everything else, because real attackers bring their own processors.
 */

export const KINDS = ['rate', 'waiters', 'tokenless', 'bodies', 'slow'] as const
export type Kind = (typeof KINDS)[number]

export interface Order {
  kind: Kind
  url: string
  /** Of one agent, all the flood needs. */
  token: string
  /** Whom sends go to. */
  to: string
  ms: number
}

/** What became of what was sent, by what the server answered: `201`, `429`, `closed` without an answer, … */
export interface Tally {
  sent: number
  bytes: number
  outcomes: Record<string, number>
}

/** 100 times the default of a token, which is one in two seconds. */
const SENDS_PER_SECOND = 50
const WAITERS = 200
const WAIT_AGAIN_MS = 1_000
const TOKENLESS_CONNECTIONS = 300
const TOKENLESS_PIPELINED = 2
const BODY_BYTES = 64 * 1024 * 1024
const BODIES_AT_ONCE = 12
const CHUNK = Buffer.alloc(64 * 1024, 0x61)
const SLOW_CONNECTIONS = 1_000
const SLOW_STEP_MS = 20
const AGAIN_MS = 100
const STATUS = /HTTP\/1\.1 (\d{3})/g

const FLOODS: Record<Kind, (flood: Flood) => Promise<void>> = {
  rate: floodRate,
  waiters: floodWaiters,
  tokenless: floodTokenless,
  bodies: floodBodies,
  slow: floodSlowly,
}

class Flood {
  readonly order: Order
  readonly host: string
  readonly tally: Tally = { sent: 0, bytes: 0, outcomes: {} }
  readonly #port: number
  readonly #endsAt: number
  readonly #sockets = new Set<Socket>()

  constructor(order: Order) {
    this.order = order
    const { hostname, port, host } = new URL(order.url)
    this.host = host
    this.#port = Number(port)
    this.#endsAt = performance.now() + order.ms
    this.hostname = hostname
  }

  readonly hostname: string

  get isOn(): boolean {
    return performance.now() < this.#endsAt
  }

  count(outcome: string): void {
    this.tally.outcomes[outcome] = (this.tally.outcomes[outcome] ?? 0) + 1
  }

  /** A connection; `onText` gets what comes, and every answer in it is counted. */
  open(onText: (text: string, answers: number) => void = () => {}): Socket {
    const socket = connect({ host: this.hostname, port: this.#port })
    this.#sockets.add(socket)
    socket.on('error', () => {}) // 'close' comes after it.
    socket.on('close', () => this.#sockets.delete(socket))
    socket.on('data', (chunk: Buffer) => {
      const text = chunk.toString('latin1')
      const statuses = [...text.matchAll(STATUS)].map(([, status]) => status as string)
      for (const status of statuses) this.count(status)
      onText(text, statuses.length)
    })
    return socket
  }

  request(method: string, path: string, headers: string[], body = ''): Buffer {
    const length = body === '' ? [] : [`Content-Length: ${body.length}`, 'Content-Type: application/json']
    return Buffer.from(
      `${[`${method} ${path} HTTP/1.1`, `Host: ${this.host}`, ...headers, ...length].join('\r\n')}\r\n\r\n${body}`,
    )
  }

  get bearer(): string {
    return `Authorization: Bearer ${this.order.token}`
  }

  async run(): Promise<Tally> {
    await FLOODS[this.order.kind](this)
    for (const socket of this.#sockets) socket.destroy()
    return this.tally
  }
}

/** As many loops at once, each goes on until the flood is over. */
async function repeat(flood: Flood, count: number, work: (index: number) => Promise<void>): Promise<void> {
  const loop = async (index: number) => {
    while (flood.isOn) await work(index)
  }
  await Promise.all(Array.from({ length: count }, (_, index) => loop(index)))
}

/** One token at a hundred times its rate, evenly, on one connection as long as the server keeps it. */
async function floodRate(flood: Flood): Promise<void> {
  const body = JSON.stringify({ to: flood.order.to, content: 'again', kind: 'report' })
  const bytes = flood.request('POST', '/api/messages', [flood.bearer], body)
  let socket = flood.open()
  let dueAt = performance.now()
  while (flood.isOn) {
    if (socket.destroyed || !socket.writable) socket = flood.open()
    socket.write(bytes)
    flood.tally.sent++
    dueAt += 1_000 / SENDS_PER_SECOND
    await sleep(Math.max(0, dueAt - performance.now()))
  }
}

/** Each waits as long as the server lets it, and tries again a second after it was sent away. */
async function floodWaiters(flood: Flood): Promise<void> {
  const call = { name: 'wait_for_message', arguments: { timeout_seconds: 290 } }
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: call })
  const accept = 'Accept: application/json, text/event-stream'
  const bytes = flood.request('POST', '/mcp', [flood.bearer, accept, 'MCP-Protocol-Version: 2025-06-18'], body)
  await repeat(flood, WAITERS, async () => {
    let isAnswered = false
    const socket = flood.open((text) => {
      if (text.includes('already waits')) flood.count('200 already waits')
      if (text.includes('banned')) flood.count('banned')
      isAnswered ||= /already waits|"error"|banned|isError/.test(text)
    })
    socket.write(bytes)
    flood.tally.sent++
    while (flood.isOn && !socket.destroyed && !isAnswered) await sleep(50)
    socket.destroy()
    await sleep(WAIT_AGAIN_MS)
  })
}

/** As fast as the answers come: each connection has a few requests under way. */
async function floodTokenless(flood: Flood): Promise<void> {
  const bytes = Buffer.concat(Array(TOKENLESS_PIPELINED).fill(flood.request('GET', '/api/inbox?status=new', [])))
  await repeat(flood, TOKENLESS_CONNECTIONS, async () => {
    let missing = 0
    const write = () => {
      socket.write(bytes)
      flood.tally.sent += TOKENLESS_PIPELINED
      missing += TOKENLESS_PIPELINED
    }
    const socket = flood.open((_, answers) => {
      missing -= answers
      if (missing <= 0 && flood.isOn && socket.writable) write()
    })
    write()
    const closed = new Promise((resolve) => socket.once('close', resolve))
    await Promise.race([closed, sleep(flood.order.ms, undefined, { ref: false })])
  })
}

/** 64 MB each, in turns with their length before them and in chunks, with the token and without. */
async function floodBodies(flood: Flood): Promise<void> {
  const json = 'Content-Type: application/json'
  const heads = [
    [flood.bearer, `Content-Length: ${BODY_BYTES}`],
    [flood.bearer, 'Transfer-Encoding: chunked'],
    [`Content-Length: ${BODY_BYTES}`],
    ['Transfer-Encoding: chunked'],
  ].map((headers) => ({
    bytes: flood.request('POST', '/api/messages', [json, ...headers]),
    isChunked: headers.some((header) => header.endsWith('chunked')),
  }))
  await repeat(flood, BODIES_AT_ONCE, async (index) => {
    const { bytes, isChunked } = heads[index % heads.length] as (typeof heads)[number]
    const socket = flood.open()
    socket.write(bytes)
    flood.tally.sent++
    await writeBody(flood, socket, isChunked)
    await sleep(AGAIN_MS)
  })
}

async function writeBody(flood: Flood, socket: Socket, isChunked: boolean): Promise<void> {
  const start = isChunked ? [Buffer.from(`${CHUNK.length.toString(16)}\r\n`)] : []
  const piece = Buffer.concat([...start, CHUNK, ...(isChunked ? [Buffer.from('\r\n')] : [])])
  for (let left = BODY_BYTES; left > 0 && flood.isOn && !socket.destroyed; left -= CHUNK.length) {
    if (socket.write(piece)) continue
    await new Promise<void>((resolve) => {
      const done = () => {
        socket.off('drain', done).off('close', done)
        resolve()
      }
      socket.once('drain', done).once('close', done)
      setTimeout(done, 5_000).unref()
    })
  }
  flood.tally.bytes += socket.bytesWritten - socket.writableLength
  socket.destroy()
}

/** A byte a second on each of many connections: half of them of a header, half of a body that was announced. */
async function floodSlowly(flood: Flood): Promise<void> {
  const json = 'Content-Type: application/json'
  const head = flood.request('POST', '/api/messages', [json]).subarray(0, 40)
  const withBody = flood.request('POST', '/api/messages', [flood.bearer, json, 'Content-Length: 1000'])
  const sockets: (Socket | null)[] = Array(SLOW_CONNECTIONS).fill(null)
  const share = Math.ceil((SLOW_CONNECTIONS * SLOW_STEP_MS) / 1_000)
  for (let next = 0; flood.isOn; next = (next + share) % SLOW_CONNECTIONS) {
    for (let index = next; index < Math.min(next + share, SLOW_CONNECTIONS); index++) {
      const socket = sockets[index]
      if (socket && !socket.destroyed && socket.writable) socket.write('a')
      else sockets[index] = openSlow(flood, index % 2 ? withBody : head)
    }
    await sleep(SLOW_STEP_MS)
  }
}

function openSlow(flood: Flood, start: Buffer): Socket {
  const socket = flood.open()
  socket.write(start)
  flood.tally.sent++
  socket.once('close', () => {
    if (flood.isOn) flood.count('closed')
  })
  return socket
}

if (process.send) {
  setPriority(constants.priority.PRIORITY_LOW)
  process.on('message', (orders: Order[]) => {
    void Promise.all(orders.map((order) => new Flood(order).run())).then((tallies) => process.send?.(tallies))
  })
}

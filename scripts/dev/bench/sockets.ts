// The other side of listeners.ts: thousands of listeners in one process, as bare sockets that speak what a listener does.
import { randomBytes } from 'node:crypto'
import { connect, type Socket } from 'node:net'

/** What the benchmark asks of this process. Each is answered by one Answer. */
export type Order =
  | { kind: 'connect'; url: string; tokens: string[] }
  | { kind: 'collect'; wakes: number; timeoutMs: number }
  | { kind: 'beat'; isOn: boolean }

/** `wakesAt`: when each wake since the last `collect` came, in ms of this machine's monotonic clock. */
export interface Answer {
  sockets: number
  lost: number
  wakesAt: number[]
}

interface Ticket {
  realtime_url: string
  apikey: string
  jwt: string
  topics: { name: string; config: object }[]
}

const AT_ONCE = 50
/** As a real listener does. Paused while silence is measured; no socket may be silent for 60 s. */
const HEARTBEAT_MS = 25_000
const BEAT_STEP_MS = 50
const REPLY = '"event":"phx_reply"'
const WAKE = '"event":"broadcast"'
const HEARTBEAT = frame({ topic: 'phoenix', event: 'heartbeat', payload: {}, ref: '2', join_ref: null })

const sockets: Socket[] = []
let wakesAt: number[] = []
let lost = 0
let nextBeat = 0
let beating: NodeJS.Timeout | undefined
let onWake: () => void = () => {}

process.on('message', (order: Order) => {
  void obey(order).then(
    (answer) => process.send?.(answer),
    (error) => {
      process.send?.({ error: String(error) })
    },
  )
})

async function obey(order: Order): Promise<Answer> {
  if (order.kind === 'connect') await connectAll(order.url, order.tokens)
  if (order.kind === 'beat') beat(order.isOn)
  if (order.kind === 'collect') await untilWoken(order.wakes, order.timeoutMs)
  const answer = { sockets: sockets.length, lost, wakesAt: order.kind === 'collect' ? wakesAt : [] }
  if (order.kind === 'collect') wakesAt = []
  return answer
}

async function connectAll(url: string, tokens: string[]): Promise<void> {
  const left = [...tokens]
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      for (let token = left.pop(); token !== undefined; token = left.pop()) {
        sockets.push(await join(await getTicket(url, token)))
      }
    }),
  )
}

async function getTicket(url: string, token: string): Promise<Ticket> {
  const response = await fetch(new URL('/api/realtime/ticket', url), { headers: { authorization: `Bearer ${token}` } })
  if (!response.ok) throw new Error(`no ticket: HTTP ${response.status} ${await response.text()}`)
  return (await response.json()) as Ticket
}

/** Handshake and join; resolves when the join is answered. */
function join({ realtime_url, apikey, jwt, topics }: Ticket): Promise<Socket> {
  const url = new URL(realtime_url)
  const [topic] = topics
  const socket = connect({ host: url.hostname, port: Number(url.port) })
  const payload = { config: topic?.config, access_token: jwt }
  const request = [
    `GET ${url.pathname}?apikey=${apikey}&vsn=1.0.0 HTTP/1.1`,
    `Host: ${url.host}`,
    'Upgrade: websocket',
    'Connection: Upgrade',
    `Sec-WebSocket-Key: ${randomBytes(16).toString('base64')}`,
    'Sec-WebSocket-Version: 13',
  ]
  socket.write(`${request.join('\r\n')}\r\n\r\n`)
  socket.setNoDelay(true)
  return new Promise((resolve, reject) => {
    let isUpgraded = false
    socket.on('error', reject)
    socket.on('close', () => {
      lost++
      reject(new Error('the server closed a socket'))
    })
    socket.on('data', (chunk: Buffer) => {
      const text = chunk.toString('latin1')
      if (!isUpgraded) {
        if (!text.startsWith('HTTP/1.1 101')) reject(new Error(`no upgrade: ${text.slice(0, 200)}`))
        isUpgraded = true
        socket.write(frame({ topic: topic?.name, event: 'phx_join', payload, ref: '1', join_ref: '1' }))
      } else if (text.includes(WAKE)) noteWakes(text.split(WAKE).length - 1)
      else if (!text.includes(REPLY)) return
      else if (text.includes('"status":"ok"')) resolve(socket)
      else reject(new Error(`not joined: ${text.slice(0, 400)}`))
    })
  })
}

function noteWakes(count: number): void {
  const now = Number(process.hrtime.bigint()) / 1e6
  for (let i = 0; i < count; i++) wakesAt.push(now)
  onWake()
}

async function untilWoken(count: number, timeoutMs: number): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, timeoutMs)
    onWake = () => {
      if (wakesAt.length < count) return
      clearTimeout(timer)
      resolve()
    }
    onWake()
  })
  onWake = () => {}
}

/** Heartbeats of all sockets in turn, spread over their interval as those of real listeners are, also where a timer comes late. */
function beat(isOn: boolean): void {
  clearInterval(beating)
  if (!isOn) return
  let beatenAt = performance.now()
  beating = setInterval(() => {
    const now = performance.now()
    const share = Math.ceil((sockets.length * (now - beatenAt)) / HEARTBEAT_MS)
    beatenAt = now
    for (let i = 0; i < share; i++) {
      nextBeat = nextBeat < sockets.length - 1 ? nextBeat + 1 : 0
      sockets[nextBeat]?.write(HEARTBEAT)
    }
  }, BEAT_STEP_MS)
}

/** One masked text frame. A key of zeros leaves the text as it is. */
function frame(message: object): Buffer {
  const text = Buffer.from(JSON.stringify(message))
  const head = text.length < 126 ? Buffer.from([0x81, 0x80 | text.length]) : Buffer.from([0x81, 0xfe, 0, 0])
  if (text.length >= 126) head.writeUInt16BE(text.length, 2)
  return Buffer.concat([head, Buffer.alloc(4), text])
}

import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import type { Random } from '../soak-actors.ts'

/**
 * The network between one agent and the servers, or between the servers and their database: every connection goes to one of
 * the places that take it. It can keep silent, be slow, cut answers off and lose them.
 */

/** A connection that keeps silent is forgotten by then, as a network forgets it. */
export const SILENT_MS_MAX = 20_000
/** How much of an answer that is cut off still comes. */
const CUT_BYTES_MAX = 300

type Way = 'up' | 'down'
type AnswerFault = 'cut' | 'lose' | 'lose in silence'

interface Connection {
  client: Socket
  server: Socket
  isSilent: boolean
  /** What is on its way: what is slow still comes in order. */
  queues: Record<Way, { dueAt: number; act: () => void }[]>
}

/** Where a connection may go: a port of this machine or a Unix socket. */
export type Place = { port: number; host: string } | { path: string }

export class Network {
  readonly #random: Random
  readonly #silentMs: () => number
  readonly #places: () => Place[]
  readonly #listener: Server
  readonly #connections = new Set<Connection>()
  readonly #sockets = new Set<Socket>()
  readonly #timers = new Set<NodeJS.Timeout>()
  #delayMs: () => number = () => 0
  #armed: { fault: AnswerFault; left: number; onDone: () => void } | null = null

  /** `places` are asked for anew with each connection. */
  constructor(places: () => Place[], random: Random, silentMs: () => number = () => SILENT_MS_MAX) {
    this.#places = places
    this.#silentMs = silentMs
    this.#random = random
    this.#listener = createServer({ allowHalfOpen: true, noDelay: true }, (client) => void this.#accept(client))
  }

  /** Its own port. */
  async open(): Promise<number> {
    this.#listener.listen(0, '127.0.0.1')
    await once(this.#listener, 'listening')
    return (this.#listener.address() as AddressInfo).port
  }

  get openConnections(): number {
    return this.#connections.size
  }

  get openSockets(): number {
    return this.#sockets.size
  }

  /** Both ends of every connection of this moment hear nothing more from each other, not even an end. */
  silence(): number {
    const live = [...this.#connections].filter(({ isSilent }) => !isSilent)
    for (const connection of live) {
      connection.isSilent = true
      this.#later(this.#silentMs(), () => reset(connection))
    }
    return live.length
  }

  /** Ends every connection of this moment. */
  cutAll(): number {
    const all = [...this.#connections]
    for (const connection of all) reset(connection)
    return all.length
  }

  /** From now on all bytes of both ways come that much later; drawn for each piece. */
  delay(drawMs: () => number): void {
    this.#delayMs = drawMs
  }

  /** The next `count` answers are cut off or lost; resolves with how many were, in this time. */
  async spoil(fault: AnswerFault, count: number, ms: number): Promise<number> {
    const armed = { fault, left: count, onDone: () => {} }
    const done = new Promise<void>((resolve) => {
      armed.onDone = resolve
      this.#later(ms, resolve)
    })
    this.#armed = armed
    await done
    if (this.#armed === armed) this.#armed = null
    return count - armed.left
  }

  /** As a network that works: what kept silent is over. */
  heal(): void {
    this.#delayMs = () => 0
    this.#armed?.onDone()
    this.#armed = null
    for (const connection of [...this.#connections]) if (connection.isSilent) reset(connection)
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer)
    for (const socket of this.#sockets) socket.destroy()
    this.#listener.close()
    await once(this.#listener, 'close')
  }

  async #accept(client: Socket): Promise<void> {
    this.#watch(client)
    client.pause()
    const server = await this.#reachServer()
    if (server === null || client.destroyed) {
      destroy(client)
      server?.destroy()
      return
    }
    const connection: Connection = { client, server, isSilent: false, queues: { up: [], down: [] } }
    this.#connections.add(connection)
    this.#link(connection, 'up', client, server)
    this.#link(connection, 'down', server, client)
  }

  /** One that takes the connection, the first one asked by chance; null: none does. */
  async #reachServer(): Promise<Socket | null> {
    const places = this.#places()
    if (this.#random() < 0.5) places.reverse()
    for (const place of places) {
      const socket = connect({ ...place, allowHalfOpen: true, noDelay: true })
      this.#watch(socket)
      const isOpen = await new Promise<boolean>((resolve) => {
        socket.once('connect', () => resolve(true))
        socket.once('error', () => resolve(false))
      })
      if (isOpen) return socket
    }
    return null
  }

  #watch(socket: Socket): void {
    this.#sockets.add(socket)
    socket.on('error', () => {})
    socket.on('close', () => this.#sockets.delete(socket))
  }

  #link(connection: Connection, way: Way, from: Socket, to: Socket): void {
    from.on('data', (bytes: Buffer) => {
      if (connection.isSilent || (way === 'down' && this.#spoilAnswer(connection, bytes))) return
      this.#pass(connection, way, () => to.write(bytes))
    })
    from.on('end', () => {
      if (!connection.isSilent) this.#pass(connection, way, () => to.end())
    })
    from.on('close', (hadError) => {
      if (to.destroyed) this.#connections.delete(connection)
      if (connection.isSilent) return
      this.#pass(connection, way, () => (hadError ? destroy(to) : to.destroy()))
    })
    from.resume()
  }

  #pass(connection: Connection, way: Way, act: () => void): void {
    const queue = connection.queues[way]
    const now = performance.now()
    const dueAt = Math.max(queue.at(-1)?.dueAt ?? 0, now + this.#delayMs())
    if (queue.length === 0 && dueAt <= now) act()
    else if (queue.push({ dueAt, act }) === 1) this.#waitFor(connection, way)
  }

  /** One timer at a time: of two, the later one may come first. */
  #waitFor(connection: Connection, way: Way): void {
    const queue = connection.queues[way]
    const [next] = queue
    if (next === undefined) return
    this.#later(Math.max(0, next.dueAt - performance.now()), () => {
      queue.shift()
      if (!connection.isSilent) next.act()
      this.#waitFor(connection, way)
    })
  }

  /** Whether these bytes were dealt with. */
  #spoilAnswer(connection: Connection, bytes: Buffer): boolean {
    const armed = this.#armed
    if (armed === null) return false
    armed.left -= 1
    if (armed.left === 0) this.#armed = null
    const { client } = connection
    if (armed.fault === 'lose in silence') {
      connection.isSilent = true
      this.#later(this.#silentMs(), () => reset(connection))
    } else if (armed.fault === 'lose') reset(connection)
    else {
      connection.isSilent = true
      const length = Math.min(bytes.length - 1, Math.floor(this.#random() * CUT_BYTES_MAX))
      client.write(bytes.subarray(0, length), () => reset(connection))
    }
    if (armed.left === 0) armed.onDone()
    return true
  }

  #later(ms: number, act: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer)
      act()
    }, ms)
    this.#timers.add(timer)
  }
}

function reset({ client, server }: Connection): void {
  destroy(client)
  destroy(server)
}

/** Only TCP knows resets. One that is ending already cannot be reset: Node would leave it open for ever. */
function destroy(socket: Socket): void {
  if (socket.remoteAddress === undefined || socket.writableEnded) socket.destroy()
  else socket.resetAndDestroy()
}

import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import type { PatchcordError } from '../errors.ts'
import { toErrorBody, toErrorHeaders } from './errors.ts'

export interface GateLimits {
  /**
   * A refusal comes this late, give or take half of it for those that came together, and nothing more is read of its connection
   * meanwhile: a flood that waits for answers is slow.
   */
  delayMs: number
  /** Refusals that are held back at once. Whoever comes beyond them is cut off without an answer. */
  heldMax: number
  /** Connections that have not asked anything yet; beyond them the oldest goes, unless it is younger than `silentMs`. */
  silentMax: number
  silentMs: number
}
const LIMITS: GateLimits = { delayMs: 500, heldMax: 1_000, silentMax: 2_000, silentMs: 2_000 }
/** Closed at once, a connection with bytes that were not read is reset, and its client may never see the answer. */
const LINGER_MS = 1_000

const NEEDS_TOKEN = /^\/(?:api|mcp)(?:\/|$)/

/** Whether a request comes to a route that wants a token, however the router's decoding leads there. What nobody can decode does. */
export function needsToken(url: string): boolean {
  // As for a proxy, with the origin before it: the router takes that too.
  const [path = ''] = url.replace(/^https?:\/\/[^/]*/i, '').split(/[?#]/, 1)
  try {
    return NEEDS_TOKEN.test(decodeURIComponent(path))
  } catch {
    return true
  }
}

export interface Gate {
  /** Whether a request needs nobody else: it is answered, or will be. */
  refuses(request: IncomingMessage, response: ServerResponse): boolean
  /** Knows the server's connections, and lets go of silent ones when there are too many. */
  watch(server: Server): void
  /**
   * A connection that has become a WebSocket. Told by whoever has made it one: a listener for `upgrade` of our own would take
   * every request with that header from a server that has no other, and nobody would answer it.
   */
  heard(socket: Duplex): void
  /** Ends what is held back. */
  close(): void
}

/** Stands before everything else: what `foresee` refuses costs neither the router nor the database nor the body's bytes. */
export function createGate(foresee: (request: IncomingMessage) => PatchcordError | null, limits = LIMITS): Gate {
  const held = new Map<ServerResponse, NodeJS.Timeout>()
  const silent = new Map<Duplex, number>()

  function hold(response: ServerResponse, error: PatchcordError): void {
    const { req, socket } = response
    socket?.pause()
    const answer = () => {
      held.delete(response)
      if (socket?.destroyed) return
      socket?.resume()
      sendRefusal(req, response, error)
    }
    held.set(response, setTimeout(answer, limits.delayMs * (0.5 + Math.random())))
  }

  return {
    refuses(request, response) {
      silent.delete(request.socket)
      const error = foresee(request)
      if (!error) return false
      if (held.size < limits.heldMax) hold(response, error)
      else request.socket.destroy()
      return true
    },
    watch(server) {
      server.on('connection', (socket) => {
        silent.set(socket, performance.now())
        socket.once('close', () => silent.delete(socket))
        if (silent.size > limits.silentMax) letGo(silent, limits.silentMs)
      })
    },
    heard(socket) {
      silent.delete(socket)
    },
    close() {
      for (const [{ socket }, timer] of held) {
        clearTimeout(timer)
        socket?.destroy()
      }
      held.clear()
    },
  }
}

function letGo(silent: Map<Duplex, number>, silentMs: number): void {
  const [oldest] = silent
  if (!oldest || performance.now() - oldest[1] <= silentMs) return
  silent.delete(oldest[0])
  oldest[0].destroy()
}

function sendRefusal(request: IncomingMessage, response: ServerResponse, error: PatchcordError): void {
  const body = JSON.stringify(toErrorBody(error))
  response.writeHead(error.status, {
    ...toErrorHeaders(error),
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(body),
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    ...closeIfUnread(request),
  })
  response.end(body)
}

/**
 * Headers of an answer that comes before its request has been read to the end: the connection closes with it. Kept, it would be
 * read until the body is over, all 64 MB of it.
 */
export function closeIfUnread(request: IncomingMessage): { connection?: 'close' } {
  const { complete, headers, socket } = request
  // What has no body is complete only when its handler has returned.
  if (complete || (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined)) return {}
  socket.destroySoon = () => {
    socket.on('resume', () => socket.pause())
    socket.pause()
    socket.end()
    setTimeout(() => socket.destroy(), LINGER_MS).unref()
  }
  return { connection: 'close' }
}

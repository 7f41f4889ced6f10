/** One connection to Realtime, from the handshake to the first failure: socket, topics, heartbeat, fresh tickets. */
import { ApiError, readRetryAfterMs } from './api.mjs'
import { describeError, monotonicMs, toOneLine } from './basics.cjs'
import { Phoenix } from './phoenix.mjs'
import { WebSocketClient } from './ws.mjs'

/** However short a ticket's life is, the server is not asked more often. */
const REFRESH_MS_MIN = 250
/** Supabase sends no more than 3 MB; parsing 16 MiB of brackets takes 700 MB. */
const MESSAGE_BYTES_MAX = 4 * 1024 * 1024

/**
 * @typedef {object} SessionEvents
 * @property {(text: string) => void} log
 * @property {() => void} onJoined every topic is joined, at first and again after each fresh ticket
 * @property {() => void} onSystem a system message that is no error and confirms no join
 * @property {(event: string, payload: Record<string, unknown>) => void} onMessage
 * @property {() => Promise<import('./api.mjs').Ticket>} getTicket
 *
 * @typedef {import('./api.mjs').Ticket} Ticket
 * @typedef {import('./config.cjs').Times} Times
 */

/**
 * Runs until the connection is of no use any more or the signal aborts; never rejects. The reason has been logged.
 * @param {Ticket} ticket @param {SessionEvents} events @param {Times} times @param {AbortSignal} signal
 * @returns {Promise<{ retryAfterMs: number }>} for how long the server asked to be left alone, 0 if it did not
 */
export function runSession(ticket, events, times, signal) {
  return new Promise((resolve) => {
    const session = new Session(ticket, events, times, (retryAfterMs) => {
      signal.removeEventListener('abort', stop)
      resolve({ retryAfterMs })
    })
    const stop = () => session.stop()
    signal.addEventListener('abort', stop, { once: true })
    if (signal.aborted) stop()
  })
}

class Session {
  #ticket
  #events
  #times
  #onEnd
  #phoenix
  #socket
  /** @type {NodeJS.Timeout | undefined} */
  #refreshTimer
  #expiresAt
  #isEnded = false

  /** @param {Ticket} ticket @param {SessionEvents} events @param {Times} times @param {(retryAfterMs: number) => void} onEnd */
  constructor(ticket, events, times, onEnd) {
    this.#ticket = ticket
    this.#events = events
    this.#times = times
    this.#onEnd = onEnd
    this.#expiresAt = monotonicMs() + ticket.expiresInMs
    this.#phoenix = new Phoenix(
      {
        send: (text) => this.#socket.sendText(text),
        onJoined: () => this.#noteJoined(),
        onFailure: (reason) => this.#fail(reason),
        onSystem: () => this.#events.onSystem(),
        onMessage: (_topic, event, payload) => this.#events.onMessage(event, payload),
      },
      times,
    )
    this.#socket = new WebSocketClient(
      ticket.url,
      {
        onOpen: () => this.#start(),
        // A binary frame cannot be ours with serializer 1.0.0, and is no reason to reconnect.
        onText: (text) => this.#phoenix.receive(text),
        onClose: (end) => this.#noteClosed(end),
      },
      { handshakeMs: times.handshakeMs, messageBytesMax: MESSAGE_BYTES_MAX },
    )
  }

  #start() {
    this.#phoenix.start()
    this.#joinAll()
    this.#planRefresh()
  }

  #joinAll() {
    for (const { name, config } of this.#ticket.topics) this.#phoenix.join(name, config, this.#ticket.jwt)
  }

  #noteJoined() {
    if (this.#phoenix.isJoined) this.#events.onJoined()
  }

  #planRefresh() {
    clearTimeout(this.#refreshTimer)
    const delay = this.#ticket.expiresInMs * this.#times.refreshShare * (0.9 + Math.random() * 0.1)
    this.#refreshTimer = setTimeout(() => void this.#refresh(), Math.max(delay, REFRESH_MS_MIN))
  }

  /**
   * A fresh ticket well before the old one ends, and a new join with it: an `access_token` push is not answered, so that its
   * effect could not be seen; a join is, and it also heals a topic that a database restart has deafened.
   */
  async #refresh() {
    try {
      const ticket = await this.#events.getTicket()
      if (this.#isEnded) return
      if (ticket.url.href.split('?')[0] !== this.#ticket.url.href.split('?')[0])
        return this.#fail('the server has moved')
      this.#ticket = ticket
      this.#expiresAt = monotonicMs() + ticket.expiresInMs
      this.#joinAll()
      this.#events.log('token refreshed')
      this.#planRefresh()
    } catch (error) {
      if (this.#isEnded) return
      this.#events.log(`ticket refresh failed: ${describeError(error)}`)
      // The main loop asks a second time and knows what is final; any other fault leaves us hearing until the ticket ends.
      if (error instanceof ApiError && error.fatalText !== null) return this.#fail('the server refuses the token')
      const left = this.#expiresAt - monotonicMs()
      if (left <= 0) return this.#fail('the ticket has expired')
      const wait = Math.max(left / 4, Math.min(left, Math.max(1_000, readRetryAfterMs(error))))
      this.#refreshTimer = setTimeout(() => void this.#refresh(), wait)
    }
  }

  /** @param {import('./ws.mjs').WebSocketEnd} end */
  #noteClosed({ code, reason, error, retryAfterMs = 0 }) {
    if (error !== null) this.#events.log(`ws error: ${toOneLine(error, 200)}`)
    this.#events.log(`ws closed (code=${code}${reason === '' || error !== null ? '' : ` ${toOneLine(reason, 123)}`})`)
    this.#end(retryAfterMs)
  }

  /** A failure of the channel layer: the socket may look alive and is of no use. @param {string} reason */
  #fail(reason) {
    this.#events.log(`ws error: ${reason}`)
    this.stop()
  }

  /** Says goodbye to the server without waiting for its answer. */
  stop() {
    if (this.#isEnded) return
    this.#end()
    this.#socket.leave()
  }

  #end(retryAfterMs = 0) {
    if (this.#isEnded) return
    this.#isEnded = true
    clearTimeout(this.#refreshTimer)
    this.#phoenix.end()
    this.#onEnd(retryAfterMs)
  }
}

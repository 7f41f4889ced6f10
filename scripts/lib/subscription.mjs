/**
 * Listening for one agent until it is told to stop. Realtime is a hint, the inbox is the truth: the two are compared at the
 * start, after every join, system message, error and close, and every few minutes.
 */
import { ApiError, isMessageId, readRetryAfterMs } from './api.mjs'
import { createBackoff, sleep } from './backoff.mjs'
import { createInboxCheck } from './inbox-check.mjs'
import { runSession } from './session.mjs'
import { describeError, isRecord } from './text.mjs'

/** What no later try can mend; the message is the contract's sentence. */
export class FatalError extends Error {}

/**
 * @typedef {import('./api.mjs').Ticket} Ticket
 *
 * @typedef {object} SubscriptionOptions
 * @property {import('./api.mjs').Api} api
 * @property {Ticket | null} ticket a fresh one, if there is one already
 * @property {Pick<import('./announcements.mjs').Announcements, 'compare' | 'hear'>} announcements
 * @property {Pick<import('./lease.mjs').Lease, 'setHearing'>} lease
 * @property {(text: string) => void} log
 * @property {import('./config.mjs').Times} times
 * @property {AbortSignal} signal
 */

export class Subscription {
  #options
  #check
  #backoff
  /** Ends the session or the wait of this moment. */
  #interruption = new AbortController()
  #joinedAt = 0
  /** @type {Set<NodeJS.Timeout>} */
  #dueTimers = new Set()

  /** @param {SubscriptionOptions} options */
  constructor(options) {
    const { api, announcements, log, times, signal } = options
    this.#options = options
    this.#backoff = createBackoff(times.backoffMs)
    this.#check = createInboxCheck({
      listPending: api.listPending,
      onPending: (pending, isSlow) => {
        const found = announcements.compare(pending)
        if (isSlow && found > 0) this.#noteDeaf(found)
      },
      onRefused: () => this.#interruption.abort(),
      log,
      times,
      signal,
    })
  }

  /** Resolves when the signal aborts. @returns {Promise<void>} @throws {FatalError} */
  async run() {
    const { signal, lease } = this.#options
    const interrupt = () => this.#interruption.abort()
    signal.addEventListener('abort', interrupt)
    try {
      this.#check.request()
      let { ticket } = this.#options
      while (!signal.aborted) {
        this.#interruption = new AbortController()
        ticket ??= await getTicketWithRetry(
          this.#options,
          this.#backoff,
          this.#interruption.signal,
          this.#check.request,
        )
        if (ticket !== null) await this.#listen(ticket)
        ticket = null
        // In this order: a restart ends all listeners' connections at once, and their calls must not come at once.
        await this.#pause()
        this.#check.request()
      }
    } finally {
      signal.removeEventListener('abort', interrupt)
      for (const timer of this.#dueTimers) clearTimeout(timer)
      lease.setHearing(false)
    }
  }

  /** Connects afresh at once: after a sleep of the machine a socket is dead and may not know it for minutes. */
  reconnect() {
    this.#backoff.reset()
    this.#interruption.abort()
  }

  /** @param {Ticket} ticket */
  async #listen(ticket) {
    const { api, lease, log, times } = this.#options
    this.#joinedAt = 0
    const events = {
      log,
      getTicket: api.getTicket,
      onJoined: () => this.#noteJoined(),
      onHint: () => this.#check.request(),
      // A server that restarts says so to everybody at once.
      onSystem: () => this.#checkLater(Math.random() * (times.backoffMs[0] ?? 0)),
      onMessage: (/** @type {string} */ event, /** @type {Record<string, unknown>} */ payload) => {
        this.#receive(event, payload, ticket)
      },
    }
    await runSession(ticket, events, times, this.#interruption.signal)
    lease.setHearing(false)
    if (this.#joinedAt > 0 && performance.now() - this.#joinedAt >= times.healthyMs) this.#backoff.reset()
  }

  #noteJoined() {
    if (this.#joinedAt === 0) this.#options.log('connected')
    this.#joinedAt ||= performance.now()
    this.#options.lease.setHearing(true)
  }

  /**
   * All was well and yet Realtime did not tell: after a restart of its database a private topic can be deaf until somebody
   * joins, which we therefore do. Where it does not help, it is no more than one connection in each slow comparison.
   * @param {number} count
   */
  #noteDeaf(count) {
    this.#options.log(`ws error: ${count} new without a word from Realtime`)
    this.#interruption.abort()
  }

  async #pause() {
    const { signal, log } = this.#options
    if (signal.aborted || this.#interruption.signal.aborted) return
    const ms = this.#backoff.next()
    log(`reconnecting in ${ms}ms`)
    await sleep(ms, this.#interruption.signal)
  }

  /** @param {string} event @param {Record<string, unknown>} payload @param {Ticket} ticket */
  #receive(event, payload, ticket) {
    if (event === 'broadcast') {
      if (payload.event === 'wake' && isRecord(payload.payload)) this.#receiveWake(payload.payload, ticket.agent)
    } else if (event === 'postgres_changes') {
      const data = payload.data
      if (isRecord(data) && data.type === 'INSERT' && isRecord(data.record)) this.#receiveRow(data, data.record, ticket)
      else this.#check.request()
    }
  }

  /** @param {Record<string, unknown>} wake @param {string} agent */
  #receiveWake(wake, agent) {
    const { id, from, to } = wake
    // What does not look like a wake for us may be one all the same: the inbox knows.
    if (!isMessageId(id) || (to !== undefined && to !== agent)) return this.#check.request()
    this.#options.announcements.hear({ id, from })
  }

  /**
   * A row of agent_messages. It wakes only when it is due: `wake_at` null is silent, later than the commit is held. Realtime
   * has shown rows to the wrong subscriber before, so a row that is not addressed to us is not believed either.
   * @param {Record<string, unknown>} data @param {Record<string, unknown>} record @param {Ticket} ticket
   */
  #receiveRow(data, record, { agent, namespaces }) {
    const { id, from_agent: from, to_agent: to, namespace_id: namespace, wake_at: wakeAt } = record
    if (wakeAt === null) return
    const isOurs = to === agent && namespaces.some((name) => name === namespace)
    // Both times are the server's, so that a wrong clock on this machine does not matter.
    const waitMs = Date.parse(String(wakeAt)) - Date.parse(String(data.commit_timestamp))
    if (waitMs > 1_000) this.#checkLater(waitMs)
    else if (waitMs <= 1_000 && isMessageId(id) && isOurs) this.#options.announcements.hear({ id, from })
    else this.#check.request()
  }

  /** @param {number} ms */
  #checkLater(ms) {
    // The slow comparison finds whatever is due later than that.
    if (ms > this.#options.times.compareMs || this.#dueTimers.size > 100) return
    const timer = setTimeout(() => {
      this.#dueTimers.delete(timer)
      this.#check.request()
    }, ms)
    this.#dueTimers.add(timer)
  }
}

/**
 * Asks for a ticket until there is one or the interruption comes.
 * @param {{ api: import('./api.mjs').Api, log: (text: string) => void, times: import('./config.mjs').Times, signal: AbortSignal }} options
 * @param {import('./backoff.mjs').Backoff} backoff
 * @param {AbortSignal} interruption
 * @param {() => void} [onFailure]
 * @returns {Promise<Ticket | null>} null: interrupted
 * @throws {FatalError}
 */
export async function getTicketWithRetry({ api, log, times, signal }, backoff, interruption, onFailure) {
  while (!signal.aborted && !interruption.aborted) {
    try {
      return await getTicketTwice(api, times, interruption)
    } catch (error) {
      if (error instanceof FatalError) throw error
      if (signal.aborted || interruption.aborted) return null
      log(`ticket refresh failed: ${describeError(error)}`)
      onFailure?.()
      // Everybody is told the same time; the jitter is added, so that they do not all come back at its end.
      const ms = readRetryAfterMs(error) + backoff.next()
      log(`reconnecting in ${ms}ms`)
      await sleep(ms, interruption)
    }
  }
  return null
}

/**
 * A final refusal counts only when it comes twice: a server in the middle of a restart may say anything once.
 * @param {import('./api.mjs').Api} api @param {import('./config.mjs').Times} times @param {AbortSignal} interruption
 */
async function getTicketTwice(api, times, interruption) {
  try {
    return await api.getTicket()
  } catch (error) {
    if (!(error instanceof ApiError) || error.fatalText === null) throw error
    await sleep(times.askAgainMs, interruption)
    if (interruption.aborted) throw error
    return await api.getTicket().catch((again) => {
      if (again instanceof ApiError && again.fatalText === error.fatalText) throw new FatalError(again.fatalText ?? '')
      throw again
    })
  }
}

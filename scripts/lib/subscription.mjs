/**
 * Listening for one agent until it is told to stop. Realtime is a hint, the inbox is the truth: the two are compared at the
 * start, after every join, system message, error and close, and every few minutes. What comes in a row is one comparison: it
 * only has to begin after the last of them.
 */
import { isMessageId } from './api.mjs'
import { createBackoff, sleep, spreadAskedWait } from './backoff.mjs'
import { isRecord, monotonicMs } from './basics.cjs'
import { InboxCheck } from './inbox-check.mjs'
import { runSession } from './session.mjs'
import { getTicketWithRetry } from './ticket.mjs'

/**
 * @typedef {import('./api.mjs').Ticket} Ticket
 *
 * @typedef {object} SubscriptionOptions
 * @property {import('./api.mjs').Api} api
 * @property {Ticket | null} ticket a fresh one, if there is one already
 * @property {Pick<import('./announcements.mjs').Announcements, 'compare' | 'hear'>} announcements
 * @property {(isHearing: boolean) => void} onHearing whether every topic is joined; may be told the same again
 * @property {(text: string) => void} log
 * @property {import('./config.cjs').Times} times
 * @property {AbortSignal} signal
 */

export class Subscription {
  #options
  #check
  #backoff
  /** Ends the session or the wait of this moment. */
  #interruption = new AbortController()
  #joinedAt = 0
  #isHearing = false
  #isFirst = true
  /** @type {Set<NodeJS.Timeout>} */
  #dueTimers = new Set()

  /** @param {SubscriptionOptions} options */
  constructor(options) {
    const { api, announcements, log, times, signal } = options
    this.#options = options
    this.#backoff = createBackoff(times.backoffMs)
    this.#check = new InboxCheck({
      listPending: api.listPending,
      onPending: (pending, isSlow) => {
        const found = announcements.compare(pending)
        if (isSlow && found > 0 && this.#isHearing) this.#noteDeaf(found)
      },
      onRefused: () => this.#interruption.abort(),
      log,
      times,
      signal,
    })
  }

  /** Resolves when the signal aborts. @returns {Promise<void>} @throws {FatalError} */
  async run() {
    const { signal, onHearing } = this.#options
    const interrupt = () => this.#interruption.abort()
    signal.addEventListener('abort', interrupt)
    try {
      let { ticket } = this.#options
      while (!signal.aborted) {
        this.#interruption = new AbortController()
        ticket ??= await getTicketWithRetry(this.#options, this.#backoff, this.#interruption.signal, () =>
          this.#check.request(),
        )
        const retryAfterMs = ticket === null ? 0 : await this.#listen(ticket)
        ticket = null
        await this.#pause(retryAfterMs)
      }
    } finally {
      signal.removeEventListener('abort', interrupt)
      for (const timer of this.#dueTimers) clearTimeout(timer)
      onHearing(false)
    }
  }

  /** Connects afresh at once: after a sleep of the machine a socket is dead and may not know it for minutes. */
  reconnect() {
    this.#backoff.reset()
    this.#interruption.abort()
  }

  /** @param {Ticket} ticket @returns {Promise<number>} for how long the server asked to be left alone */
  async #listen(ticket) {
    const { api, onHearing, log, times } = this.#options
    this.#joinedAt = 0
    const events = {
      log,
      getTicket: api.getTicket,
      onJoined: () => this.#noteJoined(),
      // A server that restarts says so to everybody at once, and the join that follows asks for a comparison anyway.
      onSystem: () => this.#check.request(times.compareSoonMs * (1 + Math.random())),
      onMessage: (/** @type {string} */ event, /** @type {Record<string, unknown>} */ payload) => {
        this.#receive(event, payload, ticket)
      },
    }
    // The first look tells what was there before us from what comes now. Later only a join that does not come needs one: here,
    // after the pause, as a restart ends all listeners' connections at once, and their calls must not come at once.
    this.#check.request(this.#isFirst ? 0 : times.compareSoonMs)
    this.#isFirst = false
    const { retryAfterMs } = await runSession(ticket, events, times, this.#interruption.signal)
    this.#isHearing = false
    onHearing(false)
    if (this.#joinedAt > 0 && monotonicMs() - this.#joinedAt >= times.healthyMs) this.#backoff.reset()
    return retryAfterMs
  }

  #noteJoined() {
    if (this.#joinedAt === 0) this.#options.log('connected')
    this.#joinedAt ||= monotonicMs()
    this.#isHearing = true
    this.#options.onHearing(true)
    this.#check.request()
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

  /** @param {number} retryAfterMs */
  async #pause(retryAfterMs) {
    const { signal, log } = this.#options
    if (signal.aborted || this.#interruption.signal.aborted) return
    const ms = spreadAskedWait(retryAfterMs) + this.#backoff.next()
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
    const waitMs = parseTime(wakeAt) - parseTime(data.commit_timestamp)
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

/** @param {unknown} value */
function parseTime(value) {
  return typeof value === 'string' ? Date.parse(value) : Number.NaN
}

/** The life of one identity: ticket, pidfile (or standing by), then listening, until it is stopped or a fault is final. */
import { Announcements } from './announcements.mjs'
import { createApi } from './api.mjs'
import { createBackoff, sleep } from './backoff.mjs'
import { Lease } from './lease.mjs'
import { Pidfile, prepareRuntimeFolder } from './pidfile.mjs'
import { StatusWriter } from './status-writer.mjs'
import { FatalError, getTicketWithRetry, Subscription } from './subscription.mjs'

/**
 * @typedef {{ kind: 'stopped' } | { kind: 'fatal', text: string } | { kind: 'duplicate', pid: number }} Outcome
 *
 * @typedef {object} ListenerOptions
 * @property {import('./mcp-json.mjs').Identity} identity
 * @property {import('./config.mjs').Settings} settings
 * @property {boolean} isAuto stands by beside another listener instead of giving up
 * @property {import('./lines.mjs').Lines} lines
 * @property {(text: string) => void} log
 * @property {() => Promise<void>} onAccepted the server has given a first ticket
 */

export class Listener {
  #options
  #stopping = new AbortController()
  #announcements
  /** @type {Lease | null} */
  #lease = null
  /** @type {Pidfile | null} */
  #pidfile = null
  /** @type {StatusWriter | null} */
  #status = null
  /** @type {Subscription | null} */
  #subscription = null
  /** @type {Promise<Outcome> | null} */
  #running = null

  /** @param {ListenerOptions} options */
  constructor(options) {
    this.#options = options
    this.#announcements = new Announcements({
      speak: (kind, from, onWritten) => options.lines.add(kind, from, onWritten),
      onWritten: (id) => this.#lease?.noteAnnounced(id),
    })
  }

  /** @returns {Promise<Outcome>} */
  run() {
    this.#running ??= this.#run().catch((error) => {
      if (error instanceof FatalError) return { kind: 'fatal', text: error.message }
      throw error
    })
    return this.#running
  }

  /** Gives back the lease and the pidfile. @returns {Promise<void>} */
  async stop() {
    this.#stopping.abort()
    await this.#running?.catch(() => {})
  }

  /** What must not be left behind even when there is no time for anything else. */
  release() {
    this.#pidfile?.release()
  }

  /** The machine has slept. */
  reconnect() {
    this.#subscription?.reconnect()
  }

  /** @returns {Promise<Outcome>} */
  async #run() {
    const { identity, settings } = this.#options
    const { signal } = this.#stopping
    const api = await createApi({ ...identity, timeoutMs: settings.times.httpMs, signal })
    try {
      let isFirst = true
      while (!signal.aborted) {
        const ticket = await this.#getTicket(api)
        if (ticket === null) break
        if (isFirst) await this.#noteAccepted(ticket)
        isFirst = false
        const claim = await this.#claim(ticket)
        if (claim.pid !== null) return { kind: 'duplicate', pid: claim.pid }
        // After standing by, the ticket of before may be old.
        const pid = await this.#listen(api, claim.hasWaited ? null : ticket)
        if (pid !== null && !this.#options.isAuto) return { kind: 'duplicate', pid }
      }
      return { kind: 'stopped' }
    } finally {
      this.#pidfile?.release()
      api.close()
    }
  }

  /** @param {import('./api.mjs').Api} api */
  #getTicket(api) {
    const { log, settings } = this.#options
    const { signal } = this.#stopping
    return getTicketWithRetry(
      { api, log, times: settings.times, signal },
      createBackoff(settings.times.backoffMs),
      signal,
    )
  }

  /** @param {import('./api.mjs').Ticket} ticket */
  async #noteAccepted({ agent, namespaces }) {
    this.#options.log(`agent=${agent} namespaces=${namespaces.join(',')}`)
    await this.#options.onAccepted()
  }

  /**
   * @param {import('./api.mjs').Ticket} ticket
   * @returns {Promise<{ pid: number | null, hasWaited: boolean }>} pid null: the pidfile is ours, or we are being stopped
   */
  async #claim({ agent, namespaces }) {
    const { identity, settings, isAuto, log } = this.#options
    const [namespace = ''] = namespaces
    const folder = openRuntimeFolder(settings.runtimeFolders)
    const pidfile = new Pidfile({ folder, origin: identity.origin, namespace, agent })
    this.#pidfile = pidfile
    this.#status = new StatusWriter({ folder, identity, agent, namespace, log })
    for (let tries = 0; ; tries++) {
      const pid = this.#stopping.signal.aborted ? null : pidfile.claim()
      if (pid === null || !isAuto) return { pid, hasWaited: tries > 0 }
      if (tries === 0) log(`standing by: already running (pid ${pid})`)
      await sleep(settings.times.standbyMs, this.#stopping.signal)
    }
  }

  /**
   * @param {import('./api.mjs').Api} api @param {import('./api.mjs').Ticket | null} ticket
   * @returns {Promise<number | null>} the pid of a listener that has taken our place, null when stopped
   */
  async #listen(api, ticket) {
    const { settings, lines, log } = this.#options
    const { times } = settings
    const losing = new AbortController()
    const signal = AbortSignal.any([this.#stopping.signal, losing.signal])
    const lease = new Lease({ api, who: pickWho(settings), isHeard: () => lines.isDrained, log, times })
    this.#lease = lease
    this.#subscription = new Subscription({
      api,
      ticket,
      announcements: this.#status?.watch(this.#announcements) ?? this.#announcements,
      lease: {
        setHearing: (isHearing) => {
          lease.setHearing(isHearing)
          this.#status?.setConnected(isHearing)
        },
      },
      log,
      times,
      signal,
    })
    /** @type {number | null} */
    let rival = null
    const timer = setInterval(() => {
      rival = this.#checkPidfile()
      if (rival !== null) losing.abort()
    }, times.standbyMs)
    try {
      await this.#subscription.run()
      return rival
    } finally {
      clearInterval(timer)
      this.#subscription = null
      this.#status?.end()
      await lease.end()
    }
  }

  /** @returns {number | null} */
  #checkPidfile() {
    try {
      prepareRuntimeFolder(this.#options.settings.runtimeFolders)
      return this.#pidfile?.check() ?? null
    } catch {
      // The runtime folder may be gone for good; that must not end a listener that hears.
      return null
    }
  }
}

/** @param {string[]} folders */
function openRuntimeFolder(folders) {
  try {
    return prepareRuntimeFolder(folders)
  } catch (error) {
    throw new FatalError(error instanceof Error ? error.message : String(error))
  }
}

/** @param {import('./config.mjs').Settings} settings */
function pickWho({ session, client, machine }) {
  return { session, client, machine }
}

/** The life of one identity: ticket, pidfile (or standing by), then listening, until it is stopped or a fault is final. */
import { createApi } from './api.mjs'
import { createBackoff, sleep } from './backoff.mjs'
import { describeError } from './text.mjs'
import { FatalError, getTicketWithRetry } from './ticket.mjs'

/**
 * @typedef {{ kind: 'stopped' } | { kind: 'fatal', text: string } | { kind: 'duplicate', pid: number }} Outcome
 *
 * @typedef {{ kind: 'standing by', pid: number } | { kind: 'connected' } | { kind: 'deaf' }} State
 *   What a listener is at this moment, once it knows which agent it is. Deaf: it connects, again or for the first time.
 *
 * @typedef {object} ListenerOptions
 * @property {import('./mcp-json.mjs').Identity} identity
 * @property {import('./config.mjs').Settings} settings
 * @property {boolean} isAuto stands by beside another listener instead of giving up
 * @property {import('./lines.mjs').Voice} lines
 * @property {(text: string) => void} log
 * @property {() => Promise<void>} onAccepted the server has given a first ticket
 * @property {(state: State) => void} onState each change of it
 */

export class Listener {
  #options
  #stopping = new AbortController()
  /** For the whole life: nothing is told twice. @type {import('./announcements.mjs').Announcements | null} */
  #announcements = null
  /** @type {import('./lease.mjs').Lease | null} */
  #lease = null
  /** @type {import('./pidfile.mjs').Pidfile | null} */
  #pidfile = null
  /** @type {import('./status-writer.mjs').StatusWriter | null} */
  #status = null
  #prepareFolder = () => ''
  /** The runtime folder. */
  #folder
  /** @type {import('./subscription.mjs').Subscription | null} */
  #subscription = null
  /** Ends the listening of this moment. */
  #losing = new AbortController()
  /** The listener that has taken our place. @type {number | null} */
  #rival = null
  /** @type {State['kind'] | null} */
  #state = null
  /** @type {Promise<Outcome> | null} */
  #running = null

  /** @param {ListenerOptions} options */
  constructor(options) {
    this.#options = options
    this.#folder = options.settings.runtimeFolders[0] ?? ''
  }

  get identity() {
    return this.#options.identity
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
    this.#losing.abort()
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

  /** To be called every few seconds: is the agent still ours on this machine? */
  tick() {
    if (this.#subscription === null || this.#pidfile === null || this.#pidfile.isInPlace) return
    try {
      this.#prepareFolder()
      this.#rival = this.#pidfile.check()
    } catch {
      // The runtime folder may be gone for good; that must not end a listener that hears.
      return
    }
    if (this.#rival !== null) this.#losing.abort()
  }

  /** @param {State} state */
  #setState(state) {
    if (state.kind === this.#state) return
    this.#state = state.kind
    this.#options.onState(state)
  }

  /** @returns {Promise<Outcome>} */
  async #run() {
    const { identity, settings } = this.#options
    const { signal } = this.#stopping
    const api = createApi({ ...identity, timeoutMs: settings.times.httpMs, signal })
    try {
      const [first, parts] = await Promise.all([this.#getTicket(api), loadParts()])
      if (first !== null) await this.#noteAccepted(first)
      for (let ticket = first; ticket !== null && !signal.aborted; ticket = await this.#getTicket(api)) {
        const claim = await this.#claim(parts, ticket)
        if (claim.pid !== null) return { kind: 'duplicate', pid: claim.pid }
        // After standing by, the ticket of before may be old.
        const pid = await this.#listen(parts, api, claim.hasWaited ? null : ticket)
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
   * @param {Parts} parts @param {import('./api.mjs').Ticket} ticket
   * @returns {Promise<{ pid: number | null, hasWaited: boolean }>} pid null: the pidfile is ours, or we are being stopped
   */
  async #claim(parts, ticket) {
    const { settings, isAuto, log } = this.#options
    const { signal } = this.#stopping
    const backoff = createBackoff(settings.times.backoffMs)
    for (let tries = 0; ; tries++) {
      try {
        const pid = signal.aborted ? null : this.#tryClaim(parts, ticket)
        if (pid === null || !isAuto) return { pid, hasWaited: tries > 0 }
        this.#setState({ kind: 'standing by', pid })
        backoff.reset()
        await sleep(settings.times.standbyMs, signal)
      } catch (error) {
        // A full disk, or a folder that another has put in the way: a fault of this machine, which may pass. Who started us by
        // hand is there to mend it; who did not must not be told in a turn of a model.
        if (!isAuto) throw new FatalError(parts.describeFolderFault(error, this.#folder))
        const ms = backoff.next()
        log(`cannot write the pidfile: ${describeError(error)}`)
        log(`reconnecting in ${ms}ms`)
        this.#setState({ kind: 'deaf' })
        await sleep(ms, signal)
      }
    }
  }

  /**
   * The folder, too, is made again with each try: it may have been removed.
   * @param {Parts} parts @param {import('./api.mjs').Ticket} ticket @returns {number | null} as `Pidfile.claim`
   */
  #tryClaim({ Pidfile, prepareRuntimeFolder, StatusWriter }, { agent, namespaces }) {
    const { identity, settings, log } = this.#options
    const [namespace = ''] = namespaces
    this.#prepareFolder = () => prepareRuntimeFolder(settings.runtimeFolders)
    const folder = this.#prepareFolder()
    this.#folder = folder
    this.#pidfile = new Pidfile({ folder, origin: identity.origin, namespace, agent })
    const pid = this.#pidfile.claim()
    if (pid === null) this.#status = new StatusWriter({ folder, identity, agent, namespace, log })
    return pid
  }

  /**
   * @param {Parts} parts @param {import('./api.mjs').Api} api @param {import('./api.mjs').Ticket | null} ticket
   * @returns {Promise<number | null>} the pid of a listener that has taken our place, null when stopped
   */
  async #listen({ Subscription, Lease, Announcements }, api, ticket) {
    const { settings, lines, log } = this.#options
    const { session, client, machine, times } = settings
    const lease = new Lease({ api, who: { session, client, machine }, isHeard: () => lines.isDrained, log, times })
    this.#lease = lease
    this.#rival = null
    this.#losing = new AbortController()
    if (this.#stopping.signal.aborted) this.#losing.abort()
    this.#setState({ kind: 'deaf' })
    const onHearing = (/** @type {boolean} */ isHearing) => {
      lease.setHearing(isHearing)
      this.#status?.setConnected(isHearing)
      this.#setState({ kind: isHearing ? 'connected' : 'deaf' })
    }
    const { signal } = this.#losing
    this.#announcements ??= new Announcements({
      speak: (kind, from, onWritten) => lines.add(kind, from, onWritten, this.#options.identity),
      onWritten: (id) => this.#lease?.noteAnnounced(id),
      onForgotten: (id) => this.#lease?.forget(id),
    })
    const announcements = this.#status?.watch(this.#announcements) ?? this.#announcements
    this.#subscription = new Subscription({ api, ticket, announcements, onHearing, log, times, signal })
    try {
      await this.#subscription.run()
      return this.#rival
    } finally {
      this.#subscription = null
      this.#status?.end()
      await lease.end()
    }
  }
}

/**
 * What is needed after the first answer of the server only, and can be loaded while that is under way.
 * @typedef {Awaited<ReturnType<typeof loadParts>>} Parts
 */
async function loadParts() {
  const [subscription, lease, announcements, pidfile, status, faults] = await Promise.all([
    import('./subscription.mjs'),
    import('./lease.mjs'),
    import('./announcements.mjs'),
    import('./pidfile.mjs'),
    import('./status-writer.mjs'),
    import('./folder-fault.mjs'),
  ])
  return { ...subscription, ...lease, ...announcements, ...pidfile, ...status, ...faults }
}

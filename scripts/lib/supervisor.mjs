/**
 * The two modes. By hand: what the project's configuration names is listened for and trusted from then on, every problem is told,
 * and the process ends when nothing is left to do. Where a model has started it, trust is not its to give: a cloned repository
 * could have asked for it. `--auto`: it never ends by itself, acts as trusted identities only, and follows changes of the
 * configuration.
 */
import { sleep } from './backoff.mjs'
import { describeError } from './basics.cjs'
import { discoverIdentities } from './mcp-json.cjs'

/** As many as the hooks look after. Each is a connection, and one file of a repository can name thousands. */
export const IDENTITIES_MAX = 4
const UNTRUSTED = 'server or token not trusted yet, run patchcord connect in a terminal'
const NO_LONGER_TRUSTED = 'server or token not trusted any more, run patchcord connect in a terminal'

/**
 * @typedef {import('./mcp-json.cjs').Identity} Identity
 * @typedef {import('./mcp-json.cjs').Discovery} Discovery
 * @typedef {import('./listener.mjs').Outcome} Outcome
 *
 * @typedef {object} SupervisorOptions
 * @property {import('./config.cjs').Settings} settings
 * @property {string} folder
 * @property {boolean} [isOnce] what a listener by hand is told is for this once: nothing is recorded as trusted
 * @property {import('./lines.mjs').Voice & Pick<import('./lines.mjs').Lines, 'stop' | 'forgetStops'>} lines
 * @property {(text: string) => void} log
 */

export class Supervisor {
  #options
  /** @type {Map<string, import('./listener.mjs').Listener>} */
  #listeners = new Map()
  /** Also those whose code is being loaded. @type {Set<string>} */
  #started = new Set()
  /** Those that were ended with their trust. @type {Set<string>} */
  #distrusted = new Set()
  /** Identities whose fault is final until the configuration changes. @type {Set<string>} */
  #failed = new Set()
  /** How many identities had no room at the last look. */
  #leftOut = 0
  #isStopping = false
  /** Two identities accepted at once must not overwrite each other's record. @type {Promise<void>} */
  #recording = Promise.resolve()

  /** @param {SupervisorOptions} options */
  constructor(options) {
    this.#options = options
  }

  /** To be called every few seconds. */
  tick() {
    for (const listener of this.#listeners.values()) listener.tick()
  }

  /** @returns {Promise<number>} the exit code */
  async runByHand() {
    const discovery = this.#discover()
    for (const note of discovery.notes) this.#options.log(note)
    if (discovery.problem !== null) {
      await this.#tellFatal(discovery.problem)
      return 1
    }
    const chosen = this.#choose(await this.#findAllowed(discovery.identities))
    if (chosen.length === 0) {
      await this.#tellFatal(UNTRUSTED)
      return 1
    }
    const running = Promise.all(chosen.map((identity) => this.#runOne(identity, false)))
    if (this.#options.settings.isStartedByModel) void this.#watchTrust()
    const outcomes = await running
    if (outcomes.some((outcome) => outcome.kind === 'fatal')) return 1
    return outcomes.some((outcome) => outcome.kind === 'duplicate') ? 2 : 0
  }

  /** Never resolves before it is stopped. @returns {Promise<void>} */
  async runAuto() {
    const { settings, log } = this.#options
    let fingerprint = ''
    while (!this.#isStopping) {
      try {
        const discovery = this.#discover()
        if (discovery.fingerprint !== fingerprint) {
          fingerprint = discovery.fingerprint
          this.#failed.clear()
          this.#options.lines.forgetStops()
        }
        await this.#follow(discovery)
      } catch (error) {
        log(`error: ${describeError(error)}`)
      }
      await sleep(settings.times.configMs)
    }
  }

  /** @returns {Promise<void>} */
  async stop() {
    this.#isStopping = true
    await Promise.all([...this.#listeners.values()].map((listener) => listener.stop()))
  }

  release() {
    for (const listener of this.#listeners.values()) listener.release()
  }

  reconnect() {
    for (const listener of this.#listeners.values()) listener.reconnect()
  }

  #discover() {
    const { settings, folder } = this.#options
    return discoverIdentities({ folder, pair: settings.pair, lookup: settings.lookup })
  }

  /** The first few. @param {Identity[]} identities */
  #choose(identities) {
    const leftOut = Math.max(0, identities.length - IDENTITIES_MAX)
    // Once, not at each look at the configuration.
    if (leftOut > 0 && leftOut !== this.#leftOut) {
      const advice = 'start a listener in another folder, or with PATCHCORD_URL and PATCHCORD_TOKEN, for them'
      this.#options.log(`only the first ${IDENTITIES_MAX} identities are listened for, ${leftOut} left out: ${advice}`)
    }
    this.#leftOut = leftOut
    return identities.slice(0, IDENTITIES_MAX)
  }

  /** Whom a listener by hand may act as. @param {Identity[]} identities */
  async #findAllowed(identities) {
    const { isStartedByModel, trustFile } = this.#options.settings
    if (!isStartedByModel) return identities
    const { readTrusted, toTrustId } = await import('./identity.cjs')
    const trusted = readTrusted(trustFile)
    return identities.filter((identity) => trusted.has(toTrustId(identity)))
  }

  /** Whoever takes trust back need not find the process that still acts on it. Never resolves before it is stopped. */
  async #watchTrust() {
    const { log, settings } = this.#options
    while (!this.#isStopping) {
      await sleep(settings.times.configMs)
      const identities = [...this.#listeners.values()].map(({ identity }) => identity)
      const allowed = await this.#findAllowed(identities)
      for (const key of identities.filter((identity) => !allowed.includes(identity)).map(toKey)) {
        this.#distrusted.add(key)
        await this.#listeners
          .get(key)
          ?.stop()
          .catch((error) => log(`error: ${describeError(error)}`))
      }
    }
  }

  /** Starts what is new and trusted, stops what is gone. @param {Discovery} discovery */
  async #follow({ identities, isBroken }) {
    const { readTrusted, toTrustId } = await import('./identity.cjs')
    const trusted = readTrusted(this.#options.settings.trustFile)
    const chosen = this.#choose(identities.filter((identity) => trusted.has(toTrustId(identity))))
    const wanted = new Map(chosen.map((one) => [toKey(one), one]))
    for (const [key, listener] of this.#listeners) {
      // A file that is being edited may be half written; it names nobody and dismisses nobody. The end of trust is no such thing.
      if (!wanted.has(key) && !(isBroken && trusted.has(toTrustId(listener.identity)))) await listener.stop()
    }
    for (const [key, identity] of wanted) {
      if (!this.#started.has(key) && !this.#failed.has(key)) void this.#keepRunning(key, identity)
    }
  }

  /** @param {string} key @param {Identity} identity */
  async #keepRunning(key, identity) {
    try {
      const outcome = await this.#runOne(identity, true)
      if (outcome.kind === 'fatal') this.#failed.add(key)
    } catch (error) {
      // A fault of our own: the next look at the configuration starts this identity again.
      this.#options.log(`error: ${describeError(error)}`)
    }
  }

  /** @param {Identity} identity @param {boolean} isAuto @returns {Promise<Outcome>} */
  async #runOne(identity, isAuto) {
    const { folder, log } = this.#options
    const key = toKey(identity)
    this.#started.add(key)
    try {
      log(`cwd=${folder} server=${identity.base}`)
      const listener = await this.#createListener(identity, isAuto)
      if (this.#isStopping) return { kind: 'stopped' }
      this.#listeners.set(key, listener)
      const ended = await listener.run()
      const isDistrusted = ended.kind === 'stopped' && this.#distrusted.has(key)
      /** @type {Outcome} */
      const outcome = isDistrusted ? { kind: 'fatal', text: NO_LONGER_TRUSTED } : ended
      if (outcome.kind === 'fatal') await this.#tellFatal(outcome.text)
      if (outcome.kind === 'duplicate') log(`already running (pid ${outcome.pid})`)
      return outcome
    } finally {
      this.#listeners.delete(key)
      this.#started.delete(key)
    }
  }

  /** @param {Identity} identity @param {boolean} isAuto */
  async #createListener(identity, isAuto) {
    const { settings, lines, log, isOnce = false } = this.#options
    const isRecorded = !isAuto && !isOnce && !settings.isStartedByModel
    // Not before there is somebody to listen for: an idle --auto stays small, and the first line comes early.
    const { Listener } = await import('./listener.mjs')
    return new Listener({
      identity,
      settings,
      isAuto,
      lines,
      log,
      onAccepted: () => (isRecorded ? this.#record(identity) : Promise.resolve()),
      onState: (state) => this.#noteState(state),
    })
  }

  /** Each change of the state of a listener passes here. @param {import('./listener.mjs').State} state */
  #noteState(state) {
    if (state.kind === 'standing by') this.#options.log(`standing by: already running (pid ${state.pid})`)
  }

  /** @param {Identity} identity */
  #record(identity) {
    const { settings, log } = this.#options
    this.#recording = this.#recording
      .then(() => import('./identity.cjs'))
      .then(({ recordTrust, toTrustId }) => recordTrust(settings.trustFile, toTrustId(identity)))
      .catch((error) => log(`cannot record this identity as trusted: ${describeError(error)}`))
    return this.#recording
  }

  /** @param {string} text */
  async #tellFatal(text) {
    this.#options.log(`fatal: ${text}`)
    await this.#options.lines.stop(text)
  }
}

/** @param {Identity} identity */
function toKey({ base, token }) {
  return `${base} ${token}`
}

/**
 * Phoenix channels as Supabase Realtime speaks them, serializer 1.0.0: JSON text `{topic, event, payload, ref, join_ref}`
 * (https://supabase.com/docs/guides/realtime/protocol). One instance per socket; it knows no network, only `send`.
 *
 * A reply to a heartbeat proves the socket and nothing about a topic: a topic is alive only in state `joined`, and whatever
 * ends that state is reported as a failure.
 */
import { isRecord, toOneLine } from './basics.cjs'

/** @typedef {'joining' | 'joined' | 'closed'} TopicState */

/**
 * @typedef {object} PhoenixEvents
 * @property {(text: string) => void} send
 * @property {(topic: string) => void} onJoined accepted, and confirmed where it has to be
 * @property {(reason: string) => void} onFailure a refused or late join, a system error, phx_close, phx_error, a dead heartbeat
 * @property {(topic: string) => void} onSystem a system message that neither is an error nor confirms a join
 * @property {(topic: string, event: string, payload: Record<string, unknown>) => void} onMessage of a joined topic
 *
 * @typedef {{ heartbeatMs: number, heartbeatReplyMs: number, joinMs: number, subscribedMs: number }} PhoenixTimes
 *
 * @typedef {object} Topic
 * @property {TopicState} state
 * @property {string} joinRef
 * @property {boolean} isConfirmed false while postgres_changes waits for its system message, as the reply says ok either way
 * @property {NodeJS.Timeout | undefined} timer
 */

export class Phoenix {
  #events
  #times
  #lastRef = 0
  /** @type {Map<string, Topic>} */
  #topics = new Map()
  /** @type {NodeJS.Timeout | undefined} */
  #heartbeatTimer
  /** @type {NodeJS.Timeout | undefined} */
  #replyTimer
  #heartbeatRef = ''
  #isEnded = false

  /** @param {PhoenixEvents} events @param {PhoenixTimes} times */
  constructor(events, times) {
    this.#events = events
    this.#times = times
  }

  /** Starts the heartbeats: a fixed cadence that no traffic postpones, as the server closes after 60 s without one. */
  start() {
    this.#heartbeatTimer = setInterval(() => this.#beat(), this.#times.heartbeatMs)
  }

  /**
   * Joins a topic, also one that is joined already: the server then replaces the first join by this one.
   * @param {string} name @param {Record<string, unknown>} config @param {string} accessToken
   */
  join(name, config, accessToken) {
    clearTimeout(this.#topics.get(name)?.timer)
    const joinRef = this.#nextRef()
    const changes = config.postgres_changes
    this.#topics.set(name, {
      state: 'joining',
      joinRef,
      isConfirmed: !Array.isArray(changes) || changes.length === 0,
      timer: setTimeout(() => this.#fail(`join of ${toOneLine(name, 120)} timed out`), this.#times.joinMs),
    })
    this.#send(name, 'phx_join', { config, access_token: accessToken }, joinRef, joinRef)
  }

  get isJoined() {
    const topics = [...this.#topics.values()]
    return topics.length > 0 && topics.every(({ state, isConfirmed }) => state === 'joined' && isConfirmed)
  }

  /** Takes one text message; what is no envelope is dropped, as the server does with ours. @param {string} text */
  receive(text) {
    const message = parseEnvelope(text)
    if (message === null || this.#isEnded) return
    const { topic: name, event, payload, ref } = message
    if (name === 'phoenix') return this.#receiveHeartbeatReply(event, ref)
    const topic = this.#topics.get(name)
    if (topic === undefined) return
    if (event === 'phx_reply') this.#receiveReply(name, topic, payload, ref)
    else if (event === 'phx_close' || event === 'phx_error') this.#receiveEnd(topic, event, ref)
    else if (event === 'system') this.#receiveSystem(name, topic, payload)
    // While a join is replaced by a fresh one, the old join still delivers.
    else if (topic.state !== 'closed') this.#events.onMessage(name, event, payload)
  }

  /** Ends all timers; nothing is reported afterwards. */
  end() {
    this.#isEnded = true
    clearInterval(this.#heartbeatTimer)
    clearTimeout(this.#replyTimer)
    for (const topic of this.#topics.values()) clearTimeout(topic.timer)
  }

  #beat() {
    this.#heartbeatRef = this.#nextRef()
    clearTimeout(this.#replyTimer)
    this.#replyTimer = setTimeout(() => this.#fail('heartbeat was not answered'), this.#times.heartbeatReplyMs)
    this.#send('phoenix', 'heartbeat', {}, this.#heartbeatRef, null)
  }

  /** Only the reply to our own last heartbeat counts: other traffic can outlive the server's interest in us. */
  #receiveHeartbeatReply(/** @type {string} */ event, /** @type {unknown} */ ref) {
    if (event === 'phx_reply' && ref === this.#heartbeatRef) clearTimeout(this.#replyTimer)
  }

  /** @param {string} name @param {Topic} topic @param {Record<string, unknown>} payload @param {unknown} ref */
  #receiveReply(name, topic, payload, ref) {
    if (ref !== topic.joinRef || topic.state !== 'joining') return
    clearTimeout(topic.timer)
    if (payload.status !== 'ok') return this.#fail(`join refused: ${describeReply(payload)}`)
    topic.state = 'joined'
    if (topic.isConfirmed) return this.#events.onJoined(name)
    topic.timer = setTimeout(() => this.#fail('postgres_changes was not confirmed'), this.#times.subscribedMs)
  }

  /** @param {Topic} topic @param {string} event @param {unknown} ref */
  #receiveEnd(topic, event, ref) {
    // A phx_close with an older ref ends the join that ours has replaced.
    if (ref !== topic.joinRef && ref !== null && ref !== undefined) return
    topic.state = 'closed'
    this.#fail(`topic ended (${event})`)
  }

  /** @param {string} name @param {Topic} topic @param {Record<string, unknown>} payload */
  #receiveSystem(name, topic, payload) {
    if (payload.status === 'error') return this.#fail(`system: ${toOneLine(payload.message, 200)}`)
    const isConfirming = payload.extension === 'postgres_changes' && payload.status === 'ok'
    if (!isConfirming || topic.isConfirmed || topic.state !== 'joined') return this.#events.onSystem(name)
    clearTimeout(topic.timer)
    topic.isConfirmed = true
    this.#events.onJoined(name)
  }

  /** @param {string} reason */
  #fail(reason) {
    if (this.#isEnded) return
    this.end()
    this.#events.onFailure(reason)
  }

  /** @param {string} topic @param {string} event @param {unknown} payload @param {string} ref @param {string | null} joinRef */
  #send(topic, event, payload, ref, joinRef) {
    this.#events.send(JSON.stringify({ topic, event, payload, ref, join_ref: joinRef }))
  }

  #nextRef() {
    this.#lastRef += 1
    return String(this.#lastRef)
  }
}

/** @param {string} text */
function parseEnvelope(text) {
  let message
  try {
    message = /** @type {unknown} */ (JSON.parse(text))
  } catch {
    return null
  }
  if (!isRecord(message)) return null
  const { topic, event, payload, ref } = message
  if (typeof topic !== 'string' || typeof event !== 'string') return null
  return { topic, event, payload: isRecord(payload) ? payload : {}, ref }
}

/** @param {Record<string, unknown>} payload */
function describeReply(payload) {
  const response = payload.response
  return toOneLine(isRecord(response) ? (response.reason ?? 'no reason') : (response ?? 'no reason'), 200)
}

/** Which messages this listener has spoken of: each id once in its life, however it was heard of. */

/** Above this many remembered ids the oldest that are not pending any more are forgotten. */
const REMEMBERED_MAX = 5_000
const REMEMBERED_KEPT = 4_000

/**
 * @typedef {import('./api.mjs').Pending} Pending
 * @typedef {(kind: 'waiting' | 'new', from: unknown, onWritten: () => void) => void} Speak
 */

export class Announcements {
  /** Insertion order is age. @type {Set<string>} */
  #spoken = new Set()
  /** @type {Set<string>} */
  #pending = new Set()
  #speak
  #onWritten
  #onForgotten
  #hasCompared = false

  /**
   * @param {{ speak: Speak, onWritten: (id: string) => void, onForgotten: (id: string) => void }} options onForgotten: an id
   *   that counts as never spoken of from now on
   */
  constructor({ speak, onWritten, onForgotten }) {
    this.#speak = speak
    this.#onWritten = onWritten
    this.#onForgotten = onForgotten
  }

  /** A message that Realtime told of. @param {Pending} message */
  hear(message) {
    this.#announce('new', message)
    this.#forget()
  }

  /**
   * The inbox as it is. What the first look finds was there before us.
   * @param {Pending[]} pending
   * @returns {number} how many of them nobody had told of
   */
  compare(pending) {
    const kind = this.#hasCompared ? 'new' : 'waiting'
    this.#hasCompared = true
    this.#pending = new Set(pending.map((message) => message.id))
    const found = pending.filter((message) => this.#announce(kind, message))
    this.#forget()
    return found.length
  }

  /** @param {'waiting' | 'new'} kind @param {Pending} message @returns {boolean} false: it had been spoken of */
  #announce(kind, { id, from }) {
    if (this.#spoken.has(id)) return false
    this.#spoken.add(id)
    this.#speak(kind, from, () => {
      // Many lines may wait for a reader; what was forgotten meanwhile is not taken up again.
      if (this.#spoken.has(id)) this.#onWritten(id)
    })
    return true
  }

  /** A late duplicate of a message that was fetched long ago must still be known, so ids are kept long after they matter. */
  #forget() {
    if (this.#spoken.size <= REMEMBERED_MAX) return
    for (const id of this.#spoken) {
      if (this.#spoken.size <= REMEMBERED_KEPT) return
      if (this.#pending.has(id)) continue
      this.#spoken.delete(id)
      this.#onForgotten(id)
    }
  }
}

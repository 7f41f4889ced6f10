import type { Random } from '../soak-actors.ts'
import { createRandom } from '../soak-actors.ts'
import type { Fault, Kind, Lock } from './kinds.ts'
import type { Stage } from './stage.ts'
import { draw, pause } from './traffic.ts'

/**
 * Breaks things: kinds are drawn as cards from a deck that holds each of them once, so that no kind comes more often than
 * another. Faults overlap wherever they do not need the same thing; one that finds its thing broken waits for it.
 */

const GAP_MS = [150, 650] as const
/** So many may wait for their turn before the next one is drawn. */
const WAITING_MAX = 24

interface Card {
  kind: Kind
  fault: Fault
}

export class Schedule {
  readonly counts = new Map<string, number>()
  /** How long the faults of a kind took from their begin to their end, in ms, in all. */
  readonly spentMs = new Map<string, number>()
  readonly #kinds: Kind[]
  readonly #stage: Stage
  readonly #gapMs: readonly [number, number]
  readonly #draws: Random
  readonly #gaps: Random
  readonly #randomOf: Map<string, Random>
  readonly #held = new Set<Lock>()
  #deck: Kind[] = []
  #waiting: Card[] = []
  readonly #running = new Set<Promise<void>>()
  #failure: unknown = null

  constructor(kinds: Kind[], stage: Stage, seed: number, gapMs: readonly [number, number] = GAP_MS) {
    this.#gapMs = gapMs
    this.#kinds = kinds
    this.#stage = stage
    this.#draws = createRandom(seed, 'kinds')
    this.#gaps = createRandom(seed, 'gaps')
    this.#randomOf = new Map(kinds.map(({ name }) => [name, createRandom(seed, name)]))
    for (const { name } of kinds) this.counts.set(name, 0)
  }

  get total(): number {
    return [...this.counts.values()].reduce((sum, count) => sum + count, 0)
  }

  /** Until the signal aborts; then what has begun ends, and what waits is left out. Rejects when a fault cannot be made. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (this.#waiting.length < WAITING_MAX) this.#waiting.push(this.#drawNext())
      this.#startWaiting()
      await pause(draw(this.#gaps, this.#gapMs), signal)
      if (this.#failure !== null) throw this.#failure
    }
    // They keep their places at the top of the deck.
    this.#deck.push(...this.#waiting.map(({ kind }) => kind).reverse())
    this.#waiting = []
    while (this.#running.size > 0) await Promise.all(this.#running)
    if (this.#failure !== null) throw this.#failure
  }

  #drawNext(): Card {
    if (this.#deck.length === 0) this.#deck = shuffle(this.#kinds, this.#draws)
    const kind = this.#deck.pop() as Kind
    return { kind, fault: kind.draw(this.#stage, this.#randomOf.get(kind.name) as Random) }
  }

  /** Whoever has waited longest comes first, and what he waits for is not taken by who came later. */
  #startWaiting(): void {
    const wanted = new Set(this.#held)
    const left: Card[] = []
    for (const next of this.#waiting) {
      const isFree = next.fault.locks.every((lock) => !wanted.has(lock))
      if (isFree) this.#start(next.kind, next.fault)
      else left.push(next)
      for (const lock of next.fault.locks) wanted.add(lock)
    }
    this.#waiting = left
  }

  #start(kind: Kind, fault: Fault): void {
    for (const lock of fault.locks) this.#held.add(lock)
    const startedAt = performance.now()
    const running = fault
      .run()
      .then((hasHappened) => {
        // Its card goes back, so that this kind does not fall behind the others.
        if (!hasHappened) this.#deck.push(kind)
        else if (fault.next) this.#waiting.unshift({ kind, fault: fault.next })
        else this.counts.set(kind.name, (this.counts.get(kind.name) ?? 0) + 1)
      })
      .catch((error: unknown) => {
        this.#failure ??= error
      })
      .finally(() => {
        const before = this.spentMs.get(kind.name) ?? 0
        this.spentMs.set(kind.name, before + performance.now() - startedAt)
        for (const lock of fault.locks) this.#held.delete(lock)
        this.#running.delete(running)
        this.#startWaiting()
      })
    this.#running.add(running)
  }
}

/** Fisher and Yates. */
function shuffle<T>(values: readonly T[], random: Random): T[] {
  const cards = [...values]
  for (let last = cards.length - 1; last > 0; last--) {
    const other = Math.floor(random() * (last + 1))
    const card = cards[last] as T
    cards[last] = cards[other] as T
    cards[other] = card
  }
  return cards
}

/** Times at which somebody wants to be looked at. Until then it costs nothing, however many wait. */
export interface Deadlines<T> {
  /** As performance.now() counts. An earlier time that is set already stays: who is looked at sets the next one. */
  set(item: T, dueAt: number): void
  remove(item: T): void
  close(): void
}

/** Looks come up to `stepMs` late, never early. */
export function createDeadlines<T>(stepMs: number, look: (item: T) => void): Deadlines<T> {
  const steps = new Map<number, Set<T>>()
  const stepOf = new Map<T, number>()
  let last = Math.floor(performance.now() / stepMs)

  function remove(item: T): void {
    const step = stepOf.get(item)
    if (step === undefined) return
    stepOf.delete(item)
    const items = steps.get(step)
    if (items?.delete(item) && items.size === 0) steps.delete(step)
  }

  function turn(): void {
    const now = Math.floor(performance.now() / stepMs)
    while (last < now) {
      // Nobody can be added to this step any more; who is removed meanwhile is not looked at.
      for (const item of steps.get(++last) ?? []) {
        stepOf.delete(item)
        look(item)
      }
      steps.delete(last)
    }
  }

  const timer = setInterval(turn, stepMs).unref()
  return {
    set(item, dueAt) {
      const step = Math.max(Math.ceil(dueAt / stepMs), last + 1)
      const set = stepOf.get(item)
      if (set !== undefined && set <= step) return
      remove(item)
      stepOf.set(item, step)
      steps.set(step, (steps.get(step) ?? new Set<T>()).add(item))
    },
    remove,
    close: () => clearInterval(timer),
  }
}

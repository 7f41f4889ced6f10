export interface Throttle<T> {
  /** Passes it on at once, or as soon as the gap allows; of those that wait, the last one only. */
  push(value: T): void
  /** What still waits goes out now, and nothing after it waits. */
  flush(): void
}

/** Lets at most one value through per `gapMs`, and never keeps the last one. */
export function createThrottle<T>(gapMs: number, send: (value: T) => void): Throttle<T> {
  let timer: NodeJS.Timeout | undefined
  let waiting: { value: T } | null = null
  const pass = () => {
    timer = undefined
    if (waiting === null) return
    const { value } = waiting
    waiting = null
    timer = setTimeout(pass, gapMs).unref()
    send(value)
  }
  return {
    push(value) {
      waiting = { value }
      if (timer === undefined) pass()
    },
    flush() {
      clearTimeout(timer)
      pass()
      clearTimeout(timer)
      timer = undefined
    },
  }
}

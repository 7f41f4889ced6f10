const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** How long something took, as exact as it matters: `18 ms`, `2.1 s`, `4 min 12 s`, `3 h 5 min`, `2 days`. */
export function formatDuration(ms: number): string {
  if (ms < SECOND) return `${Math.max(0, Math.round(ms))} ms`
  if (ms < 10 * SECOND) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`
  if (ms < HOUR) return twoParts(ms, [MINUTE, 'min'], [SECOND, 's'])
  if (ms < 2 * DAY) return twoParts(ms, [HOUR, 'h'], [MINUTE, 'min'])
  return `${Math.floor(ms / DAY)} days`
}

function twoParts(ms: number, [large, largeName]: [number, string], [small, smallName]: [number, string]): string {
  const rest = Math.floor((ms % large) / small)
  return `${Math.floor(ms / large)} ${largeName}${rest > 0 ? ` ${rest} ${smallName}` : ''}`
}

/** `14:02:11.204`, in UTC. */
export function formatClock(at: Date): string {
  return at.toISOString().slice(11, 23)
}

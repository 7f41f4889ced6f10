const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR
/** Beyond this a date says more than a number of days. */
const RELATIVE_MAX = 14 * DAY

/** `12 s ago`, with the exact time (UTC) on hover and for screen readers. */
export function Time(props: { at: string; now: Date }) {
  const at = new Date(props.at)
  const absolute = formatAbsolute(at)
  return (
    <time datetime={at.toISOString()} title={absolute}>
      {formatRelative(at, props.now)}
      <span class="sr"> ({absolute})</span>
    </time>
  )
}

/** `12 s ago`, `in 3 min`, `4 days ago`, and a date for what is further away. */
export function formatRelative(at: Date, now: Date): string {
  const distance = Math.abs(now.getTime() - at.getTime())
  if (distance >= RELATIVE_MAX) return formatDate(at)
  if (distance < 2 * SECOND) return 'just now'
  const amount = formatAmount(distance)
  return at <= now ? `${amount} ago` : `in ${amount}`
}

function formatAmount(distance: number): string {
  if (distance < MINUTE) return `${Math.round(distance / SECOND)} s`
  if (distance < HOUR) return `${Math.floor(distance / MINUTE)} min`
  if (distance < DAY) return `${Math.floor(distance / HOUR)} h`
  const days = Math.floor(distance / DAY)
  return days === 1 ? '1 day' : `${days} days`
}

function formatDate(at: Date): string {
  return at.toLocaleDateString('en-GB', { day: 'numeric', month: 'short', year: 'numeric', timeZone: 'UTC' })
}

/** `30 Nov 2026, 14:02:11 UTC` */
export function formatAbsolute(at: Date): string {
  return `${formatDate(at)}, ${at.toISOString().slice(11, 19)} UTC`
}

/** Made once: `toLocaleDateString` makes one for each call, a hundred times slower than the whole rest of a row. */
const DATES = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric', timeZone: 'UTC' })
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
  return at <= now ? `${formatAmount(distance)} ago` : `in ${formatAmount(distance)}`
}

/** In the largest unit of which there is a whole one, to the nearest: 14 min 58 s are 15 min. */
function formatAmount(distance: number): string {
  if (distance < MINUTE - SECOND / 2) return `${Math.round(distance / SECOND)} s`
  if (distance < HOUR - MINUTE / 2) return `${Math.round(distance / MINUTE)} min`
  if (distance < DAY - HOUR / 2) return `${Math.round(distance / HOUR)} h`
  const days = Math.round(distance / DAY)
  return days === 1 ? '1 day' : `${days} days`
}

function formatDate(at: Date): string {
  return DATES.format(at)
}

/** `30 Nov 2026, 14:02:11 UTC` */
export function formatAbsolute(at: Date): string {
  return `${formatDate(at)}, ${at.toISOString().slice(11, 19)} UTC`
}

import type { ScopeObserver } from '../db/scope.ts'
import type { FoundWake, Wake, WakeObserver } from '../wakes/bus.ts'
import type { Metrics, WakeSource } from './metrics.ts'

/** A message gets its id and its time by the same clock, one after the other. */
const HELD_MS = 1_000

interface Log {
  debug(details: object, message: string): void
  isLevelEnabled(level: string): boolean
}

/**
 * Counts what happens to wakes and says it in the log, under the trace of the request that sent them: ids and counts, never a
 * name or a text. At `debug`, for there is a line for each wake.
 */
export function observeWakes(metrics: Metrics | null, log: Log): WakeObserver {
  return {
    came: (wake, isOwn) => metrics?.wakeCame(sourceOf(wake, isOwn)),
    taken(wake) {
      metrics?.wakeTaken()
      if (log.isLevelEnabled('debug')) log.debug(describe(wake), 'wake taken by a waiting call')
    },
    delivered(wake, sockets) {
      const source = sourceOf(wake, !wake.origin?.isPeers)
      metrics?.wakeDelivered(source, sockets, delayOf(wake))
      if (log.isLevelEnabled('debug')) log.debug({ ...describe(wake), sockets }, 'wake delivered to sockets')
    },
  }
}

/** The same for what the calls of agents come to. */
export function observeScopes(metrics: Metrics | null, log: Log): ScopeObserver {
  return {
    settled({ outcome, message_id, replayed, wakes }, trace) {
      if (outcome !== 'sent') return
      metrics?.sent(replayed ? 'replayed' : wakes && wakes.length > 0 ? 'woke' : 'quiet')
      if (!log.isLevelEnabled('debug')) return
      log.debug({ trace, message_id, replayed, wakes: wakes?.length ?? 0 }, 'message stored')
    },
    toolCalled(tool, outcome, milliseconds) {
      metrics?.toolCalled(tool, outcome, milliseconds)
      if (outcome !== 'ok') metrics?.refused('tool', outcome)
    },
  }
}

function describe(wake: Wake | FoundWake): object {
  return { trace: wake.origin?.trace, message_id: wake.id }
}

/** What came due long after it was made was held, and nobody has missed it. */
function sourceOf(wake: Wake | FoundWake, isOwn: boolean): WakeSource {
  if (!('wakeAt' in wake)) return isOwn ? 'send' : 'peer'
  const heldMs = Date.parse(wake.wakeAt) - timeOf(wake.id)
  return wake.isRepeated || wake.kind === 'expired' || heldMs > HELD_MS ? 'due' : 'read_back'
}

/** Of a UUIDv7 (RFC 9562, section 5.7): its first 48 bits are milliseconds of Unix time. */
function timeOf(id: string): number {
  return Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16)
}

/** In ms; null: not known. Clocks of two machines differ: what seems to come before it was sent came at once. */
function delayOf(wake: Wake | FoundWake): number | null {
  const since = 'wakeAt' in wake ? Date.parse(wake.wakeAt) : wake.origin?.at
  if (since === undefined || Number.isNaN(since)) return null
  return Math.max(0, Date.now() - since)
}

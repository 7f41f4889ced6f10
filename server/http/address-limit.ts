import { isIPv6 } from 'node:net'

const WINDOW_MS = 60_000
/** Addresses that are remembered at most: a flood from more of them forgets the oldest. */
const ADDRESSES_MAX = 10_000
/** One JSON escape (`\ud83d\ude00`) for each character, the longest that a message can be on the wire. */
const BYTES_PER_CHARACTER = 12
const ENVELOPE_BYTES = 64 * 1024

/** The largest body that can hold a message of so many characters, however it is escaped. */
export function bodyBytesMax(bodyCharactersMax: number): number {
  return bodyCharactersMax * BYTES_PER_CHARACTER + ENVELOPE_BYTES
}

export interface AddressLimiter {
  /** Counts one request. Seconds until the address may come again, or null while it is within its limit. */
  hit(address: string): number | null
  /** Whether the next request will be over the limit. */
  isSpent(address: string): boolean
}

/** So many requests of an address in a minute that starts with its first one; `now` is in milliseconds. */
export function createAddressLimiter(perMinute: number, now: () => number = () => performance.now()): AddressLimiter {
  const windows = new Map<string, { since: number; count: number }>()
  return {
    hit(address) {
      const key = groupAddress(address)
      const at = now()
      let window = windows.get(key)
      if (!window || at - window.since >= WINDOW_MS) {
        windows.delete(key)
        window = { since: at, count: 0 }
        windows.set(key, window)
        forgetOldest(windows)
      }
      window.count++
      return window.count <= perMinute ? null : Math.max(1, Math.ceil((window.since + WINDOW_MS - at) / 1000))
    },
    isSpent(address) {
      const window = windows.get(groupAddress(address))
      return window !== undefined && window.count >= perMinute && now() - window.since < WINDOW_MS
    },
  }
}

function forgetOldest(windows: Map<string, unknown>): void {
  if (windows.size <= ADDRESSES_MAX) return
  for (const key of windows.keys()) {
    windows.delete(key)
    return
  }
}

/** Whoever has one IPv6 address has its whole /64; an IPv4 address may come written as IPv6. */
function groupAddress(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1]
  if (mapped) return mapped
  if (!isIPv6(address)) return address
  const [head = '', tail] = (address.split('%')[0] ?? '').split('::', 2)
  const left = head === '' ? [] : head.split(':')
  const right = tail ? tail.split(':') : []
  const gap = tail === undefined ? [] : Array<string>(Math.max(0, 8 - left.length - right.length)).fill('0')
  return [...left, ...gap, ...right].slice(0, 4).join(':')
}

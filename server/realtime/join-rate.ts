const BURST = 100
const PER_SECOND = 5
/** After this long without a join a bucket is full again, and need not be kept. */
const FULL_AFTER_MS = (BURST / PER_SECOND) * 1000

/** Joins of each API token over all of its sockets, so that a new socket is no new allowance. */
export interface JoinRate {
  /** One join of the token; false: it has none left now. */
  take(tokenId: string): boolean
  isSpent(tokenId: string): boolean
}

export function createJoinRate(now: () => number = () => performance.now()): JoinRate {
  /** In the order of the last join. */
  const buckets = new Map<string, { spent: number; at: number }>()

  function spentOf(tokenId: string): number {
    const bucket = buckets.get(tokenId)
    return bucket ? Math.max(0, bucket.spent - ((now() - bucket.at) / 1000) * PER_SECOND) : 0
  }

  return {
    take(tokenId) {
      const spent = spentOf(tokenId)
      if (spent + 1 > BURST) return false
      buckets.delete(tokenId)
      buckets.set(tokenId, { spent: spent + 1, at: now() })
      for (const [old, { at }] of buckets) {
        if (now() - at < FULL_AFTER_MS) break
        buckets.delete(old)
      }
      return true
    },
    isSpent: (tokenId) => spentOf(tokenId) + 1 > BURST,
  }
}

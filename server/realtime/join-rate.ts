/** Joins of each API token over all of its sockets, so that a new socket is no new allowance. */
export interface JoinRate {
  /** One join of the token; false: it has none left now. */
  take(tokenId: string): boolean
  isSpent(tokenId: string): boolean
}

export interface JoinLimits {
  /** Joins of one token at once. */
  burst: number
  perSecond: number
}

export const JOIN_LIMITS: JoinLimits = { burst: 100, perSecond: 5 }

export function createJoinRate(limits = JOIN_LIMITS, now = () => performance.now()): JoinRate {
  const { burst, perSecond } = limits
  /** After this long without a join a bucket is full again, and need not be kept. */
  const fullAfterMs = (burst / perSecond) * 1000
  /** In the order of the last join. */
  const buckets = new Map<string, { spent: number; at: number }>()

  function spentOf(tokenId: string): number {
    const bucket = buckets.get(tokenId)
    return bucket ? Math.max(0, bucket.spent - ((now() - bucket.at) / 1000) * perSecond) : 0
  }

  return {
    take(tokenId) {
      const spent = spentOf(tokenId)
      if (spent + 1 > burst) return false
      buckets.delete(tokenId)
      buckets.set(tokenId, { spent: spent + 1, at: now() })
      for (const [old, { at }] of buckets) {
        if (now() - at < fullAfterMs) break
        buckets.delete(old)
      }
      return true
    },
    isSpent: (tokenId) => spentOf(tokenId) + 1 > burst,
  }
}

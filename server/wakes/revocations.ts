const INTERVAL_MS = 500
/** A ticket lives for 600 s, clocks may be apart by a minute, and a commit may come 2 s later than its time stamp. */
const LOOK_BACK_SECONDS = 662

/** What hangs on tokens on this instance: the sockets of the realtime hub, the waits of `wait_for_message`. */
export interface TokenHolder {
  tokenIds(): Iterable<string>
  /**
   * Ends what these tokens hold. `before` (as performance.now() counts): only what was there by then, since the token goes
   * on; without it, for good.
   */
  closeTokens(tokenIds: string[], before?: number): void
}

export interface RevocationsOptions {
  holders: TokenHolder[]
  /** Tokens that ended in the last `seconds`; renamedSecondsAgo is null unless the token goes on under another name. */
  listRecent: (seconds: number) => Promise<{ tokenId: string; renamedSecondsAgo: number | null }[]>
  log: { warn(details: object, message: string): void }
}

/**
 * Ends the sockets and waits of revoked tokens within a second, whichever process revoked them. It reads state, so it needs
 * no LISTEN and misses nothing while the database is away; while nothing hangs on a token here it asks nothing.
 */
export function startRevocations(options: RevocationsOptions): { close(): Promise<void> } {
  const { holders, listRecent, log } = options
  let running: Promise<void> | null = null

  async function check(): Promise<void> {
    if (!holders.some(holdsAny)) return
    try {
      const askedAt = performance.now()
      const recent = await listRecent(LOOK_BACK_SECONDS)
      const ended = recent.filter((each) => each.renamedSecondsAgo === null).map((each) => each.tokenId)
      for (const holder of holders) {
        holder.closeTokens(ended)
        for (const { tokenId, renamedSecondsAgo } of recent) {
          if (renamedSecondsAgo !== null) holder.closeTokens([tokenId], askedAt - renamedSecondsAgo * 1000)
        }
      }
    } catch (error) {
      log.warn({ err: error }, 'recent revocations could not be read; the next try covers the same time')
    }
  }

  const timer = setInterval(() => {
    running ??= check().finally(() => {
      running = null
    })
  }, INTERVAL_MS)
  return {
    async close() {
      clearInterval(timer)
      await running
    },
  }
}

function holdsAny(holder: TokenHolder): boolean {
  const [first] = holder.tokenIds()
  return first !== undefined
}

const INTERVAL_MS = 500
/** A ticket lives for 600 s, clocks may be apart by a minute, and a commit may come 2 s later than its time stamp. */
const LOOK_BACK_SECONDS = 662

/** Why a token is no longer good; `renamed`: it is, and its agent has another name. */
export type EndOfToken = 'revoked' | 'expired' | 'deleted' | 'renamed'

/** What hangs on tokens on this instance: the sockets of the realtime hub, the waits of `wait_for_message`. */
export interface TokenHolder {
  tokenIds(): Iterable<string>
  /**
   * Tokens that came with something signed, maybe hours ago: whether they are still good nobody has asked since. Each is
   * asked about once, and then `vouchFor` says so; from then on recent revocations are enough to know of its end.
   */
  unvouched?(): string[]
  vouchFor?(tokenIds: string[]): void
  /**
   * Ends what these tokens hold. `before` (as performance.now() counts): only what was there by then, since the token goes
   * on; without it, for good.
   */
  closeTokens(tokenIds: string[], before?: number, reason?: EndOfToken): void
}

export interface EndedToken {
  tokenId: string
  reason: EndOfToken
  renamedSecondsAgo: number | null
}

export interface RevocationsOptions {
  holders: TokenHolder[]
  /** Tokens that ended in the last `seconds`, and those of `tokenIds` that ever did; renamedSecondsAgo is null unless renamed. */
  listRecent: (seconds: number, tokenIds: string[]) => Promise<EndedToken[]>
  log: { warn(details: object, message: string): void }
  /** Told how each look at the database went. */
  ran?: (isOk: boolean) => void
}

/**
 * Ends the sockets and waits of revoked tokens within a second, whichever process revoked them. It reads state, so it needs
 * no LISTEN and misses nothing while the database is away; while nothing hangs on a token here it asks nothing.
 */
export function startRevocations(options: RevocationsOptions): { close(): Promise<void> } {
  const { holders, listRecent, log, ran } = options
  /** By the wall clock, which goes on while a machine sleeps. */
  let lastSuccess = Date.now()
  let running: Promise<void> | null = null

  async function check(): Promise<void> {
    const [askedAt, startedAt] = [performance.now(), Date.now()]
    if (!holders.some(holdsAny)) {
      lastSuccess = startedAt
      return
    }
    const asked = holders.map((holder) => holder.unvouched?.() ?? [])
    try {
      const seconds = LOOK_BACK_SECONDS + Math.max(0, startedAt - lastSuccess) / 1000
      const recent = await listRecent(seconds, asked.flat())
      for (const [index, holder] of holders.entries()) {
        close(holder, recent, askedAt)
        holder.vouchFor?.(asked[index] ?? [])
      }
      lastSuccess = startedAt
      ran?.(true)
    } catch (error) {
      ran?.(false)
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

function close(holder: TokenHolder, ended: EndedToken[], askedAt: number): void {
  for (const reason of ['revoked', 'expired', 'deleted'] as const) {
    const tokenIds = ended.filter((each) => each.reason === reason).map((each) => each.tokenId)
    if (tokenIds.length > 0) holder.closeTokens(tokenIds, undefined, reason)
  }
  for (const { tokenId, renamedSecondsAgo } of ended) {
    if (renamedSecondsAgo !== null) holder.closeTokens([tokenId], askedAt - renamedSecondsAgo * 1000, 'renamed')
  }
}

function holdsAny(holder: TokenHolder): boolean {
  const [first] = holder.tokenIds()
  return first !== undefined
}

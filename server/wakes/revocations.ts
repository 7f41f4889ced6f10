const INTERVAL_MS = 500
/** Overlap for a commit that comes later than its time stamp. */
const OVERLAP_SECONDS = 12

/** Where sockets hang on tokens: the realtime hub. */
export interface TokenSockets {
  tokenIds(): Iterable<string>
  closeTokens(tokenIds: string[]): void
}

export interface RevocationsOptions {
  sockets: TokenSockets
  /** Ids of the tokens revoked in the last `seconds`. */
  listRecent: (seconds: number) => Promise<string[]>
  log: { warn(details: object, message: string): void }
}

/** Closes the sockets of revoked tokens within a second, whichever process revoked them. Asks nothing while there are no sockets. */
export function startRevocations(options: RevocationsOptions): { close(): Promise<void> } {
  const { sockets, listRecent, log } = options
  let lastSuccess = performance.now()
  let running: Promise<void> | null = null

  async function check(): Promise<void> {
    const startedAt = performance.now()
    const open = new Set(sockets.tokenIds())
    try {
      if (open.size > 0) {
        const revoked = await listRecent((startedAt - lastSuccess) / 1000 + OVERLAP_SECONDS)
        const closing = revoked.filter((id) => open.has(id))
        if (closing.length > 0) sockets.closeTokens(closing)
      }
      lastSuccess = startedAt
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

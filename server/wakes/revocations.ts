const INTERVAL_MS = 500
/** As long as a ticket of a revoked token can still be used, and some room for a commit later than its time stamp. */
const LOOK_BACK_SECONDS = 660

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
  let running: Promise<void> | null = null

  async function check(): Promise<void> {
    const [anySocket] = sockets.tokenIds()
    if (anySocket === undefined) return
    try {
      sockets.closeTokens(await listRecent(LOOK_BACK_SECONDS))
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

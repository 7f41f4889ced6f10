/** The public error codes: add, never rename. Each protocol has one mapping; this is the HTTP one. */
export const HTTP_STATUS = {
  invalid: 400,
  token_missing: 401,
  token_rejected: 401,
  signed_out: 401,
  token_revoked: 403,
  forbidden: 403,
  not_found: 404,
  agent_gone: 404,
  conflict: 409,
  gated: 409,
  paused: 409,
  too_large: 413,
  unsupported_media_type: 415,
  misdirected: 421,
  inbox_full: 429,
  rate_limited: 429,
  internal: 500,
  realtime_not_configured: 501,
  unavailable: 503,
} as const

export type ErrorCode = keyof typeof HTTP_STATUS

export interface ErrorExtras {
  /** What the caller can do next, in one sentence. */
  hint?: string
  /** For 429 and 503: whole seconds until another try makes sense. */
  retryAfterSeconds?: number
  /** Facts that belong to the error, such as the messages that closed the gate. JSON types only. */
  details?: Record<string, unknown>
  cause?: unknown
}

/** The one error type of the server: everything that a caller may be told travels as this; anything else is `internal`. */
export class PatchcordError extends Error {
  override readonly name = 'PatchcordError'
  readonly code: ErrorCode
  readonly hint: string | undefined
  readonly retryAfterSeconds: number | undefined
  readonly details: Record<string, unknown> | undefined

  constructor(code: ErrorCode, message: string, extras: ErrorExtras = {}) {
    super(message, extras.cause === undefined ? undefined : { cause: extras.cause })
    this.code = code
    this.hint = extras.hint
    this.retryAfterSeconds = extras.retryAfterSeconds
    this.details = extras.details
  }

  get status(): number {
    return HTTP_STATUS[this.code]
  }
}

/** A start that cannot succeed: the message is the one sentence that is printed before exit 1. */
export class StartError extends Error {
  override readonly name = 'StartError'
}

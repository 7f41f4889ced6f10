/** The exit codes of the command: what a script can tell apart. */
export const EXIT = { ok: 0, error: 1, timedOut: 2, offline: 3, notAuthorised: 4 } as const

export interface CommandErrorExtras {
  /** What to do next, in one sentence. */
  hint?: string | undefined
  exit?: number
  /** Facts that belong to the error, as the server gave them. */
  details?: Record<string, unknown> | undefined
  cause?: unknown
}

/** What a person or a script is told, with the exit code. Everything else that is thrown is a defect of ours. */
export class CommandError extends Error {
  override readonly name = 'CommandError'
  readonly code: string
  readonly hint: string | undefined
  readonly exit: number
  readonly details: Record<string, unknown> | undefined

  constructor(code: string, message: string, extras: CommandErrorExtras = {}) {
    super(message, extras.cause === undefined ? undefined : { cause: extras.cause })
    this.code = code
    this.hint = extras.hint
    this.exit = extras.exit ?? EXIT.error
    this.details = extras.details
  }
}

/** A command line that says something else than the verb understands. */
export function usageError(message: string, hint = 'patchcord help VERB shows how a verb is used.'): CommandError {
  return new CommandError('usage', message, { hint })
}

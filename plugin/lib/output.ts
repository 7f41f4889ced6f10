import { CommandError } from './errors.ts'
import { cleanText, createFrame, type Frame, toSafeJson } from './frame.ts'

/** The only writer of stdout: lines for people, or one JSON document with `--json`. */
export interface Output {
  isJson: boolean
  /** stdout is a terminal: a person reads it. */
  isTerminal: boolean
  /** For what other agents wrote. */
  frame: Frame
  print(lines: string[], json: unknown): void
  /** For people, on stderr, never mixed into the answer. */
  note(line: string): void
  fail(error: unknown): number
}

export interface OutputOptions {
  isJson: boolean
  stdout: { write(text: string): unknown; isTTY?: boolean }
  stderr: { write(text: string): unknown }
}

export function createOutput({ isJson, stdout, stderr }: OutputOptions): Output {
  const isTerminal = stdout.isTTY === true
  return {
    isJson,
    isTerminal,
    frame: createFrame(isTerminal),
    print(lines, json) {
      if (isJson) stdout.write(`${toSafeJson(json)}\n`)
      else if (lines.length > 0) stdout.write(`${lines.map((line) => cleanText(line).text).join('\n')}\n`)
    },
    note: (line) => void stderr.write(`${cleanText(line).text}\n`),
    fail(thrown) {
      const error = toCommandError(thrown)
      const { code, message, hint, details, exit } = error
      const facts = {
        code,
        message,
        ...(hint === undefined ? {} : { hint }),
        ...(details === undefined ? {} : { details }),
      }
      if (isJson) stdout.write(`${toSafeJson({ error: facts })}\n`)
      else stderr.write(`patchcord: ${cleanText([message, ...(hint === undefined ? [] : [hint])].join(' ')).text}\n`)
      return exit
    },
  }
}

function toCommandError(thrown: unknown): CommandError {
  if (thrown instanceof CommandError) return thrown
  const { code, message } = thrown as { code?: unknown; message?: unknown }
  // What the system refuses (EACCES, ENOSPC, …) names its file; anything else is a defect, which its stack explains.
  if (typeof code === 'string' && /^E[A-Z]+$/.test(code)) {
    return new CommandError('system', `${message}.`, { hint: 'Nothing else was changed.', cause: thrown })
  }
  return new CommandError('internal', `This is a defect: ${thrown instanceof Error ? thrown.stack : String(thrown)}`, {
    hint: 'Please report it.',
    cause: thrown,
  })
}

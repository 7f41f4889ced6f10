import type { z } from 'zod'
import type { Identity, Scope } from '../db/scope.ts'
import type { InboxMessage } from '../domain/inbox.ts'
import { suggestNames } from '../domain/names.ts'
import { type ErrorCode, PatchcordError } from '../errors.ts'
import type { Waiters } from '../wakes/waiters.ts'
import { cleanLabel, cleanText, createFence } from './fence.ts'
import { protect } from './fence-answer.ts'
import { describeMessage } from './lines.ts'
import { compact } from './schema.ts'

/** Arguments that had another name once. */
const RENAMED: Record<string, string> = { to_agent: 'to', from_agent: 'from' }

export interface Caller {
  scope: Scope
  me: Identity
  waiters: Waiters
  /** The User-Agent, to speak of what exists there; '' where there is none. */
  userAgent: string
  /** Aborted when the client is gone. */
  signal: AbortSignal
}

export interface Annotations {
  readOnlyHint: boolean
  destructiveHint: boolean
  idempotentHint: boolean
  openWorldHint: boolean
}

/** A tool as data. `run` is the domain's function; `facts` is the part of its answer that is told, by default all of it. */
export interface Tool<I extends z.ZodObject = z.ZodObject, O = unknown, F extends z.ZodObject = z.ZodObject> {
  name: string
  title: string
  description: string
  input: I
  output: F
  annotations: Annotations
  /** For clients that load tools only when they are searched for: this one stands ready. */
  isAlwaysLoaded?: boolean
  /** Its answer may take minutes: the response streams from the first second on. */
  isLong?: boolean
  run(scope: Scope, input: z.output<I>, caller: Caller): Promise<O>
  facts?(answer: O): z.input<F>
  /**
   * The answer as lines of text, from facts whose texts are fenced already. The first line is the summary: it stands in the
   * structured content too, because some clients show their model only that.
   */
  render(facts: z.input<F>, view: View): string[]
}

export interface View {
  me: Identity
  userAgent: string
  nowMs: number
}

/** What a call comes to, as MCP has it. */
export interface ToolAnswer extends Record<string, unknown> {
  content: { type: 'text'; text: string }[]
  structuredContent?: Record<string, unknown>
  isError?: true
  _meta?: Record<string, unknown>
}

export interface ToolLog {
  error(facts: object, message: string): void
  warn(facts: object, message: string): void
}

/** Keeps the types of one tool together; the list of tools forgets them. */
export function defineTool<I extends z.ZodObject, O, F extends z.ZodObject>(tool: Tool<I, O, F>): Tool {
  return tool as unknown as Tool
}

/** One call. Whatever goes wrong is an answer that a model can read; only a PatchcordError's own text is in it. */
export async function callTool(tool: Tool, args: unknown, caller: Caller, log: ToolLog): Promise<ToolAnswer> {
  const { me, userAgent } = caller
  const startedAt = performance.now()
  const note = (outcome: 'ok' | ErrorCode) =>
    caller.scope.observer?.toolCalled(tool.name, outcome, performance.now() - startedAt)
  try {
    const answer = await tool.run(caller.scope, parseInput(tool, args), caller)
    const told = (tool.facts?.(answer) ?? answer) as Record<string, unknown>
    const facts = protect(told, createFence(), me.namespace)
    const lines = tool.render(facts, { me, userAgent, nowMs: Date.now() })
    note('ok')
    return {
      content: [{ type: 'text', text: lines.join('\n') }],
      structuredContent: { summary: lines[0] ?? '', ...(compact(facts) as object) },
    }
  } catch (error) {
    note(error instanceof PatchcordError ? error.code : 'internal')
    return describeError(tool, error, caller, log)
  }
}

function parseInput(tool: Tool, args: unknown): Record<string, unknown> {
  const parsed = tool.input.safeParse(args ?? {})
  if (parsed.success) return parsed.data
  const known = Object.keys(tool.input.shape)
  // Under a wrong name an argument is missing too: the name is what helps.
  const unknown = parsed.error.issues.filter(({ code }) => code === 'unrecognized_keys')
  const issues = unknown.length > 0 ? unknown : parsed.error.issues
  const sentences = issues.map((issue) => describeIssue(issue, known))
  throw new PatchcordError('invalid', `${tool.name}: ${sentences.map(({ message }) => message).join(' ')}`, {
    hint: [...new Set(sentences.map(({ hint }) => hint))].join(' '),
  })
}

function describeIssue(issue: z.core.$ZodIssue, known: string[]): { message: string; hint: string } {
  const all = `Arguments: ${known.join(', ')}.`
  if (issue.code !== 'unrecognized_keys') {
    const path = issue.path.join('.')
    return { message: path ? `${path}: ${issue.message}.` : `${issue.message}.`, hint: all }
  }
  const names = issue.keys.map((key) => `"${cleanLabel(key)}"`).join(', ')
  const right = issue.keys.map((key) => {
    const renamed = RENAMED[key]
    return renamed && known.includes(renamed) ? renamed : suggestNames(key, known)[0]
  })
  const hints = issue.keys.flatMap((key, index) =>
    right[index] ? [`"${cleanLabel(key)}" is "${right[index]}" here.`] : [],
  )
  return {
    message: `Unknown argument${issue.keys.length > 1 ? 's' : ''} ${names}.`,
    hint: hints.length > 0 ? hints.join(' ') : all,
  }
}

function describeError(tool: Tool, thrown: unknown, { me, scope: { trace } }: Caller, log: ToolLog): ToolAnswer {
  if (!(thrown instanceof PatchcordError)) {
    log.error({ err: thrown, tool: tool.name, trace }, 'a tool failed')
    const hint = 'What came of it is not known: inbox and recall show what is stored.'
    return toErrorAnswer(
      new PatchcordError('internal', 'The server failed on this call and has logged why.', { hint }),
      [],
    )
  }
  if (thrown.cause !== undefined) log.warn({ err: thrown.cause, tool: tool.name, trace }, 'a tool could not be served')
  const messages = (thrown.details?.messages ?? []) as InboxMessage[]
  const fenced = protect(messages, createFence(), me.namespace)
  return toErrorAnswer(
    thrown,
    fenced.flatMap((message) => ['', ...describeMessage(message, Date.now())]),
  )
}

/** The code stands in `_meta`: structured content of an error would have to match the output schema in older clients. */
function toErrorAnswer({ code, message, hint, retryAfterSeconds }: PatchcordError, lines: string[]): ToolAnswer {
  const retry = retryAfterSeconds === undefined ? [] : [`Retry after ${retryAfterSeconds} s.`]
  const text = [
    [message, ...(hint ? [hint] : []), ...retry].map((sentence) => cleanText(sentence).text).join(' '),
    ...lines,
  ].join('\n')
  return {
    isError: true,
    content: [{ type: 'text', text }],
    _meta: {
      'patchcord/error': {
        code,
        message,
        ...(hint !== undefined && { hint }),
        ...(retryAfterSeconds !== undefined && { retry_after_seconds: retryAfterSeconds }),
      },
    },
  }
}

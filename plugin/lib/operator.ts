import { text } from 'node:stream/consumers'
import { CommandError, usageError } from './errors.ts'
import { findNearest } from './nearest.ts'
import { findProgram, startProgram, waitForEnd } from './programs.ts'
import type { Invocation, Verb } from './verb.ts'

/** What an action is called in the operator's program, with the arguments that it takes. */
export interface Action {
  command: string
  arguments: string[]
  options?: string[]
}

/** `patchcord agent list acme` is the operator's program with `list-agents acme`. */
export function operatorVerb(noun: string, summary: string, actions: Record<string, Action>): Verb {
  const usages = Object.entries(actions).map(([name, { arguments: args, options = [] }]) =>
    [`patchcord ${noun} ${name}`, ...args, ...options.map((option) => `[${option}]`)].join(' '),
  )
  return {
    help: `${usages.join('\n       ')}

${summary} For operators: works on the database of DATABASE_ADMIN_URL, or else on the data folder (PATCHCORD_DATA_DIR) of a
running server.`,
    options: { label: { type: 'string' }, 'expires-in': { type: 'string' }, overlap: { type: 'string' } },
    arity: [0, 4],
    run: (invocation) => runAction(noun, usages, actions, invocation),
  }
}

async function runAction(
  noun: string,
  usages: string[],
  actions: Record<string, Action>,
  invocation: Invocation,
): Promise<number> {
  const [name = '', ...args] = invocation.arguments
  const action = Object.hasOwn(actions, name) ? actions[name] : undefined
  if (!action) {
    const nearest = findNearest(name, Object.keys(actions))
    const hint = nearest === null ? usages.join(' · ') : `Did you mean patchcord ${noun} ${nearest}?`
    throw usageError(
      name === '' ? `patchcord ${noun} needs an action.` : `There is no patchcord ${noun} ${name}.`,
      hint,
    )
  }
  if (args.length !== action.arguments.length) {
    throw usageError(`patchcord ${noun} ${name} takes ${action.arguments.join(' ') || 'no arguments'}.`)
  }
  const options = ['label', 'expires-in', 'overlap'].flatMap((option) => readOption(option, action, invocation))
  return await runOperator([action.command, ...args, ...options], invocation)
}

function readOption(name: string, { options = [] }: Action, { options: values }: Invocation): string[] {
  const value = values[name]
  if (value === undefined) return []
  if (options.some((option) => option.startsWith(`--${name} `))) return [`--${name}`, String(value)]
  throw usageError(`--${name} does not belong here.`)
}

/** stdout is passed on as it is: a token or a link stands there alone. What it says to people names our verbs instead of its own. */
export async function runOperator(args: string[], { environment, output }: Invocation): Promise<number> {
  const flags = output.isJson ? ['--json'] : []
  const stdio = ['ignore', 'pipe', 'pipe'] as const
  const child = startProgram(findProgram('dist/server/admin.js'), [...args, ...flags], environment.forChild(), stdio)
  const [stdout, stderr, code] = await Promise.all([
    text(child.stdout as NodeJS.ReadableStream),
    text(child.stderr as NodeJS.ReadableStream),
    waitForEnd(child),
  ])
  const said = useOurVerbs(stderr).trimEnd()
  if (output.isJson) {
    output.print([], parseAnswer(stdout, said))
    return code
  }
  if (stdout !== '') output.print([stdout.trimEnd()], null)
  if (said !== '') output.note(code === 0 ? said : `patchcord: ${said}`)
  return code
}

function parseAnswer(stdout: string, said: string): unknown {
  try {
    return JSON.parse(useOurVerbs(stdout))
  } catch (error) {
    throw new CommandError('operator', said === '' ? "The operator's program gave no answer." : said, {
      hint: 'Try again without --json.',
      cause: error,
    })
  }
}

function useOurVerbs(words: string): string {
  return words
    .replaceAll(/\b(create|list|rename)-(namespace|agent|token)s?\b/g, 'patchcord $2 $1')
    .replaceAll(/\bissue-token\b/g, 'patchcord token create')
    .replaceAll(/\b(revoke|rotate)-token\b/g, 'patchcord token $1')
}

#!/usr/bin/env node
import { parseArgs } from 'node:util'
import { readEnvironment } from '../env.ts'
import { type CommandError, EXIT, usageError } from '../lib/errors.ts'
import { findNearest } from '../lib/nearest.ts'
import { createOutput, type Output } from '../lib/output.ts'
import { readVersion } from '../lib/programs.ts'
import type { Verb } from '../lib/verb.ts'

interface Entry {
  summary: string
  /** Loaded when it is called: help must not wait for libraries that it does not need. */
  load(): Promise<{ verb: Verb }>
}

const VERBS: Record<string, Entry> = {
  serve: { summary: 'run the server', load: () => import('./serve.ts') },
  'login-link': { summary: 'print a link to the dashboard: for operators', load: () => import('./login-link.ts') },
  namespace: { summary: 'create, list, rename: for operators', load: () => import('./namespace.ts') },
  agent: { summary: 'create, list, rename: for operators', load: () => import('./agent.ts') },
  token: { summary: 'create, list, rotate, revoke: for operators', load: () => import('./token.ts') },
  connect: { summary: 'make this folder an agent of a server', load: () => import('./connect.ts') },
  disconnect: { summary: 'undo connect', load: () => import('./disconnect.ts') },
  send: { summary: 'send a message', load: () => import('./send.ts') },
  ask: { summary: 'send a question and wait for the answer', load: () => import('./ask.ts') },
  wait: { summary: 'wait for the next new message', load: () => import('./wait.ts') },
  reply: { summary: 'answer, defer or resolve a message', load: () => import('./reply.ts') },
  inbox: { summary: 'show new messages', load: () => import('./inbox.ts') },
  recall: { summary: 'show messages of before', load: () => import('./recall.ts') },
  who: { summary: 'show the agents here', load: () => import('./who.ts') },
  status: { summary: 'show how far a message got', load: () => import('./status.ts') },
  watch: { summary: 'print a line for each wake', load: () => import('./watch.ts') },
  mcp: { summary: 'speak MCP on stdin and stdout, for hosts that can send no headers', load: () => import('./mcp.ts') },
}

const COMMON = { json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } } as const

function describeAll(): string {
  const lines = Object.entries(VERBS).map(([name, { summary }]) => `  ${name.padEnd(11)}${summary}`)
  return `Usage: patchcord VERB [arguments] [--json]

Messages between coding agents. Who you are is in PATCHCORD_URL and PATCHCORD_TOKEN, or in .mcp.json of this folder or one
above it, up to the repository's root (patchcord connect writes it); --as AGENT@NAMESPACE where there are several.

${lines.join('\n')}

  patchcord help VERB shows more. Exit codes: 0 ok, 1 error, 2 timed out, 3 offline (with --online-only), 4 not authorised.`
}

async function run(args: string[], output: Output): Promise<number> {
  const [first, ...rest] = args.filter((arg) => arg !== '--json')
  if (first === undefined || first === 'help' || first === '--help' || first === '-h')
    return await help(rest[0], output, first)
  if (first === '--version' || first === '-v') {
    output.print([readVersion()], { version: readVersion() })
    return EXIT.ok
  }
  const verb = await loadVerb(first)
  const { values, positionals } = parse(verb, args.slice(args.indexOf(first) + 1))
  if (values.help === true) return await help(first, output, first)
  const [min, max] = verb.arity
  if (positionals.length < min || positionals.length > max) {
    throw usageError(`Usage: ${verb.help.split('\n', 1)[0]}`, `patchcord help ${first} shows more.`)
  }
  const invocation = {
    environment: readEnvironment(),
    folder: process.cwd(),
    options: values,
    arguments: positionals,
    output,
  }
  return await verb.run(invocation)
}

async function help(name: string | undefined, output: Output, asked: string | undefined): Promise<number> {
  const text = name === undefined ? describeAll() : `Usage: ${(await loadVerb(name)).help}`
  output.print([text], { help: text })
  return asked === undefined ? EXIT.error : EXIT.ok
}

async function loadVerb(name: string): Promise<Verb> {
  const entry = Object.hasOwn(VERBS, name) ? VERBS[name] : undefined
  if (entry) return (await entry.load()).verb
  throw unknownVerb(name)
}

function unknownVerb(name: string): CommandError {
  const nearest = findNearest(name, Object.keys(VERBS))
  const hint = nearest === null ? 'patchcord help lists the verbs.' : `Did you mean patchcord ${nearest}?`
  return usageError(`There is no verb "${name.slice(0, 40)}".`, hint)
}

function parse(verb: Verb, args: string[]) {
  refuseTokens(args)
  try {
    return parseArgs({ args, allowPositionals: true, options: { ...COMMON, ...verb.options } })
  } catch (error) {
    const [sentence = ''] = (error as Error).message.split(/\.\s/)
    throw usageError(`${sentence.replace(/\.$/, '')}.`, `Usage: ${verb.help.split('\n', 1)[0]}`)
  }
}

/** What stands in a command line stands in the shell's history and in every list of processes. */
function refuseTokens(args: string[]): void {
  if (!args.some((arg) => /(?:^|[^\w-])pc_[\w-]{40,}/.test(arg) || /^--token(?:=|$)/.test(arg))) return
  throw usageError(
    'A token does not belong into a command line: it is in the shell history and in the list of processes now.',
    'If it was a real one, rotate it (patchcord token rotate ID). Give it at the prompt, with --token-stdin, or in PATCHCORD_TOKEN.',
  )
}

/** A reader that stops reading (`| head`) ends us without a word. */
function endWithReader(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPIPE') throw error
  process.exit(process.exitCode ?? EXIT.error)
}

process.stdout.on('error', endWithReader)
process.stderr.on('error', endWithReader)
const commandLine = process.argv.slice(2)
const end = commandLine.indexOf('--')
const isJson = commandLine.slice(0, end === -1 ? undefined : end).includes('--json')
const output = createOutput({ isJson, stdout: process.stdout, stderr: process.stderr })
try {
  process.exitCode = await run(commandLine, output)
} catch (error) {
  process.exitCode = output.fail(error)
}

import { isRecord } from '../../scripts/lib/basics.cjs'
import { isTokenText, toTrustId } from '../../scripts/lib/identity.cjs'
import { parseBase } from '../../scripts/lib/mcp-json.cjs'
import { getWhoami, type Server, type Whoami } from '../lib/api.ts'
import { Connections, type Places } from '../lib/connections.ts'
import { readStdin } from '../lib/content.ts'
import { type Entry, type Planned, planEntry, planRules, readEntry } from '../lib/edits.ts'
import { CommandError, EXIT, usageError } from '../lib/errors.ts'
import { readBytes } from '../lib/files.ts'
import { cleanLabel } from '../lib/frame.ts'
import { askGit, NOT_ASKED } from '../lib/git.ts'
import { nameOf } from '../lib/identity.ts'
import { repeatWhenChanged } from '../lib/journal.ts'
import { describeNextSteps, describeWarnings } from '../lib/next-steps.ts'
import { listRules } from '../lib/permissions.ts'
import { planIgnoring, resolveInProject, resolveSettings } from '../lib/project.ts'
import { askSecret } from '../lib/prompt.ts'
import { type Invocation, textOption, type Verb } from '../lib/verb.ts'

const FILE = '.mcp.json'

export const verb: Verb = {
  help: `patchcord connect --server URL [--token-stdin] [--env NAME] [--allow] [--replace]

Makes this folder an agent of a server: asks for the agent's token (or takes it from stdin or PATCHCORD_TOKEN, or keeps the
one of this folder), checks it with the server, and only then writes ${FILE}, trusts this agent of the server, and keeps
${FILE} out of git. patchcord disconnect undoes it.

  --token-stdin  the token is on stdin
  --env NAME     ${FILE} names the variable NAME instead of holding the token
  --allow        also writes .claude/settings.local.json: Claude Code may use the tools and the listener without asking
  --replace      take the place of another server or agent in ${FILE}`,
  options: {
    server: { type: 'string' },
    env: { type: 'string' },
    'token-stdin': { type: 'boolean' },
    allow: { type: 'boolean' },
    replace: { type: 'boolean' },
  },
  arity: [0, 0],
  async run(invocation) {
    const { environment, options, output } = invocation
    if (environment.settings.isStartedByModel) throw notAPerson()
    const address = parseServer(textOption(options, 'server'))
    const named = parseVariable(textOption(options, 'env'))
    const { token, variable, who } = await authenticate(invocation, named, address)
    const server = { base: address.base, token }
    const url = `${address.base}/mcp/bearer`
    const authorization = `Bearer ${variable === null ? token : `\${${variable}}`}`
    const entry: Entry = { type: 'http', url, headers: { Authorization: authorization } }
    const done = await write(invocation, { server, origin: address.origin, who, entry, isLiteral: variable === null })
    const { agent, namespace } = who
    output.print(
      [
        `Connected as ${nameOf(who)} at ${address.base}.`,
        ...done.files.map((file) => `  wrote ${file}`),
        ...done.warnings,
        '',
        ...describeNextSteps({ url, variable, isAllowed: options.allow === true }),
      ],
      { agent, namespace, server: address.base, files: done.files, warnings: done.warnings },
    )
    return EXIT.ok
  },
}

/** Whoever a model asks in its own terminal, itself included, is nobody who gives anything. */
function notAPerson(): CommandError {
  return new CommandError('not_a_person', 'It takes a person to give trust and permissions. Nothing was changed.', {
    hint: 'Run it in a terminal of your own, not in a session of Claude Code or Codex.',
  })
}

interface Address {
  base: string
  origin: string
}

function parseServer(text: string | undefined): Address {
  if (text === undefined)
    throw usageError('connect needs --server URL.', 'The one who runs the server knows its address.')
  const base = parseBase(text)
  if (base !== null) return base
  throw usageError(
    `"${cleanLabel(text, 90)}" is not the address of a server.`,
    'It is https://…, or http://… for a server on this machine, without a login in it.',
  )
}

function parseVariable(name: string | undefined): string | null {
  if (name === undefined) return null
  if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) return name
  throw usageError('--env takes the name of an environment variable, such as PATCHCORD_TOKEN.')
}

/** Nothing is written for a token that opens nothing. Where the one of this folder has ended, a person is asked for the next. */
async function authenticate(
  invocation: Invocation,
  named: string | null,
  address: Address,
): Promise<Credential & { who: Whoami }> {
  const given = await readToken(invocation, named, address)
  try {
    return { ...given, who: await getWhoami({ base: address.base, token: given.token }) }
  } catch (error) {
    const isRefused = error instanceof CommandError && error.exit === EXIT.notAuthorised
    if (!isRefused || given.isKept !== true || given.variable !== null || process.stdin.isTTY !== true) throw error
    invocation.output.note(`patchcord: ${error.message} That is the token of this folder; give the new one.`)
    const token = checkToken(await promptForToken())
    return { token, variable: null, who: await getWhoami({ base: address.base, token }) }
  }
}

interface Credential {
  token: string
  /** It is the one that this folder was connected with. */
  isKept?: boolean
  /** The variable that .mcp.json names instead of holding the token. */
  variable: string | null
}

async function readToken(invocation: Invocation, variable: string | null, address: Address): Promise<Credential> {
  const { environment, options } = invocation
  const fromVariable = variable === null ? undefined : environment.lookup(variable)
  const given = options['token-stdin'] === true ? await readStdin() : (fromVariable ?? environment.token)
  const kept = given === undefined ? await findOwnToken(invocation, address) : null
  if (kept !== null) return { ...kept, isKept: true, variable: variable ?? kept.variable }
  return { token: checkToken(given ?? (await promptForToken())), variable }
}

function checkToken(text: string): string {
  const token = text.trim()
  if (isTokenText(token)) return token
  const problem = token === '' ? 'There is no token' : 'That is not a Patchcord token, or it is cut off or mistyped'
  throw new CommandError('token_rejected', `${problem}. Nothing was written.`, {
    hint: 'It starts with pc_ and is shown once, when it is created: patchcord token create AGENT@NAMESPACE.',
    exit: EXIT.notAuthorised,
  })
}

/** The token of a folder that connect has connected to this server: a file of somebody else's repository gives none. */
async function findOwnToken(invocation: Invocation, address: Address): Promise<Credential | null> {
  const { environment, folder } = invocation
  const connection = await Connections.use(placesOf(invocation), async (connections) => connections.find(folder))
  const url = `${address.base}/mcp/bearer`
  if (connection?.url !== url) return null
  const file = await resolveInProject(folder, FILE, environment)
  const entry = readEntry(file, await readBytes(file))
  const own = isRecord(entry) && entry.url === url ? readBearer(entry, invocation) : null
  // Somebody else may have put another token there since, as a pull does.
  const isRecorded = own !== null && toTrustId({ base: address.base, token: own.token }) === connection.trustId
  return isRecorded ? own : null
}

function placesOf({ environment, output }: Invocation): Places {
  const { configFolder, settings } = environment
  return { configFolder, trustFile: settings.trustFile, note: output.note }
}

async function promptForToken(): Promise<string> {
  if (process.stdin.isTTY !== true) {
    throw new CommandError('token_missing', 'There is no token.', {
      hint: 'Give it with --token-stdin or in PATCHCORD_TOKEN; at a terminal connect asks for it.',
      exit: EXIT.notAuthorised,
    })
  }
  const typed = await askSecret('Token of the agent (it is not shown): ', process.stdin, process.stderr)
  // What terminals put around a pasted text.
  return typed.replaceAll(/\[20[01]~/g, '').replaceAll('\u001b', '')
}

interface Wanted {
  server: Server
  origin: string
  who: Whoami
  entry: Entry
  isLiteral: boolean
}

interface Done {
  files: string[]
  warnings: string[]
}

async function write(invocation: Invocation, wanted: Wanted): Promise<Done> {
  return await Connections.use(placesOf(invocation), (connections) =>
    repeatWhenChanged(() => planAndWrite(invocation, wanted, connections)),
  )
}

async function planAndWrite(invocation: Invocation, wanted: Wanted, connections: Connections): Promise<Done> {
  const { environment, folder, options } = invocation
  const file = await resolveInProject(folder, FILE, environment)
  const before = await connections.readWithout(folder, file)
  if (options.replace !== true) await checkExisting(invocation, connections, wanted, readEntry(file, before))
  const entry = planEntry(file, before, wanted.entry)
  // What holds no secret may go into any commit.
  const git = wanted.isLiteral ? await askGit(file, environment.forChild()) : NOT_ASKED
  const ignore = wanted.isLiteral ? await planIgnoring(connections, { folder, file, git }) : null
  const rules = options.allow === true ? await planAllowing(connections, invocation) : null
  const plans = [ignore, rules, entry].filter((plan): plan is Planned => plan !== null)
  const { agent, namespace } = wanted.who
  const { origin, server } = wanted
  const facts = { folder, origin, url: wanted.entry.url, agent, namespace, trustId: toTrustId(server) }
  // What was allowed to this agent before stays as a person has left it, until disconnect. Nobody has allowed it to another.
  await connections.connect(facts, plans, options.allow === true ? [] : connections.listRules(facts))
  const warnings = await describeWarnings({ file, next: entry.next, git, isLiteral: wanted.isLiteral })
  return { files: plans.map((plan) => plan.edit.file), warnings }
}

async function planAllowing(connections: Connections, { environment, folder }: Invocation): Promise<Planned | null> {
  const file = await resolveSettings(folder, environment)
  const before = await connections.readWithout(folder, file)
  return planRules(file, before, await listRules(environment.claudePlugins, folder))
}

/** Another identity is not taken away in passing: who an agent is decides whose messages it reads. */
async function checkExisting(
  invocation: Invocation,
  connections: Connections,
  wanted: Wanted,
  existing: unknown,
): Promise<void> {
  const earlier = connections.find(invocation.folder)
  if (earlier !== null && (earlier.origin !== wanted.origin || nameOf(earlier) !== nameOf(wanted.who))) {
    throw taken(`${nameOf(earlier)} at ${earlier.origin}`)
  }
  if (existing === null) return
  const url = isRecord(existing) && typeof existing.url === 'string' ? existing.url : null
  const address = url === null ? null : parseBase(url)
  if (address?.base !== wanted.server.base) throw taken(url === null ? 'another server' : cleanLabel(url, 120))
  const token = readBearer(existing, invocation)?.token ?? null
  if (token === null || token === wanted.server.token) return
  // A token that is refused by now belongs to nobody; a server that cannot say is an error, as everywhere.
  const old = await getWhoami({ ...wanted.server, token }).catch((error) => {
    if (error instanceof CommandError && error.exit === EXIT.notAuthorised) return null
    throw error
  })
  if (old !== null && nameOf(old) !== nameOf(wanted.who)) throw taken(`${nameOf(old)} at ${wanted.server.base}`)
}

function taken(who: string): CommandError {
  return new CommandError('conflict', `${FILE} connects this folder to ${who} already. Nothing was changed.`, {
    hint: 'patchcord disconnect first, or say --replace.',
  })
}

function readBearer(entry: unknown, { environment }: Invocation): Credential | null {
  const headers = isRecord(entry) && isRecord(entry.headers) ? entry.headers : {}
  const header = typeof headers.Authorization === 'string' ? headers.Authorization : ''
  const [, text = ''] = /^Bearer\s+(\S+)$/.exec(header) ?? []
  const [, variable = null] = /^\$\{(\w+)\}$/.exec(text) ?? []
  const token = variable === null ? text : environment.lookup(variable)
  return isTokenText(token) ? { token, variable } : null
}

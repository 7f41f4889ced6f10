import { isAbsolute } from 'node:path'
import { isTokenText, readTrusted, toTrustId } from '../../scripts/lib/identity.cjs'
import { type Discovery, discoverIdentities } from '../../scripts/lib/mcp-json.cjs'
import type { Environment } from '../env.ts'
import { getWhoami, type Server, type Whoami } from './api.ts'
import { canAsk, confirm, type Terminal } from './confirm.ts'
import { CommandError, EXIT } from './errors.ts'
import { cleanLabel } from './frame.ts'
import type { Invocation } from './verb.ts'

export const AS_OPTION = { as: { type: 'string' } } as const

const PAIR = ['PATCHCORD_URL', 'PATCHCORD_TOKEN'] as const
/** How many problems of .mcp.json one sentence holds: a file of a repository can have thousands. */
const PROBLEMS_MAX = 3

interface Identity extends Server {
  origin: string
}

/**
 * Who speaks: PATCHCORD_URL and PATCHCORD_TOKEN, else .mcp.json as the listener finds it; `--as agent@namespace` where there
 * are several. Throws a CommandError that says what to do where there is none, or not one.
 */
export async function findServer(
  invocation: Invocation,
  terminal: Terminal = { input: process.stdin, output: process.stderr },
): Promise<Server> {
  const { environment, folder, options, output } = invocation
  const { settings } = environment
  const asked = new Set<string>()
  const lookup = (name: string) => {
    asked.add(name)
    return settings.lookup(name)
  }
  const discovery = discoverIdentities({ folder, pair: settings.pair, lookup })
  const half = describeHalf(environment, asked)
  if (half !== null) output.note(`patchcord: ${half}`)
  const { identities, notes } = discovery
  if (identities.length === 0) throw settings.pair === null ? explainFile(discovery) : explainPair(settings.pair)
  for (const note of notes) output.note(`patchcord: ${toSentence(note)}`)
  if (settings.pair === null) await checkTrust(invocation, identities, terminal)
  const wanted = typeof options.as === 'string' ? options.as : null
  const [only] = identities
  if (wanted === null && only && identities.length === 1) return only
  return await chooseIdentity(identities, wanted)
}

/** One variable of the pair says nothing alone, which nobody would guess. Where .mcp.json asks for it by name, it does. */
function describeHalf({ lookup }: Environment, asked: ReadonlySet<string>): string | null {
  const [missing, ...more] = PAIR.filter((name) => !lookup(name))
  const [there] = PAIR.filter((name) => lookup(name))
  if (missing === undefined || there === undefined || more.length > 0 || asked.has(there)) return null
  return `${there} is ignored, because ${missing} is not set: only both together say who you are.`
}

function explainPair({ token }: { token: string }): CommandError {
  if (isTokenText(token)) {
    return new CommandError('not_connected', 'PATCHCORD_URL is not the address of a server.', {
      hint: 'It is https://…, or http://… for a server on this machine, without a login in it.',
    })
  }
  return new CommandError('token_rejected', 'PATCHCORD_TOKEN is no Patchcord token, or it is cut off or mistyped.', {
    hint: 'Set the one that was shown when it was created, or unset PATCHCORD_URL and PATCHCORD_TOKEN.',
    exit: EXIT.notAuthorised,
  })
}

/** Why .mcp.json names nobody, once: what is wrong with its entries where there are any, else that there are none. */
function explainFile({ problem, notes }: Discovery): CommandError {
  if (notes.length === 0) {
    return new CommandError('not_connected', `${capitalize(problem ?? 'there is no identity')}.`, {
      hint: 'patchcord connect --server URL writes it; or set PATCHCORD_URL and PATCHCORD_TOKEN.',
    })
  }
  const left = notes.length - PROBLEMS_MAX
  const shown = [...notes.slice(0, PROBLEMS_MAX), ...(left > 0 ? [`${left} more like these`] : [])]
  const isToken = notes.some((note) => /\bAuthorization\b/.test(note))
  return new CommandError(isToken ? 'token_rejected' : 'not_connected', toSentence(shown.join('; ')), {
    hint: 'patchcord connect --server URL writes the entry anew; or set PATCHCORD_URL and PATCHCORD_TOKEN.',
    exit: isToken ? EXIT.notAuthorised : EXIT.error,
  })
}

/** A note begins with the path of a file, or with the name of an entry. */
function toSentence(note: string): string {
  return `${isAbsolute(note) ? note : `In .mcp.json, ${note}`}.`
}

/**
 * A cloned repository names a server of its choice, on this machine too, where anybody may have opened a port, and could be
 * sent what an agent writes there, or the user's own token through `${VAR}`; or it holds the token of somebody else's agent.
 * So who nobody has connected as on purpose is spoken for only when a person says so, for this one call.
 */
async function checkTrust({ environment }: Invocation, identities: Identity[], terminal: Terminal): Promise<void> {
  const trusted = readTrusted(environment.settings.trustFile)
  const strange = identities.filter((identity) => !trusted.has(toTrustId(identity)))
  const [first] = strange
  if (first === undefined) return
  if (canAsk(terminal.input, environment.settings.isStartedByModel)) {
    const addresses = [...new Set(strange.map(({ base }) => base))].map((base) => cleanLabel(base)).join(', ')
    const question = `.mcp.json names ${addresses}, where you have not connected with this token. Send it and this call there?`
    if (await confirm(question, terminal)) return
  }
  throw new CommandError(
    'not_trusted',
    `.mcp.json names a token of ${first.origin} with which you have not connected.`,
    {
      hint: `If it is yours: patchcord connect --server ${first.origin} (or set PATCHCORD_URL and PATCHCORD_TOKEN).`,
    },
  )
}

async function chooseIdentity(identities: Identity[], wanted: string | null): Promise<Server> {
  const known = await Promise.all(
    identities.map(async (identity) => ({ identity, who: await getWhoami(identity).catch((error: Error) => error) })),
  )
  const names = known.map(({ identity, who }) =>
    who instanceof Error ? `(${identity.base}: ${who.message})` : nameOf(who),
  )
  if (wanted === null) {
    throw new CommandError('ambiguous', `There are several identities here: ${names.join(', ')}.`, {
      hint: `Say which: --as ${names.find((name) => !name.startsWith('(')) ?? 'AGENT@NAMESPACE'}`,
    })
  }
  const found = known.filter(({ who }) => !(who instanceof Error) && [nameOf(who), who.agent].includes(wanted))
  const [match] = found
  if (match && found.length === 1) return match.identity
  const refused = known.find(({ who }) => who instanceof CommandError)?.who
  if (refused instanceof CommandError && identities.length === 1) throw refused
  const problem = found.length > 1 ? 'is more than one identity here' : 'is not an identity of this project'
  throw new CommandError('not_found', `"${cleanLabel(wanted, 90)}" ${problem}: ${names.join(', ')}.`, {
    hint: 'Use one of these with --as.',
  })
}

export function nameOf({ agent, namespace }: Pick<Whoami, 'agent' | 'namespace'>): string {
  return `${agent}@${namespace}`
}

function capitalize(text: string): string {
  return text.startsWith('.') ? text : text.charAt(0).toUpperCase() + text.slice(1)
}

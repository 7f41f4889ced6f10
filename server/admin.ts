import { randomBytes } from 'node:crypto'
import { parseArgs } from 'node:util'
import { type Config, loadConfig, toOrigin } from './config.ts'
import { type ConnectionTarget, connect, describeTarget, type Sql } from './db/connect.ts'
import { findEmbedded, readAddress } from './db/embedded/index.ts'
import { migrateExternal, setApiPassword } from './db/migrate.ts'
import { createAgent, listAllAgents, renameAgent } from './domain/agents.ts'
import { createNamespace, listNamespaces, renameNamespace } from './domain/namespaces.ts'
import { createLoginLink } from './domain/people.ts'
import { listSecurityEvents } from './domain/security-log.ts'
import { issueToken, listTokens, revokeToken, rotateToken } from './domain/tokens.ts'
import { PatchcordError, StartError } from './errors.ts'

const API_ROLE = 'patchcord_api'
const HELP = `Operator's commands of Patchcord. They work on the database of DATABASE_ADMIN_URL, or else on the data folder
(PATCHCORD_DATA_DIR) of a running server.

  migrate                          bring the database to this version
  api-role                         give ${API_ROLE} a new password and print its DATABASE_URL
  login-link [PERSON]              print a link that signs in once, within 15 minutes: the operator, or a person by name or id
  create-namespace NAME
  list-namespaces
  rename-namespace NAME NEW_NAME   its listeners connect again by themselves
  create-agent NAME@NAMESPACE
  list-agents NAMESPACE
  rename-agent NAME@NAMESPACE NEW_NAME
  issue-token NAME@NAMESPACE       print a new token, once [--label TEXT] [--expires-in 30d]
  list-tokens NAMESPACE
  rotate-token ID                  print its successor, once [--expires-in 30d]; it is revoked, or [--overlap 1h] ends later
  revoke-token ID                  close its sockets within a second
  security-log                     tokens, agents, namespaces, members, invites and sign-ins: what changed, and by whom

  --json                           answer in JSON
`

interface Options {
  json?: boolean | undefined
  help?: boolean | undefined
  label?: string | undefined
  'expires-in'?: string | undefined
  overlap?: string | undefined
}

interface Operator {
  sql: Sql
  /** null: the embedded database of a running server. */
  adminUrl: string | null
  config: Config
}

/** `lines` go to stdout for programs and people; `notes` to stderr, for people only; `json` takes the place of both. */
interface Answer {
  lines: string[]
  notes?: string[]
  json: unknown
}

type Verb = (operator: Operator, options: Options, argument: string, second: string) => Promise<Answer>

const VERBS: Record<string, { arguments: readonly string[]; run: Verb }> = {
  migrate: { arguments: [], run: runMigrate },
  'api-role': { arguments: [], run: runApiRole },
  'login-link': { arguments: ['[PERSON]'], run: runLoginLink },
  'create-namespace': {
    arguments: ['NAME'],
    async run({ sql }, _options, name) {
      const namespace = await createNamespace(sql, { name })
      return { lines: [`Namespace ${namespace.name} is there.`], json: namespace }
    },
  },
  'list-namespaces': {
    arguments: [],
    async run({ sql }) {
      const namespaces = await listNamespaces(sql)
      return listed(namespaces, ['name', 'agents', 'created_at'])
    },
  },
  'rename-namespace': {
    arguments: ['NAME', 'NEW_NAME'],
    async run({ sql }, _options, name, newName) {
      const { id } = await renameNamespace(sql, { name, newName })
      return { lines: [`Namespace ${name} is called ${newName} now.`], json: { id, name: newName } }
    },
  },
  'create-agent': {
    arguments: ['NAME@NAMESPACE'],
    async run({ sql }, _options, address) {
      const { agent, namespace } = parseAddress(address)
      const { id } = await createAgent(sql, { namespace, name: agent })
      return { lines: [`Agent ${agent}@${namespace} is there.`], json: { id, agent, namespace } }
    },
  },
  'list-agents': {
    arguments: ['NAMESPACE'],
    async run({ sql }, _options, namespace) {
      const agents = await listAllAgents(sql, { namespace })
      return listed(agents, ['name', 'tokens', 'created_at', 'last_used_at'])
    },
  },
  'rename-agent': {
    arguments: ['NAME@NAMESPACE', 'NEW_NAME'],
    async run({ sql }, _options, address, newName) {
      const { agent, namespace } = parseAddress(address)
      const { id } = await renameAgent(sql, { namespace, agent, newName })
      const lines = [`Agent ${agent}@${namespace} is called ${newName}@${namespace} now; its tokens stay valid.`]
      return { lines, json: { id, agent: newName, namespace } }
    },
  },
  'issue-token': { arguments: ['NAME@NAMESPACE'], run: runIssueToken },
  'list-tokens': {
    arguments: ['NAMESPACE'],
    async run({ sql }, _options, namespace) {
      const tokens = await listTokens(sql, { namespace })
      return listed(tokens, [
        'id',
        'agent',
        'label',
        'created_at',
        'expires_at',
        'revoked_at',
        'last_used_at',
        'banned_until',
      ])
    },
  },
  'rotate-token': { arguments: ['ID'], run: runRotateToken },
  'revoke-token': {
    arguments: ['ID'],
    async run({ sql }, _options, id) {
      await revokeToken(sql, id)
      return { lines: [`Token ${id} is revoked.`], json: { id, revoked: true } }
    },
  },
  'security-log': {
    arguments: [],
    async run({ sql }) {
      return listed(await listSecurityEvents(sql), [
        'logged_at',
        'event',
        'namespace',
        'agent',
        'token_id',
        'by_name',
        'detail',
      ])
    },
  },
}

async function runMigrate({ sql }: Operator): Promise<Answer> {
  const { applied } = await migrateExternal(sql)
  const lines = applied.length > 0 ? applied.map((version) => `applied ${version}`) : ['Nothing to do: up to date.']
  return { lines, json: { applied } }
}

async function runApiRole({ sql, adminUrl }: Operator): Promise<Answer> {
  if (adminUrl === null) {
    throw new StartError(
      'api-role is for a database of your own: set DATABASE_ADMIN_URL (a running server has its password).',
    )
  }
  const [role] = await sql`select from pg_catalog.pg_roles where rolname = ${API_ROLE}`
  if (!role) throw notMigrated()
  const password = randomBytes(32).toString('base64url')
  await setApiPassword(sql, password)
  const url = toApiUrl(adminUrl, password)
  return {
    lines: [url],
    notes: [`Role ${API_ROLE} has a new password; set DATABASE_URL to the line above. It is not shown again.`],
    json: { database_url: url },
  }
}

/** The same place with another login; poolers want the project's name after a dot (`postgres.abcdef`). */
function toApiUrl(adminUrl: string, password: string): string {
  const url = new URL(adminUrl)
  const [, project] = decodeURIComponent(url.username).split('.', 2)
  url.username = project === undefined ? API_ROLE : `${API_ROLE}.${project}`
  url.password = password
  return url.href
}

async function runLoginLink({ sql, config, adminUrl }: Operator, _options: Options, person: string): Promise<Answer> {
  const origin = await findOrigin(config, adminUrl)
  const link = await createLoginLink(sql, person === '' ? {} : { person })
  const url = `${origin}/login/${link.code}`
  return {
    lines: [url],
    notes: [`It signs ${link.person} in, once, within 15 minutes. Whoever has it is ${link.person}.`],
    json: { url, person: link.person, expires_at: link.expires_at },
  }
}

/** Where the server is that works on this database, as far as this machine can know. */
async function findOrigin(config: Config, adminUrl: string | null): Promise<string> {
  const noted = config.publicUrl || adminUrl !== null ? null : await readAddress(config.dataDir)
  if (noted !== null) return noted
  if (config.publicUrl || config.port !== 0) return toOrigin(config, config.host, config.port)
  throw new StartError('Where the server listens is not known here: set PATCHCORD_PUBLIC_URL.')
}

async function runIssueToken({ sql }: Operator, options: Options, address: string): Promise<Answer> {
  const { agent, namespace } = parseAddress(address)
  const expiresInSeconds = readDuration(options, 'expires-in')
  const { token, id } = await issueToken(sql, { agent, namespace, label: options.label, expiresInSeconds })
  return {
    lines: [token],
    notes: [`Token ${id} of ${agent}@${namespace}. It is not shown again: put it where only this agent can read it.`],
    json: { token, id, agent, namespace },
  }
}

async function runRotateToken({ sql }: Operator, options: Options, oldId: string): Promise<Answer> {
  const overlapSeconds = readDuration(options, 'overlap')
  const rotation = { id: oldId, overlapSeconds, expiresInSeconds: readDuration(options, 'expires-in') }
  const { token, id, agent, namespace, old_ends_at } = await rotateToken(sql, rotation)
  const end = overlapSeconds === undefined ? 'is revoked' : `ends ${toIsoTime(old_ends_at)}`
  return {
    lines: [token],
    notes: [`Token ${id} of ${agent}@${namespace} takes the place of ${oldId}, which ${end}. It is not shown again.`],
    json: {
      ...{ token, id, agent, namespace },
      ...(overlapSeconds === undefined ? { revoked: oldId } : { old: oldId, old_ends_at }),
    },
  }
}

function readDuration(options: Options, name: 'expires-in' | 'overlap'): number | undefined {
  const text = options[name]
  return text === undefined ? undefined : parseDuration(text, name)
}

function parseAddress(address: string): { agent: string; namespace: string } {
  const [agent = '', namespace = '', ...rest] = address.split('@')
  if (agent !== '' && namespace !== '' && rest.length === 0) return { agent, namespace }
  throw new StartError(`"${address.slice(0, 90)}" is not NAME@NAMESPACE.`)
}

function parseDuration(text: string, name: string): number {
  const units: Record<string, number> = { s: 1, m: 60, h: 3_600, d: 86_400 }
  const [, count = '', unit = ''] = /^(\d{1,6})([smhd])$/.exec(text) ?? []
  const seconds = Number(count) * (units[unit] ?? 0)
  if (seconds > 0) return seconds
  throw new StartError(`--${name} takes a number and s, m, h or d, such as 30d.`)
}

/** Rows for people and for programs, with every time in ISO 8601 and UTC, whatever the database is set to. */
function listed<Row extends object>(rows: readonly Row[], columns: readonly (keyof Row & string)[]): Answer {
  const told = rows.map((row) => {
    const cells = Object.entries(row).map(([name, value]) => [
      name,
      /_(?:at|until)$/.test(name) ? toIsoTime(value) : value,
    ])
    return Object.fromEntries(cells) as Row
  })
  return { lines: table(told, columns), json: told }
}

/** `2026-11-29 19:42:14.026848+00` as Postgres says it → `2026-11-29T19:42:14.026Z`. */
function toIsoTime(value: unknown): unknown {
  if (typeof value !== 'string') return value
  const time = new Date(value.replace(' ', 'T').replace(/([+-]\d\d)$/, '$1:00'))
  return Number.isNaN(time.getTime()) ? value : time.toISOString()
}

function table<Row extends object>(rows: readonly Row[], columns: readonly (keyof Row & string)[]): string[] {
  const cells = rows.map((row) => columns.map((column) => String(row[column] ?? '-')))
  const all = [[...columns], ...cells]
  const widths = columns.map((_, index) => Math.max(...all.map((line) => line[index]?.length ?? 0)))
  return all.map((line) =>
    line
      .map((cell, index) => cell.padEnd(widths[index] ?? 0))
      .join('  ')
      .trimEnd(),
  )
}

function notMigrated(): StartError {
  return new StartError('The database is not migrated: npm run admin -- migrate does it.')
}

function parseCommand(args: string[]) {
  try {
    return parseArgs({
      args,
      allowPositionals: true,
      options: {
        json: { type: 'boolean' },
        help: { type: 'boolean', short: 'h' },
        label: { type: 'string' },
        'expires-in': { type: 'string' },
        overlap: { type: 'string' },
      },
    })
  } catch (error) {
    throw new StartError(`${(error as Error).message.split('. ')[0]}. --help shows the commands.`)
  }
}

async function findDatabase(config: Config): Promise<{ target: ConnectionTarget; adminUrl: string | null }> {
  if (config.databaseAdminUrl !== null) {
    return { target: { url: config.databaseAdminUrl }, adminUrl: config.databaseAdminUrl }
  }
  const embedded = config.databaseUrl === null ? await findEmbedded(config.dataDir) : null
  if (embedded) return { target: embedded.admin, adminUrl: null }
  if (config.databaseUrl !== null)
    throw new StartError('Set DATABASE_ADMIN_URL: DATABASE_URL is the login of the API only.')
  throw new StartError(
    `No server is running on ${config.dataDir}: start it (npm start), or set PATCHCORD_DATA_DIR or DATABASE_ADMIN_URL.`,
  )
}

async function run(args: string[]): Promise<void> {
  const { values, positionals } = parseCommand(args)
  const [name, ...given] = positionals
  if (values.help || name === undefined) {
    process.stdout.write(HELP)
    process.exitCode = values.help ? 0 : 1
    return
  }
  const verb = Object.hasOwn(VERBS, name) ? VERBS[name] : undefined
  if (!verb) throw new StartError(`There is no command ${name.slice(0, 40)}. --help shows the commands.`)
  const required = verb.arguments.filter((argument) => !argument.startsWith('[')).length
  if (given.length < required || given.length > verb.arguments.length)
    throw new StartError(`Usage: ${[name, ...verb.arguments].join(' ')}`)
  const [argument = '', second = ''] = given
  const config = loadConfig()
  const { target, adminUrl } = await findDatabase(config)
  const sql = connect(target, { max: 1, applicationName: 'patchcord-admin' })
  try {
    print(await verb.run({ sql, adminUrl, config }, values, argument, second), values.json === true)
  } catch (error) {
    throw explain(error, target)
  } finally {
    await sql.end({ timeout: 1 })
  }
}

function print({ lines, notes = [], json }: Answer, isJson: boolean): void {
  if (isJson) {
    process.stdout.write(`${JSON.stringify(json)}\n`)
    return
  }
  process.stdout.write(lines.map((line) => `${line}\n`).join(''))
  process.stderr.write(notes.map((note) => `${note}\n`).join(''))
}

/** What the database said, as one sentence; an empty database has none of our tables (3F000, 42P01). */
function explain(error: unknown, target: ConnectionTarget): unknown {
  if (error instanceof PatchcordError || error instanceof StartError) return error
  const { code = '', message = '' } = error as { code?: string; message?: string }
  if (code === '3F000' || code === '42P01') return notMigrated()
  return new StartError(`The database (${describeTarget(target)}) answered: ${message || code}.`, { cause: error })
}

/** With --json an error is the document that stands on stdout. */
function tellError(error: unknown, isJson: boolean): void {
  const { message } = error as Error
  const { code, hint } = error instanceof PatchcordError ? error : { code: 'operator', hint: undefined }
  if (isJson) process.stdout.write(`${JSON.stringify({ error: { code, message, ...(hint ? { hint } : {}) } })}\n`)
  else process.stderr.write(`${message}${hint ? ` ${hint}` : ''}\n`)
}

try {
  await run(process.argv.slice(2))
} catch (error) {
  tellError(error, process.argv.includes('--json'))
  process.exitCode = 1
}

import { homedir } from 'node:os'
import { join, resolve } from 'node:path'
import { z } from 'zod'
import { StartError } from './errors.ts'

/** Every limit of the server, with its default. `PATCHCORD_LIMITS` (JSON) overrides single ones. */
const Limits = z.strictObject({
  sendBurst: z.int().min(1).default(30),
  sendPerSecond: z.number().positive().default(0.5),
  refusalsPerMinuteMax: z.int().min(1).default(100),
  banSeconds: z.int().min(1).default(300),
  turnsMax: z.int().min(1).default(20),
  turnsUnattendedMax: z.int().min(1).default(60),
  turnsWindowSeconds: z.int().min(1).default(600),
  newPerRecipientMax: z.int().min(1).default(1_000),
  bodyCharactersMax: z.int().min(1).max(1_000_000).default(50_000),
  recipientsMax: z.int().min(1).default(50),
  waitersPerAgentMax: z.int().min(1).default(20),
  connectionsPerTokenMax: z.int().min(1).default(20),
  unauthenticatedPerMinute: z.int().min(1).default(20),
})
export type Limits = z.output<typeof Limits>

export type Realtime = 'builtin' | 'broadcast' | 'postgres_changes'

/** An ES256 private key as `supabase gen signing-key --algorithm ES256` prints it. */
const SigningKey = z.looseObject({
  kty: z.literal('EC'),
  crv: z.literal('P-256'),
  kid: z.string().min(1),
  x: z.string().min(1),
  y: z.string().min(1),
  d: z.string().min(1),
})
export type Signing = { algorithm: 'HS256'; secret: string } | { algorithm: 'ES256'; jwk: z.output<typeof SigningKey> }

export interface Supabase {
  url: URL
  publishableKey: string
  secretKey: string | null
}

export interface Address {
  host: string
  port: number
}

export interface Config {
  host: string
  port: number
  /** Where people and agents reach the server; null: only by loopback names or IP addresses. */
  publicUrl: URL | null
  dataDir: string
  /** The API's login role; null: the embedded Postgres of `dataDir`. */
  databaseUrl: string | null
  databaseListenUrl: string | null
  databaseAdminUrl: string | null
  supabase: Supabase | null
  realtime: Realtime
  /** null: the key file that the data folder keeps. */
  signing: Signing | null
  limits: Limits
  retentionDays: number
  /** Where /metrics is served; null: nowhere. */
  metrics: Address | null
  /** Whether new people need an invite of a namespace, or may come by themselves. */
  signup: 'invite' | 'open'
  logLevel: string
}

type Environment = Record<string, string | undefined>

const RENAMED: Record<string, string> = { SUPABASE_KEY: 'SUPABASE_SECRET_KEY', PATCHCORD_PORT: 'PORT' }
const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']

/**
 * The environment as a frozen Config (variables: README, "Configuration"). This is the only file of server/ that reads
 * `process.env`. Throws StartError with one sentence that names the variable; a value is never repeated, it may be a secret.
 */
export function loadConfig(env: Environment = process.env): Config {
  for (const [old, now] of Object.entries(RENAMED)) {
    if (env[old]) throw new StartError(`${old} is not read any more: set ${now} instead.`)
  }
  const databaseUrl = readDatabaseUrl(env, 'DATABASE_URL')
  const supabase = readSupabase(env)
  if (supabase && !databaseUrl) {
    throw new StartError('SUPABASE_URL is set but DATABASE_URL is not: set DATABASE_URL to the login of patchcord_api.')
  }
  const signing = readSigning(env)
  const realtime = readRealtime(env, supabase)
  if (realtime !== 'builtin' && !supabase) {
    throw new StartError(`PATCHCORD_REALTIME is ${realtime}, which needs SUPABASE_URL and SUPABASE_PUBLISHABLE_KEY.`)
  }
  const port = readInteger(env, 'PORT', 8787, 0, 65_535)
  const metrics = readAddress(env, 'PATCHCORD_METRICS')
  if (metrics && metrics.port !== 0 && metrics.port === port) {
    throw new StartError('PATCHCORD_METRICS must name another port than PORT: it serves /metrics and nothing else.')
  }
  return Object.freeze({
    host: env.HOST || '127.0.0.1',
    port,
    publicUrl: readPublicUrl(env),
    dataDir: resolve(env.PATCHCORD_DATA_DIR || defaultDataDir(env)),
    databaseUrl,
    databaseListenUrl: readDatabaseUrl(env, 'DATABASE_LISTEN_URL'),
    databaseAdminUrl: readDatabaseUrl(env, 'DATABASE_ADMIN_URL'),
    supabase,
    realtime,
    signing,
    limits: readLimits(env),
    retentionDays: readInteger(env, 'PATCHCORD_RETENTION_DAYS', 30, 1, 36_500),
    metrics,
    signup: readChoice(env, 'PATCHCORD_SIGNUP', ['invite', 'open'] as const, 'invite'),
    logLevel: readChoice(env, 'LOG_LEVEL', LOG_LEVELS, 'info'),
  })
}

/** Root's own folders are closed to the unprivileged user that Postgres runs as, hence /var/lib for root. */
function defaultDataDir(env: Environment): string {
  if (process.getuid?.() === 0) return '/var/lib/patchcord'
  return join(env.XDG_DATA_HOME || join(env.HOME || homedir(), '.local', 'share'), 'patchcord')
}

function readInteger(env: Environment, name: string, fallback: number, min: number, max: number): number {
  const text = env[name]
  if (text === undefined || text === '') return fallback
  const value = Number(text)
  if (Number.isInteger(value) && value >= min && value <= max) return value
  throw new StartError(`${name} must be a whole number from ${min} to ${max}.`)
}

function readChoice<T extends string>(env: Environment, name: string, choices: readonly T[], fallback: T): T {
  const text = env[name]
  if (!text) return fallback
  const choice = choices.find((candidate) => candidate === text)
  if (!choice) throw new StartError(`${name} must be one of ${choices.join(', ')}.`)
  return choice
}

/** `127.0.0.1:9464`, `[::1]:9464`, `localhost:9464`. A number alone is none: it would leave open to whom it is shown. */
function readAddress(env: Environment, name: string): Address | null {
  const text = env[name]
  if (!text) return null
  const [, host = '', digits = ''] = /^(\[[\da-f:.]+\]|[\w.-]+):(\d{1,5})$/i.exec(text) ?? []
  if (host !== '' && Number(digits) <= 65_535) return { host: host.replace(/^\[|\]$/g, ''), port: Number(digits) }
  throw new StartError(
    `${name} must be host:port (a port up to 65535), an address of its own to serve /metrics on, such as 127.0.0.1:9464.`,
  )
}

function parseUrl(text: string, name: string, protocols: string[]): URL {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url && protocols.includes(url.protocol)) return url
  throw new StartError(`${name} must be a URL that starts with ${protocols.map((each) => `${each}//`).join(' or ')}.`)
}

function readDatabaseUrl(env: Environment, name: string): string | null {
  const text = env[name]
  if (!text) return null
  const url = parseUrl(text, name, ['postgres:', 'postgresql:'])
  if (url.port === '6543' && name === 'DATABASE_URL' && !env.DATABASE_LISTEN_URL) {
    throw new StartError(
      'DATABASE_URL is a transaction pooler (port 6543), where LISTEN hears nothing: ' +
        'use the session pooler (port 5432) or set DATABASE_LISTEN_URL to a direct connection.',
    )
  }
  return text
}

function readPublicUrl(env: Environment): URL | null {
  const text = env.PATCHCORD_PUBLIC_URL
  return text ? parseUrl(text, 'PATCHCORD_PUBLIC_URL', ['http:', 'https:']) : null
}

function readSupabase(env: Environment): Supabase | null {
  if (!env.SUPABASE_URL) return null
  const url = parseUrl(env.SUPABASE_URL, 'SUPABASE_URL', ['http:', 'https:'])
  const publishableKey = env.SUPABASE_PUBLISHABLE_KEY || env.SUPABASE_ANON_KEY
  if (!publishableKey) {
    throw new StartError('SUPABASE_URL is set: set SUPABASE_PUBLISHABLE_KEY (or SUPABASE_ANON_KEY) too.')
  }
  return { url, publishableKey, secretKey: env.SUPABASE_SECRET_KEY || env.SUPABASE_SERVICE_ROLE_KEY || null }
}

function readRealtime(env: Environment, supabase: Supabase | null): Realtime {
  const choices: Realtime[] = ['builtin', 'broadcast', 'postgres_changes']
  return readChoice(env, 'PATCHCORD_REALTIME', choices, supabase ? 'broadcast' : 'builtin')
}

function readSigning(env: Environment): Signing | null {
  const secret = env.SUPABASE_JWT_SECRET
  if (env.PATCHCORD_SIGNING_KEY) {
    const parsed = SigningKey.safeParse(parseJson(env.PATCHCORD_SIGNING_KEY))
    if (parsed.success) return { algorithm: 'ES256', jwk: parsed.data }
    throw new StartError('PATCHCORD_SIGNING_KEY must be a private ES256 JWK (kty, crv, kid, x, y, d) as JSON.')
  }
  if (!secret) return null
  if (secret.length < 32) throw new StartError('SUPABASE_JWT_SECRET must have at least 32 characters.')
  return { algorithm: 'HS256', secret }
}

function readLimits(env: Environment): Limits {
  if (!env.PATCHCORD_LIMITS) return Limits.parse({})
  const json = parseJson(env.PATCHCORD_LIMITS)
  if (json === undefined) throw new StartError('PATCHCORD_LIMITS is not valid JSON.')
  const parsed = Limits.safeParse(json)
  if (parsed.success) return parsed.data
  const issue = parsed.error.issues[0]
  const at = issue?.path.length ? ` (${issue.path.join('.')}: ${issue.message})` : ` (${issue?.message})`
  throw new StartError(`PATCHCORD_LIMITS must be a JSON object of known limits${at}.`)
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Where people open the dashboard: the public address, or else the one that is listened on, with a name for "everywhere". */
export function toOrigin({ publicUrl }: Pick<Config, 'publicUrl'>, host: string, port: number): string {
  if (publicUrl) return publicUrl.origin
  const name = host === '0.0.0.0' || host === '::' ? 'localhost' : host.includes(':') ? `[${host}]` : host
  return `http://${name}:${port}`
}

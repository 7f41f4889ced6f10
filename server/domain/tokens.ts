import { createHash, randomBytes } from 'node:crypto'
import type { PendingQuery, Row } from 'postgres'
import { z } from 'zod'
import type { AnySql, Sql, TransactionSql } from '../db/connect.ts'
import { asAgent, asMember, type Identity, type PersonScope, resolveIdentity, type Scope } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'
import { findAgentId } from './agents.ts'
import { toFormId } from './codes.ts'
import { parseCursor } from './cursors.ts'
import { findNamespaceId } from './namespaces.ts'

/** `pc_`, 43 base64url characters (256 random bits), 6 base62 digits: the CRC-32 of those 43. */
export const TOKEN_PATTERN = /^pc_[A-Za-z0-9_-]{43}[0-9A-Za-z]{6}$/
const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const CHECKSUM_DIGITS = 6
const LABEL_CHARACTERS_MAX = 80
const LABEL_PATTERN = /^[\p{L}\p{M}\p{N}\p{P}\p{S} ]+$/u

export const Whoami = z.object({
  agent_id: z.string(),
  namespace_id: z.string(),
  token_label: z.string(),
  token_expires_at: z.string().nullable(),
})
export type Whoami = z.output<typeof Whoami>

export function createTokenText(): string {
  const secret = randomBytes(32).toString('base64url')
  return `pc_${secret}${checksum(secret)}`
}

/** SHA-256 in hex: the only form of a token that is stored or looked up. */
export function hashToken(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

/** Whether a text can be one of our tokens at all: pattern and checksum, so that a typing error needs no database. */
export function isTokenText(text: string): boolean {
  return TOKEN_PATTERN.test(text) && checksum(text.slice(3, 46)) === text.slice(46)
}

/** Throws token_rejected, token_revoked, agent_gone or unavailable. */
export async function resolveToken(sql: Sql, tokenHash: string): Promise<Identity> {
  return await resolveIdentity(sql, tokenHash)
}

export async function whoami(scope: Scope): Promise<Whoami> {
  return await asAgent(scope, async (_sql, me) => ({
    agent_id: me.agent,
    namespace_id: me.namespace,
    token_label: me.label,
    token_expires_at: me.expiresAt,
  }))
}

/** A token whose sockets and waits must end. */
export interface Revocation {
  tokenId: string
  /** `deleted`: its agent. `renamed`: the token goes on, its agent has another name. */
  reason: 'revoked' | 'expired' | 'deleted' | 'renamed'
  /** null unless renamed. */
  renamedSecondsAgo: number | null
}

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** What has ended in the last `seconds`, and which of `tokenIds` ever did: for the instances that hold sockets and waits. */
export async function listRecentRevocations(sql: Sql, seconds: number, tokenIds: string[]): Promise<Revocation[]> {
  // Whoever has the key can sign a JWT that names anything: it is no token of ours, and stands for none.
  const ids = tokenIds.filter((id) => UUID.test(id))
  const rows = await sql`
    select token_uuid as "tokenId", reason, renamed_seconds_ago as "renamedSecondsAgo"
    from patchcord.recent_revocations(${seconds}, ${ids}::uuid[])`
  return [...rows] as unknown as Revocation[]
}

export interface IssueToken {
  namespace: string
  agent: string
  label?: string | undefined
  expiresInSeconds?: number | undefined
}

/** For operators: a new token of an agent. The text is in the answer and nowhere else. Throws invalid or not_found. */
export async function issueToken(admin: AnySql, input: IssueToken): Promise<{ token: string; id: string }> {
  const made = await insertToken(admin, input, null)
  return { token: made.token, id: made.id }
}

async function insertToken(sql: AnySql, input: IssueToken, id: string | null): Promise<CreatedToken> {
  const label = checkLabel(input.label)
  const agentId = await findAgentId(sql, input)
  const token = createTokenText()
  const [row] = await sql`
    insert into patchcord.tokens (id, namespace_uuid, agent_uuid, hash, label, expires_at)
    select coalesce(${id}::uuid, patchcord.uuid_v7()), a.namespace_uuid, a.id, decode(${hashToken(token)}, 'hex'), ${label},
      clock_timestamp() + make_interval(secs => ${input.expiresInSeconds ?? null}::float8)
    from patchcord.agents a where a.id = ${agentId}
    on conflict (id) do nothing
    returning id, to_jsonb(expires_at) as expires_at`
  if (row) {
    return { id: row.id as string, token, agent: input.agent, label, expires_at: row.expires_at as string | null }
  }
  throw new PatchcordError('conflict', 'This form was sent before: the token is there, and was shown once.', {
    hint: 'If it was not kept, revoke it and create another one.',
  })
}

function checkLabel(text: string | undefined): string {
  const label = text ?? 'default'
  if (label.length <= LABEL_CHARACTERS_MAX && LABEL_PATTERN.test(label)) return label
  throw new PatchcordError('invalid', `A label has 1 to ${LABEL_CHARACTERS_MAX} letters, digits, spaces and marks.`)
}

export interface CreatedToken {
  id: string
  /** The text: it is nowhere else. */
  token: string
  agent: string
  label: string
  expires_at: string | null
}

/** For operators. Its sockets and waits end within a second on every instance, its leases at once. Throws not_found. */
export async function revokeToken(admin: AnySql, id: string): Promise<void> {
  const rows = await admin`
    update patchcord.tokens set revoked_at = coalesce(revoked_at, clock_timestamp())
    where id::text = ${id.toLowerCase()} returning id`
  if (rows.length > 0) return
  throw new PatchcordError('not_found', `There is no token ${id.slice(0, 60)}.`, {
    hint: 'list-tokens shows their ids.',
  })
}

/**
 * For operators: ends a token, now or after `overlapSeconds`, and issues its successor of the same agent and label in one step;
 * it lives as long as the old one was to live unless `expiresInSeconds` says otherwise. Throws not_found, or conflict for one
 * that is revoked or has a successor already.
 */
export async function rotateToken(
  admin: Sql,
  input: Rotation,
): Promise<{ token: string; id: string; agent: string; namespace: string; old_ends_at: string }> {
  return await admin.begin(async (sql) => {
    const { id, token, agent, old_ends_at } = await rotate(sql, input)
    const [row] = await sql`
      select n.name from patchcord.namespaces n join patchcord.tokens t on t.namespace_uuid = n.id where t.id = ${id}`
    return { id, token, agent, namespace: row?.name as string, old_ends_at }
  })
}

export interface Rotation {
  id: string
  /** How long the old token still works; 0: it is revoked at once. */
  overlapSeconds?: number | undefined
  expiresInSeconds?: number | undefined
}

type Rotated = CreatedToken & { old_ends_at: string }

async function rotate(sql: TransactionSql, input: Rotation): Promise<Rotated> {
  const token = createTokenText()
  const overlap = input.overlapSeconds ?? 0
  // Two at once go one after the other here, and the second sees the successor.
  const [old] = await sql`
    select id, namespace_uuid, agent_uuid, label, expires_at - created_at as life from patchcord.tokens
    where id::text = ${input.id.toLowerCase()} and revoked_at is null
    for update`
  if (!old) throw await explainMissing(sql, input.id)
  const [successor] = await sql`
    select from patchcord.tokens where rotated_from = ${old.id} and revoked_at is null limit 1`
  if (successor) {
    throw new PatchcordError('conflict', 'This token has a successor already.', {
      hint: 'Rotate that one, or revoke it first.',
    })
  }
  const [ended] = await sql`
    update patchcord.tokens set
      revoked_at = case when ${overlap}::float8 <= 0 then clock_timestamp() end,
      expires_at = case when ${overlap}::float8 <= 0 then expires_at
        else least(expires_at, clock_timestamp() + make_interval(secs => ${overlap}::float8)) end
    where id = ${old.id}
    returning to_jsonb(coalesce(revoked_at, expires_at)) as at`
  const [row] = await sql`
    insert into patchcord.tokens (namespace_uuid, agent_uuid, hash, label, rotated_from, expires_at)
    select ${old.namespace_uuid}, ${old.agent_uuid}, decode(${hashToken(token)}, 'hex'), ${old.label}, ${old.id},
      clock_timestamp() + coalesce(make_interval(secs => ${input.expiresInSeconds ?? null}::float8), ${old.life}::interval)
    returning id, to_jsonb(expires_at) as expires_at,
      (select a.name from patchcord.agents a where a.id = ${old.agent_uuid}) as agent`
  return {
    id: row?.id as string,
    token,
    agent: row?.agent as string,
    label: old.label as string,
    expires_at: row?.expires_at as string | null,
    old_ends_at: ended?.at as string,
  }
}

async function explainMissing(sql: AnySql, id: string): Promise<PatchcordError> {
  const [row] = await sql`select from patchcord.tokens where id::text = ${id.toLowerCase()}`
  const hint = 'list-tokens shows their ids.'
  if (!row) return new PatchcordError('not_found', `There is no token ${id.slice(0, 60)}.`, { hint })
  return new PatchcordError('conflict', `Token ${id} is revoked already.`, { hint: 'issue-token makes a new one.' })
}

export interface TokenLine {
  id: string
  namespace: string
  agent: string
  label: string
  created_at: string
  expires_at: string | null
  revoked_at: string | null
  last_used_at: string | null
  /** null: it is not. */
  banned_until: string | null
}

/** For operators, by agent and age. Throws not_found for the namespace. */
export async function listTokens(admin: Sql, input: { namespace: string }): Promise<TokenLine[]> {
  await findNamespaceId(admin, input.namespace)
  const rows = await admin`
    select t.id, n.name as namespace, a.name as agent, t.label,
      t.created_at, t.expires_at, t.revoked_at, t.last_used_at,
      case when t.banned_until > clock_timestamp() then t.banned_until end as banned_until
    from patchcord.tokens t
      join patchcord.agents a on a.id = t.agent_uuid
      join patchcord.namespaces n on n.id = t.namespace_uuid
    where n.name = ${input.namespace}
    order by a.name, t.created_at`
  return [...rows] as unknown as TokenLine[]
}

/** A token as a member of its namespace sees it. */
export interface TokenCard {
  id: string
  agent: string
  label: string
  created_at: string
  expires_at: string | null
  revoked_at: string | null
  last_used_at: string | null
  /** null: it is not. */
  banned_until: string | null
  rotated_from: string | null
}

export interface ListTokensOf {
  namespace: string
  agent?: string | undefined
  /** `ended`: revoked, expired, or of a deleted agent. */
  state?: 'active' | 'ended' | 'all' | undefined
  /** Part of a label or an agent's name, in any case. */
  q?: string | undefined
  /** `next` of the page before. */
  before?: string | undefined
}

type Fragment = PendingQuery<Row[]>

const PAGE = 50

/** A page of the tokens of a namespace, the newest first. */
export async function listTokensOf(
  scope: PersonScope,
  input: ListTokensOf,
): Promise<{ tokens: TokenCard[]; next: string | null }> {
  const cursor = readCursor(input.before)
  const q = (input.q ?? '').trim().toLowerCase()
  return await asMember(scope, input.namespace, async (sql, me) => {
    const agents = (which: Fragment) => sql`array(
      select a.id from patchcord.agents a where a.namespace_uuid = ${me.namespaceId} and ${which})`
    const ended = sql`(t.revoked_at is not null or coalesce(t.expires_at <= clock_timestamp(), false)
      or t.agent_uuid = any (${agents(sql`a.deleted_at is not null`)}))`
    const [agent] =
      input.agent === undefined
        ? []
        : await sql`
      select id from patchcord.agents where namespace_uuid = ${me.namespaceId} and name = ${input.agent}`
    if (input.agent !== undefined && !agent) return { tokens: [], next: null }
    const conditions = [
      cursor && sql`(t.created_at, t.id) < (${cursor.at}::timestamptz, ${cursor.id}::uuid)`,
      agent && sql`t.agent_uuid = ${agent.id}`,
      input.state === 'active' && sql`not ${ended}`,
      input.state === 'ended' && ended,
      q !== '' &&
        sql`(strpos(lower(t.label), ${q}) > 0 or t.agent_uuid = any (${agents(sql`strpos(a.name, ${q}) > 0`)}))`,
    ].filter((each): each is Fragment => Boolean(each))
    const where = conditions.reduce((all, each) => sql`${all} and ${each}`, sql`t.namespace_uuid = ${me.namespaceId}`)
    // The page first and the names of its agents after it: joined before, ten thousand rows would be, to show fifty.
    const rows = await sql`
      select jsonb_build_object('id', p.id, 'agent', a.name, 'label', p.label, 'created_at', p.created_at,
        'expires_at', p.expires_at, 'revoked_at', p.revoked_at, 'last_used_at', p.last_used_at,
        'banned_until', case when p.banned_until > clock_timestamp() then p.banned_until end,
        'rotated_from', p.rotated_from) as card
      from (
        select t.id, t.agent_uuid, t.label, t.created_at, t.expires_at, t.revoked_at, t.last_used_at, t.banned_until,
          t.rotated_from
        from patchcord.tokens t where ${where}
        order by t.created_at desc, t.id desc limit ${PAGE + 1}
      ) p join patchcord.agents a on a.id = p.agent_uuid
      order by p.created_at desc, p.id desc`
    const tokens = rows.slice(0, PAGE).map((row) => row.card as TokenCard)
    const last = rows.length > PAGE ? tokens.at(-1) : undefined
    return { tokens, next: last ? `${last.created_at}_${last.id}` : null }
  })
}

function readCursor(text: string | undefined): { at: string; id: string } | null {
  if (text === undefined) return null
  const cursor = parseCursor(text)
  if (cursor) return cursor
  throw new PatchcordError('invalid', 'This page is not there.', { hint: 'Start at the first page.' })
}

export interface CreateToken extends IssueToken {
  /** Of the form: a second submit of it makes nothing. */
  id?: string | undefined
}

/** For admins. The text is in the answer and nowhere else. Throws invalid, not_found, or conflict for a form that was sent before. */
export async function createToken(scope: PersonScope, input: CreateToken): Promise<CreatedToken> {
  return await asMember(
    scope,
    input.namespace,
    async (sql, me) => {
      const id = input.id === undefined ? null : toFormId(`${me.namespaceId} ${me.personId}`, input.id)
      return await insertToken(sql, input, id)
    },
    'admin',
  )
}

/** For admins. Throws as rotateToken. */
export async function rotateMyToken(
  scope: PersonScope,
  input: Rotation & { namespace: string; overlapSeconds: number },
): Promise<Rotated> {
  return await asMember(scope, input.namespace, (sql) => rotate(sql, input), 'admin')
}

/** For admins. Its sockets and waits end within a second. Throws not_found, or conflict for one that is revoked already. */
export async function revokeMyToken(scope: PersonScope, input: { namespace: string; id: string }): Promise<void> {
  await asMember(
    scope,
    input.namespace,
    async (sql) => {
      const rows = await sql`
        update patchcord.tokens set revoked_at = clock_timestamp()
        where id::text = ${input.id.toLowerCase()} and revoked_at is null returning id`
      if (rows.length === 0) throw await explainMissing(sql, input.id)
    },
    'admin',
  )
}

function checksum(text: string): string {
  let rest = crc32(Buffer.from(text, 'latin1'))
  let digits = ''
  for (let i = 0; i < CHECKSUM_DIGITS; i++) {
    digits = BASE62.charAt(rest % 62) + digits
    rest = Math.floor(rest / 62)
  }
  return digits
}

/** CRC-32 as in IEEE 802.3, bit by bit: node:zlib has it only from Node 20.15 on. */
function crc32(bytes: Uint8Array): number {
  let crc = 0xffffffff
  for (const byte of bytes) {
    crc ^= byte
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1
  }
  return (crc ^ 0xffffffff) >>> 0
}

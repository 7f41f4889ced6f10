import { createHash, randomBytes } from 'node:crypto'
import { z } from 'zod'
import type { Sql, TransactionSql } from '../db/connect.ts'
import { asAgent, type Identity, resolveIdentity, type Scope } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'
import { findAgentId } from './agents.ts'
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

/** For operators: a new token of an agent. The text is in the answer and nowhere else. Throws not_found. */
export async function issueToken(admin: Sql, input: IssueToken): Promise<{ token: string; id: string }> {
  const label = input.label ?? 'default'
  if (label.length > LABEL_CHARACTERS_MAX || !LABEL_PATTERN.test(label)) {
    throw new PatchcordError('invalid', `A label has 1 to ${LABEL_CHARACTERS_MAX} letters, digits, spaces and marks.`)
  }
  const agentId = await findAgentId(admin, input)
  const token = createTokenText()
  const [row] = await admin`
    insert into patchcord.tokens (namespace_uuid, agent_uuid, hash, label, expires_at)
    select a.namespace_uuid, a.id, decode(${hashToken(token)}, 'hex'), ${label},
      clock_timestamp() + make_interval(secs => ${input.expiresInSeconds ?? null}::float8)
    from patchcord.agents a where a.id = ${agentId}
    returning id`
  return { token, id: row?.id as string }
}

/** For operators. Its sockets and waits end within a second on every instance, its leases at once. Throws not_found. */
export async function revokeToken(admin: Sql, id: string): Promise<void> {
  const rows = await admin`
    update patchcord.tokens set revoked_at = coalesce(revoked_at, clock_timestamp())
    where id::text = ${id.toLowerCase()} returning id`
  if (rows.length > 0) return
  throw new PatchcordError('not_found', `There is no token ${id.slice(0, 60)}.`, {
    hint: 'list-tokens shows their ids.',
  })
}

/**
 * For operators: revokes a token and issues its successor of the same agent and label in one step; it lives as long as the
 * old one was to live unless `expiresInSeconds` says otherwise. Throws not_found, or conflict for one that has ended already.
 */
export async function rotateToken(
  admin: Sql,
  input: { id: string; expiresInSeconds?: number | undefined },
): Promise<{ token: string; id: string; agent: string; namespace: string }> {
  const token = createTokenText()
  const seconds = input.expiresInSeconds ?? null
  return await admin.begin(async (sql) => {
    const [old] = await sql`
      update patchcord.tokens set revoked_at = clock_timestamp()
      where id::text = ${input.id.toLowerCase()} and revoked_at is null
      returning id, namespace_uuid, agent_uuid, label, expires_at - created_at as life`
    if (!old) throw await explainMissing(sql, input.id)
    const [row] = await sql`
      insert into patchcord.tokens (namespace_uuid, agent_uuid, hash, label, rotated_from, expires_at)
      select ${old.namespace_uuid}, ${old.agent_uuid}, decode(${hashToken(token)}, 'hex'), ${old.label}, ${old.id},
        clock_timestamp() + coalesce(make_interval(secs => ${seconds}::float8), ${old.life}::interval)
      returning id`
    const [who] = await sql`
      select a.name as agent, n.name as namespace
      from patchcord.agents a join patchcord.namespaces n on n.id = a.namespace_uuid where a.id = ${old.agent_uuid}`
    return { token, id: row?.id as string, agent: who?.agent as string, namespace: who?.namespace as string }
  })
}

async function explainMissing(sql: TransactionSql, id: string): Promise<PatchcordError> {
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

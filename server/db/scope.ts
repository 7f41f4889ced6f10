import type { Limits } from '../config.ts'
import { type ErrorCode, PatchcordError } from '../errors.ts'
import type { Wake, WakeBus } from '../wakes/bus.ts'
import type { Sql, TransactionSql } from './connect.ts'
import { connectionLost, isConnectionLost, translateDatabaseError } from './errors.ts'
import type { Turns } from './turns.ts'

/** Who a token is. Ids are UUIDs; `agent` and `namespace` are the names that people see. */
export interface Identity {
  tokenId: string
  agentId: string
  namespaceId: string
  agent: string
  namespace: string
  label: string
  /** ISO time, null: never. */
  expiresAt: string | null
  /** ISO time; null: the namespace is not paused. */
  pausedAt: string | null
}

/** What a domain function works in: the caller's token and where wakes go. The token is resolved by the database, in each call. */
export interface Scope {
  sql: Sql
  /** SHA-256 of the token, hex. */
  tokenHash: string
  limits: Limits
  bus: WakeBus
  /** Shares the database out among tokens; without it everything runs at once. */
  turns?: Turns
  /** Gathers sends that come at once; without it each is a statement of its own. */
  sends?: SendBatch
  /** Of the request, for logs: it goes with its wakes to every instance, and to nobody else. */
  trace?: string
  observer?: ScopeObserver
}

/** Hears what the calls of scopes come to, to count and to log it; it must not throw. */
export interface ScopeObserver {
  settled(outcome: Outcome, trace: string | undefined): void
  /** Of an MCP tool; `outcome` is `ok` or the code of its error. */
  toolCalled(tool: string, outcome: 'ok' | ErrorCode, milliseconds: number): void
}

/** The rows of an entry function's statement: one. */
export type EntryRows = { answer: unknown }[]

/** A send, or with `answers` (the id of a message) an answer to it. */
export interface SendRow {
  /** SHA-256 of the token, hex. */
  hash: string
  content: string | null
  key: string | null
  body_hash: string
  to?: string[]
  namespaces?: (string | null)[]
  thread?: string | null
  kind?: string
  urgency?: string
  expires_in?: number | null
  answers?: string
  state?: string
}

export interface SendBatch {
  /**
   * Stores one row: at once and `alone` when nothing else is under way, else together with what waits by then. What it rejects
   * with is an error of this row, or of the database, as `alone` would.
   */
  add(row: SendRow, alone: () => Promise<EntryRows>): Promise<EntryRows>
  /** Rows that wait now. */
  readonly waiting: number
}

/** What every entry function answers: an outcome, and what belongs to it. */
export type Outcome = { outcome: string; wakes?: Wake[] } & Record<string, unknown>

/** What an entry function says of a token first of all. */
export interface Entrance {
  outcome: string
  retry_after_seconds?: number | null
  banned_until?: string | null
}

/** What the database says of a token, before its outcome is looked at. */
export interface Identified extends Entrance {
  token_id: string
  agent_id: string
  namespace_id: string
  agent: string
  namespace: string
  label: string
  expires_at: string | null
  paused_at: string | null
}

/** Throws the error of a token that may not enter; any other outcome is the caller's to read. */
export function checkEntrance(outcome: Entrance): void {
  switch (outcome.outcome) {
    case 'token_rejected':
      throw new PatchcordError('token_rejected', 'The token is not valid or has expired.', {
        hint: 'Ask for a new token and put it into .mcp.json.',
      })
    case 'token_revoked':
      throw new PatchcordError('token_revoked', 'The token was revoked.', {
        hint: 'Ask for a new token and put it into .mcp.json.',
      })
    case 'agent_gone':
      throw new PatchcordError('agent_gone', 'The agent of this token was deleted.', {
        hint: 'Ask for a token of another agent.',
      })
    case 'banned':
      throw new PatchcordError('rate_limited', `This token is banned until ${toIsoTime(outcome.banned_until)}.`, {
        hint: 'Too many of its calls were refused within a minute. Nothing was stored; call again then, and more slowly.',
        retryAfterSeconds: Number(outcome.retry_after_seconds ?? 60),
      })
    case 'paused':
      throw new PatchcordError('paused', 'A person has paused this namespace: nothing is sent, and nobody is woken.', {
        hint: 'Nothing was stored. Inbox and history can be read; only a person can resume it, in the dashboard.',
      })
    case 'rate_limited':
      throw new PatchcordError('rate_limited', 'Too many messages from this token.', {
        hint: 'Nothing was stored. Wait, then send again.',
        retryAfterSeconds: Number(outcome.retry_after_seconds ?? 1),
      })
  }
}

function toIsoTime(text: string | null | undefined): string {
  return new Date(text ?? Number.NaN).toISOString().replace(/\.\d+/, '')
}

/**
 * Runs one entry function (one statement, its own transaction), publishes its wakes after the commit, and throws for a
 * token that may not enter. `call` returns rows with one jsonb column named `answer`.
 */
export async function callEntry(scope: Scope, call: (sql: Sql) => Promise<EntryRows>): Promise<Outcome> {
  return await enter(scope, () => call(scope.sql))
}

/** The same for a send or an answer, which may go with others in one transaction; one without a `row` goes alone. */
export async function callSend(
  scope: Scope,
  row: Omit<SendRow, 'hash'> | null,
  call: (sql: Sql) => Promise<EntryRows>,
): Promise<Outcome> {
  const { sends, tokenHash, sql } = scope
  const alone = () => call(sql)
  return await enter(scope, () => (sends && row ? sends.add({ ...row, hash: tokenHash }, alone) : alone()))
}

async function enter(scope: Scope, call: () => Promise<EntryRows>): Promise<Outcome> {
  const rows = await inTurn(scope, scope.tokenHash, () => reach(() => requireRow(call)))
  const outcome = rows[0]?.answer as Outcome
  checkEntrance(outcome)
  if (outcome.wakes) scope.bus.publish(outcome.wakes, scope.trace)
  scope.observer?.settled(outcome, scope.trace)
  return outcome
}

/** A query that is cut off with its connection can end without rows and without an error. */
async function requireRow(call: () => PromiseLike<readonly unknown[]>): Promise<EntryRows> {
  const rows = await call()
  if (rows.length === 0) throw connectionLost()
  return rows as EntryRows
}

/** A transaction that goes on under RLS as the agent of the token: for reads that need no function of their own. */
export async function asAgent<T>(scope: Scope, work: (sql: TransactionSql, me: Identity) => Promise<T>): Promise<T> {
  return await inTurn(scope, scope.tokenHash, () => enterAgent(scope, work))
}

async function inTurn<T>({ turns }: { turns?: Turns }, key: string, work: () => Promise<T>): Promise<T> {
  return turns ? await turns(key, work) : await work()
}

async function enterAgent<T>(scope: Scope, work: (sql: TransactionSql, me: Identity) => Promise<T>): Promise<T> {
  return await inTransaction(scope.sql, async (sql) => {
    const [row] = await sql`select patchcord.enter_agent(${scope.tokenHash}) as answer`
    return await work(sql, toIdentity(row?.answer as Identified))
  })
}

async function inTransaction<T>(pool: Sql, work: (sql: TransactionSql) => Promise<T>): Promise<T> {
  return (await reach(() =>
    pool.begin(async (sql) => {
      try {
        return await work(sql)
      } catch (error) {
        // postgres.js would write its rollback to the lost connection, which throws where nobody can catch it. `begin` has
        // heard of the loss itself and rejects.
        if (isConnectionLost(error)) await new Promise(() => {})
        throw error
      }
    }),
  )) as T
}

/** Resolves a token hash to its identity. Throws token_rejected, token_revoked, agent_gone or unavailable. */
export async function resolveIdentity(sql: Sql, tokenHash: string): Promise<Identity> {
  const [row] = await reach(() => requireRow(() => sql`select patchcord.resolve_token(${tokenHash}) as answer`))
  return toIdentity(row?.answer as Identified)
}

/** Throws for a token that may not enter. */
export function toIdentity(entrance: Identified): Identity {
  checkEntrance(entrance)
  return {
    tokenId: entrance.token_id,
    agentId: entrance.agent_id,
    namespaceId: entrance.namespace_id,
    agent: entrance.agent,
    namespace: entrance.namespace,
    label: entrance.label,
    expiresAt: entrance.expires_at,
    pausedAt: entrance.paused_at,
  }
}

/** Runs a query; a fault of the database that passes is `unavailable`. */
export async function reach<T>(run: () => Promise<T>): Promise<T> {
  try {
    return await run()
  } catch (error) {
    throw translateDatabaseError(error)
  }
}

/** What a domain function of the dashboard works in: the session of a person, which the database resolves in each call. */
export interface PersonScope {
  sql: Sql
  /** SHA-256 of the session's secret, hex. */
  sessionHash: string
  /** Shares the database out among sessions; without it everything runs at once. */
  turns?: Turns
  /** Told who came in as a member, and with it how the namespace is now. */
  entered?: (me: Member) => void
}

export interface Person {
  personId: string
  sessionId: string
  name: string
  email: string | null
}

export type MemberRole = 'owner' | 'admin' | 'member'

export interface Member extends Person {
  namespaceId: string
  namespace: string
  role: MemberRole
  /** ISO time; null: the namespace is not paused. */
  pausedAt: string | null
}

const RANK: Record<MemberRole, number> = { member: 0, admin: 1, owner: 2 }

interface EnteredPerson {
  outcome: string
  person_id: string
  session_id: string
  name: string
  email: string | null
}

interface EnteredMember extends EnteredPerson {
  namespace_id: string
  namespace: string
  role: MemberRole
  paused_at: string | null
}

/** A transaction that goes on under RLS as the person of this session. Throws signed_out. */
export async function asPerson<T>(
  scope: PersonScope,
  work: (sql: TransactionSql, me: Person) => Promise<T>,
): Promise<T> {
  return await inTurn(scope, scope.sessionHash, () =>
    inTransaction(scope.sql, async (sql) => {
      const [row] = await sql`select patchcord.enter_person(${scope.sessionHash}) as answer`
      return await work(sql, toPerson(row?.answer as EnteredPerson))
    }),
  )
}

/**
 * The same as a member of a namespace. Throws signed_out, not_found (no such namespace, or none of theirs: one answer), and
 * forbidden for a role below `atLeast`.
 */
export async function asMember<T>(
  scope: PersonScope,
  namespace: string,
  work: (sql: TransactionSql, me: Member) => Promise<T>,
  atLeast: MemberRole = 'member',
): Promise<T> {
  // Postgres has no text with a NUL in it, and so no namespace of that name.
  if (namespace.includes('\0')) throw nothingHere()
  return await inTurn(scope, scope.sessionHash, () =>
    inTransaction(scope.sql, async (sql) => {
      const [row] = await sql`select patchcord.enter_member(${scope.sessionHash}, ${namespace}) as answer`
      const me = toMember(row?.answer as EnteredMember)
      scope.entered?.(me)
      if (RANK[me.role] < RANK[atLeast]) throw forbidden(me.role, atLeast)
      return await work(sql, me)
    }),
  )
}

function toPerson(entered: EnteredPerson): Person {
  if (entered.outcome === 'signed_out')
    throw new PatchcordError('signed_out', 'You are signed out.', { hint: 'Sign in again.' })
  return { personId: entered.person_id, sessionId: entered.session_id, name: entered.name, email: entered.email }
}

function toMember(entered: EnteredMember): Member {
  if (entered.outcome === 'not_found') throw nothingHere()
  return {
    ...toPerson(entered),
    namespaceId: entered.namespace_id,
    namespace: entered.namespace,
    role: entered.role,
    pausedAt: entered.paused_at,
  }
}

function nothingHere(): PatchcordError {
  return new PatchcordError('not_found', 'There is nothing here.')
}

function forbidden(role: MemberRole, atLeast: MemberRole): PatchcordError {
  const who = atLeast === 'owner' ? 'an owner' : 'an owner or an admin'
  return new PatchcordError('forbidden', `This needs ${who} of the namespace; you are ${role} here.`, {
    hint: 'Ask an owner: the page of members shows who they are.',
  })
}

import type { AnySql, Sql } from '../db/connect.ts'
import { asPerson, type Person, type PersonScope, reach } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'
import { createCode, hashCode, isCode } from './codes.ts'

const NAME_CHARACTERS_MAX = 60
const CLIENT_CHARACTERS_MAX = 80
const OPEN_LINKS_MAX = 20
/** Letters, digits, marks and single spaces: a name is shown to people beside what they decide on. */
const NAME_PATTERN = /^[\p{L}\p{N}\p{P}\p{S}](?:[\p{L}\p{M}\p{N}\p{P}\p{S} ]*[\p{L}\p{M}\p{N}\p{P}\p{S}])?$/u
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** What the audit calls somebody who is no person. */
const RESERVED = ['operator', 'patchcord']

/** The name of a person. Throws invalid. */
export function checkPersonName(text: string): string {
  const name = text.normalize('NFC').trim().replaceAll(/ +/g, ' ')
  if (RESERVED.includes(name.normalize('NFKC').toLowerCase())) {
    throw new PatchcordError('invalid', `${name} is not a name for a person here.`, { hint: 'Choose another name.' })
  }
  if ([...name].length <= NAME_CHARACTERS_MAX && NAME_PATTERN.test(name)) return name
  throw new PatchcordError('invalid', `A name has 1 to ${NAME_CHARACTERS_MAX} letters, digits, spaces and marks.`)
}

/** A browser's short description as it may be stored: whatever came. */
export function toClient(text: string): string {
  const plain = text.replaceAll(/[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu, '').trim()
  return [...plain].slice(0, CLIENT_CHARACTERS_MAX).join('') || 'unknown'
}

export interface LoginLink {
  code: string
  /** Whom it signs in. */
  person: string
  expires_at: string
}

/**
 * For operators: a link for the person of this name, address or id, or for the operator, who is made with the first link.
 * Throws not_found, or conflict where several people have the name.
 */
export async function createLoginLink(
  admin: Sql,
  input: { person?: string | undefined } = {},
): Promise<LoginLink & { id: string }> {
  const code = createCode()
  return await reach(() =>
    admin.begin(async (sql) => {
      const { id, name } = input.person === undefined ? await findOperator(sql) : await findPerson(sql, input.person)
      const [row] = await sql`
        insert into patchcord.login_links (hash, person_uuid) values (decode(${hashCode(code)}, 'hex'), ${id})
        returning to_jsonb(expires_at) as expires_at`
      return { id, code, person: name, expires_at: row?.expires_at as string }
    }),
  )
}

type Found = { id: string; name: string }

async function findOperator(sql: AnySql): Promise<Found> {
  // Two first links at once make one person.
  await sql`select pg_advisory_xact_lock(hashtextextended('patchcord.people operator', 0))`
  const [row] = await sql`select id, name from patchcord.people where is_operator order by created_at, id limit 1`
  if (row) return row as unknown as Found
  const [made] = await sql`
    insert into patchcord.people (name, is_operator) values ('owner', true) returning id, name`
  return made as unknown as Found
}

async function findPerson(sql: AnySql, text: string): Promise<Found> {
  const rows = await sql`
    select id, name from patchcord.people
    where id::text = ${text.toLowerCase()} or name = ${text} or lower(email) = ${text.toLowerCase()}
    order by created_at limit 5`
  const [first, second] = rows as unknown as Found[]
  const shown = text.slice(0, 60)
  if (!first)
    throw new PatchcordError('not_found', `There is no person ${shown}.`, { hint: 'An invite makes a new one.' })
  if (!second) return first
  throw new PatchcordError('conflict', `Several people are called ${shown}.`, {
    hint: `Name one by id: ${rows.map((row) => row.id as string).join(', ')}.`,
  })
}

/** Whether anybody has ever signed in. For operators. */
export async function hasAnyoneSignedIn(admin: Sql): Promise<boolean> {
  const [row] = await admin`select from patchcord.security_log where event = 'signed_in' limit 1`
  if (row) return true
  const [session] = await admin`select from patchcord.sessions limit 1`
  return session !== undefined
}

/** A link to sign in on another device as oneself. Throws rate_limited for one too many. */
export async function createOwnLoginLink(scope: PersonScope): Promise<{ code: string; expires_at: string }> {
  const code = createCode()
  return await asPerson(scope, async (sql, me) => {
    const open = await sql`
      select from patchcord.login_links where used_at is null and expires_at > clock_timestamp() limit ${OPEN_LINKS_MAX}`
    if (open.length === OPEN_LINKS_MAX) {
      throw new PatchcordError('rate_limited', `${OPEN_LINKS_MAX} links of yours wait to be opened already.`, {
        hint: 'Each ends after 15 minutes.',
        retryAfterSeconds: 900,
      })
    }
    const [row] = await sql`
      insert into patchcord.login_links (hash, person_uuid) values (decode(${hashCode(code)}, 'hex'), ${me.personId})
      returning to_jsonb(expires_at) as expires_at`
    return { code, expires_at: row?.expires_at as string }
  })
}

/** Whom a link signs in; null for one that is unknown, used or expired. */
export async function findLoginLink(sql: Sql, code: string): Promise<{ person: string; expires_at: string } | null> {
  if (!isCode(code)) return null
  const [row] = await reach(() => sql`select patchcord.find_login_link(${hashCode(code)}) as answer`)
  return row?.answer as { person: string; expires_at: string } | null
}

export interface SignedIn {
  /** The secret for the cookie: it is nowhere else. */
  session: string
  person: string
}

export interface SignIn {
  code: string
  client: string
  /** Hash of the session that the browser has: it ends. */
  endSession?: string | undefined
}

/** Throws not_found for a link that is unknown, used or expired: one answer. */
export async function signIn(sql: Sql, input: SignIn): Promise<SignedIn> {
  const session = createCode()
  const [row] = isCode(input.code)
    ? await reach(
        () => sql`
          select patchcord.sign_in(${hashCode(input.code)}, ${hashCode(session)}, ${toClient(input.client)},
            ${input.endSession ?? null}) as answer`,
      )
    : []
  const answer = row?.answer as { outcome: string; person: string } | undefined
  if (answer?.outcome === 'ok') return { session, person: answer.person }
  throw new PatchcordError('not_found', 'This sign-in link is unknown, used or expired.', {
    hint: 'Each works once, within 15 minutes. "patchcord login-link" makes a new one.',
  })
}

export interface SignInWithSubject {
  /** The `sub` that Supabase Auth vouches for. */
  subject: string
  email: string | null
  name: string
  client: string
  signup: 'invite' | 'open'
  /** Code of an invite that is taken on the way. */
  invite?: string | undefined
  endSession?: string | undefined
}

/** Throws forbidden for somebody new without a valid invite where signing up needs one. */
export async function signInWithSubject(sql: Sql, input: SignInWithSubject): Promise<SignedIn> {
  const session = createCode()
  const invite = input.invite !== undefined && isCode(input.invite) ? hashCode(input.invite) : null
  const [row] = await reach(
    () => sql`
      select patchcord.sign_in_with_subject(${input.subject}, ${input.email}, ${toPersonName(input)},
        ${input.signup === 'open'}, ${invite}, ${hashCode(session)}, ${toClient(input.client)},
        ${input.endSession ?? null}) as answer`,
  )
  const answer = row?.answer as { outcome: string; person: string }
  if (answer.outcome === 'ok') return { session, person: answer.person }
  throw new PatchcordError('forbidden', 'New people come here by invitation only.', {
    hint: 'Ask an owner of a namespace for an invite, and open its link.',
  })
}

/** What a provider says of somebody may not be a name here: then the address stands for it. */
function toPersonName({ name, email }: SignInWithSubject): string {
  for (const text of [name, email?.split('@')[0] ?? '', 'somebody']) {
    try {
      return checkPersonName(text)
    } catch (error) {
      if (!(error instanceof PatchcordError)) throw error
    }
  }
  return 'somebody'
}

/** Ends this session. */
export async function signOut(scope: PersonScope): Promise<void> {
  await asPerson(scope, async (sql, me) => {
    await sql`update patchcord.sessions set ended_at = clock_timestamp() where id = ${me.sessionId}`
  })
}

export interface SessionLine {
  id: string
  client: string
  created_at: string
  last_seen_at: string
  is_this: boolean
}

/** Where the person is signed in, the latest first. */
export async function listSessions(scope: PersonScope): Promise<SessionLine[]> {
  return await asPerson(scope, async (sql, me) => {
    const [row] = await sql`
      select coalesce(jsonb_agg(jsonb_build_object('id', s.id, 'client', s.client, 'created_at', s.created_at,
        'last_seen_at', s.last_seen_at, 'is_this', s.id = ${me.sessionId}) order by s.last_seen_at desc, s.id), '[]') as lines
      from patchcord.sessions s
      where s.person_uuid = ${me.personId} and s.ended_at is null and s.expires_at > clock_timestamp()
        and s.last_seen_at > clock_timestamp() - interval '7 days'`
    return row?.lines as SessionLine[]
  })
}

/** Signs another browser of one's own out, and voids the links that it may have made. Throws not_found. */
export async function endSession(scope: PersonScope, input: { id: string }): Promise<void> {
  await asPerson(scope, async (sql) => {
    const rows = UUID.test(input.id)
      ? await sql`
          update patchcord.sessions set ended_at = clock_timestamp() where id = ${input.id} and ended_at is null
          returning id`
      : []
    if (rows.length === 0) throw new PatchcordError('not_found', 'There is no such session.')
  })
}

/** Throws signed_out. */
export async function getMe(scope: PersonScope): Promise<Person> {
  return await asPerson(scope, async (_sql, me) => me)
}

/** Throws invalid. */
export async function renamePerson(scope: PersonScope, input: { name: string }): Promise<void> {
  const name = checkPersonName(input.name)
  await asPerson(scope, async (sql, me) => {
    await sql`update patchcord.people set name = ${name} where id = ${me.personId}`
  })
}

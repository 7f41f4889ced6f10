import type { Sql, TransactionSql } from '../db/connect.ts'
import { asMember, asPerson, type MemberRole, type PersonScope, reach } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'
import { createCode, hashCode, isCode, toFormId } from './codes.ts'
import { checkPersonName, toClient } from './people.ts'

const PEOPLE_MAX = 300
const ROLES: readonly string[] = ['owner', 'admin', 'member']

export interface MemberLine {
  person_id: string
  name: string
  email: string | null
  role: MemberRole
  created_at: string
  is_you: boolean
}

/** Owners first, then admins, each by name. */
export async function listMembers(scope: PersonScope, input: { namespace: string }): Promise<MemberLine[]> {
  return await asMember(scope, input.namespace, async (sql, me) => {
    const [row] = await sql`
      select coalesce(jsonb_agg(jsonb_build_object('person_id', p.id, 'name', p.name, 'email', p.email, 'role', m.role,
        'created_at', m.created_at, 'is_you', p.id = ${me.personId})
        order by array_position(array['owner', 'admin', 'member'], m.role), p.name, p.id), '[]') as lines
      from patchcord.members m join patchcord.people p on p.id = m.person_uuid
      where m.namespace_uuid = ${me.namespaceId}`
    return row?.lines as MemberLine[]
  })
}

export interface SetRole {
  namespace: string
  personId: string
  role: MemberRole
  /** The role that the page showed: a change of somebody else in between is a conflict. */
  seen: MemberRole
}

/** For owners. Throws not_found, or conflict when the role is not `seen` any more, and for the last owner. */
export async function setRole(scope: PersonScope, input: SetRole): Promise<void> {
  const role = checkRole(input.role)
  await asMember(
    scope,
    input.namespace,
    async (sql, me) => {
      const rows = await sql`
        update patchcord.members set role = ${role}
        where namespace_uuid = ${me.namespaceId} and person_uuid::text = ${input.personId} and role = ${input.seen}
        returning role`
      if (rows.length > 0) return
      const now = await findRole(sql, me.namespaceId, input.personId)
      throw new PatchcordError('conflict', `Somebody else has changed this meanwhile: the role is ${now} now.`, {
        hint: 'Look again, then decide.',
      })
    },
    'owner',
  )
}

/** For owners, and to leave. What the person has opened ends with the next request. Throws not_found, forbidden or conflict. */
export async function removeMember(scope: PersonScope, input: { namespace: string; personId: string }): Promise<void> {
  await asMember(scope, input.namespace, async (sql, me) => {
    if (me.role !== 'owner' && input.personId !== me.personId) {
      throw new PatchcordError('forbidden', 'Only an owner removes other people.', { hint: 'Ask an owner.' })
    }
    const rows = await sql`
      delete from patchcord.members where namespace_uuid = ${me.namespaceId} and person_uuid::text = ${input.personId}
      returning role`
    if (rows.length === 0) throw noMember()
  })
}

async function findRole(sql: TransactionSql, namespaceId: string, personId: string): Promise<string> {
  const [row] = await sql`
    select role from patchcord.members where namespace_uuid = ${namespaceId} and person_uuid::text = ${personId}`
  if (row) return row.role as string
  throw noMember()
}

function noMember(): PatchcordError {
  return new PatchcordError('not_found', 'There is no such member here.')
}

/** What a form sent. Throws invalid. */
function checkRole(role: string): MemberRole {
  if (ROLES.includes(role)) return role as MemberRole
  throw new PatchcordError('invalid', 'A role is owner, admin or member.')
}

export interface CreateInvite {
  namespace: string
  role: MemberRole
  /** Of the form: a second submit of it makes nothing. */
  id?: string | undefined
}

/** For owners. The code is in the answer and nowhere else. Throws conflict for a form that was sent before, forbidden where there is no room. */
export async function createInvite(
  scope: PersonScope,
  input: CreateInvite,
): Promise<{ id: string; code: string; expires_at: string }> {
  const code = createCode()
  const role = checkRole(input.role)
  return await asMember(
    scope,
    input.namespace,
    async (sql, me) => {
      await checkRoom(sql, me.namespaceId)
      const id = toFormId(`${me.namespaceId} ${me.personId}`, input.id ?? createCode())
      const [row] = await sql`
        insert into patchcord.invites (id, hash, namespace_uuid, role, created_by)
        values (${id}, decode(${hashCode(code)}, 'hex'), ${me.namespaceId}, ${role}, ${me.personId})
        on conflict (id) do nothing
        returning to_jsonb(expires_at) as expires_at`
      if (row) return { id, code, expires_at: row.expires_at as string }
      throw new PatchcordError('conflict', 'This form was sent before: the invite is there, its link was shown once.', {
        hint: 'Revoke that invite and make another one.',
      })
    },
    'owner',
  )
}

/** A page lists them all. */
async function checkRoom(sql: TransactionSql, namespaceId: string): Promise<void> {
  const [row] = await sql`
    select (select count(*) from patchcord.members where namespace_uuid = ${namespaceId}) + (
      select count(*) from patchcord.invites
      where namespace_uuid = ${namespaceId} and used_at is null and revoked_at is null and expires_at > clock_timestamp()
    ) as people`
  if ((row?.people as number) < PEOPLE_MAX) return
  throw new PatchcordError('forbidden', `A namespace has room for ${PEOPLE_MAX} people, open invites among them.`, {
    hint: 'Revoke invites, or remove people, that are not needed any more.',
  })
}

export interface InviteLine {
  id: string
  role: MemberRole
  /** Name of who made it. */
  created_by: string
  created_at: string
  expires_at: string
}

/** Those that still open the door, the latest first. */
export async function listInvites(scope: PersonScope, input: { namespace: string }): Promise<InviteLine[]> {
  return await asMember(scope, input.namespace, async (sql, me) => {
    const [row] = await sql`
      select coalesce(jsonb_agg(jsonb_build_object('id', i.id, 'role', i.role, 'created_by', p.name,
        'created_at', i.created_at, 'expires_at', i.expires_at) order by i.created_at desc, i.id), '[]') as lines
      from patchcord.invites i join patchcord.people p on p.id = i.created_by
      where i.namespace_uuid = ${me.namespaceId} and i.used_at is null and i.revoked_at is null
        and i.expires_at > clock_timestamp()`
    return row?.lines as InviteLine[]
  })
}

/** For owners. Throws not_found for one that is unknown, used or revoked. */
export async function revokeInvite(scope: PersonScope, input: { namespace: string; id: string }): Promise<void> {
  await asMember(
    scope,
    input.namespace,
    async (sql, me) => {
      const rows = await sql`
        update patchcord.invites set revoked_at = clock_timestamp()
        where namespace_uuid = ${me.namespaceId} and id::text = ${input.id} and used_at is null and revoked_at is null
        returning id`
      if (rows.length === 0) throw new PatchcordError('not_found', 'There is no such open invite.')
    },
    'owner',
  )
}

export interface Invite {
  namespace: string
  role: MemberRole
  invited_by: string
  expires_at: string
}

/** What an invite opens; null for one that opens nothing (any more). */
export async function findInvite(sql: Sql, code: string): Promise<Invite | null> {
  if (!isCode(code)) return null
  const [row] = await reach(() => sql`select patchcord.find_invite(${hashCode(code)}) as answer`)
  return row?.answer as Invite | null
}

/** Whoever is signed in becomes a member. Throws not_found, or conflict for a member, who uses nothing up. */
export async function acceptInvite(scope: PersonScope, input: { code: string }): Promise<{ namespace: string }> {
  if (!isCode(input.code)) throw noInvite()
  return await asPerson(scope, async (sql) => {
    const [row] = await sql`select patchcord.accept_invite(${hashCode(input.code)}) as answer`
    const answer = row?.answer as { outcome: string; namespace: string }
    if (answer.outcome === 'ok') return { namespace: answer.namespace }
    if (answer.outcome === 'not_found') throw noInvite()
    throw new PatchcordError('conflict', `You are a member of ${answer.namespace} already.`, {
      hint: 'The invite still works for somebody else.',
    })
  })
}

export interface JoinByInvite {
  code: string
  name: string
  client: string
  endSession?: string | undefined
}

/** A new person, signed in and a member. Throws invalid for the name, not_found for an invite that opens nothing. */
export async function joinByInvite(
  sql: Sql,
  input: JoinByInvite,
): Promise<{ session: string; person: string; namespace: string }> {
  const name = checkPersonName(input.name)
  const session = createCode()
  if (!isCode(input.code)) throw noInvite()
  const [row] = await reach(
    () => sql`
      select patchcord.join_by_invite(${hashCode(input.code)}, ${name}, ${hashCode(session)}, ${toClient(input.client)},
        ${input.endSession ?? null}) as answer`,
  )
  const answer = row?.answer as { outcome: string; person: string; namespace: string }
  if (answer.outcome === 'ok') return { session, person: answer.person, namespace: answer.namespace }
  throw noInvite()
}

function noInvite(): PatchcordError {
  return new PatchcordError('not_found', 'This invite is unknown, used, revoked or expired.', {
    hint: 'Ask whoever sent it for a new one.',
  })
}

import type { AnySql, Sql } from '../db/connect.ts'
import { asMember, asPerson, type MemberRole, type PersonScope } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'
import { checkName, NameTaken } from './names.ts'

const NAMESPACES_PER_PERSON_MAX = 50
const MESSAGES_COUNTED_MAX = 10_000

/** For operators: a new tenant, which belongs to the operator's person, if there is one. Throws invalid, or conflict for a name that is taken or stands in messages of another one. */
export async function createNamespace(admin: Sql, input: { name: string }): Promise<{ id: string; name: string }> {
  const name = checkName(input.name, 'namespace')
  const [row] = await takingName(admin`
    insert into patchcord.namespaces (name) values (${name}) on conflict (name) do nothing returning id`)
  if (row) {
    await admin`
      select patchcord.adopt_namespaces(id) from patchcord.people where is_operator order by created_at, id limit 1`
    return { id: row.id as string, name }
  }
  throw new NameTaken(`Namespace ${name} exists already.`)
}

export async function listNamespaces(admin: Sql): Promise<{ name: string; agents: number; created_at: string }[]> {
  const rows = await admin`
    select n.name, count(a.id)::integer as agents, n.created_at
    from patchcord.namespaces n left join patchcord.agents a on a.namespace_uuid = n.id and a.deleted_at is null
    where n.deleted_at is null
    group by n.id order by n.name`
  return [...rows] as unknown as { name: string; agents: number; created_at: string }[]
}

/** For operators. Throws not_found. */
export async function findNamespaceId(admin: AnySql, name: string): Promise<string> {
  const [row] = await admin`select id from patchcord.namespaces where name = ${name} and deleted_at is null`
  if (row) return row.id as string
  throw new PatchcordError('not_found', `There is no namespace ${name}.`, { hint: 'create-namespace makes one.' })
}

/**
 * For operators. Agents, tokens and messages stay; sockets and waits under the old name end within a second, and listeners
 * connect again. Throws invalid, not_found, or conflict for a name that is taken or still stands in messages.
 */
export async function renameNamespace(
  admin: AnySql,
  input: { name: string; newName: string },
): Promise<{ id: string }> {
  const name = checkName(input.newName, 'namespace')
  const id = await findNamespaceId(admin, input.name)
  // Of two who rename at once the second renames nothing that it has not seen.
  const rows = await takingName(
    admin`update patchcord.namespaces set name = ${name} where id = ${id} and name = ${input.name} returning id`,
    `Namespace ${name} exists already.`,
  )
  if (rows.length > 0) return { id }
  throw new PatchcordError('conflict', `Somebody else has renamed ${input.name} meanwhile.`, { hint: 'Look again.' })
}

/** Constraints of names: somebody has it, or had it and messages carry it. */
const NAME_CONSTRAINTS = ['former_name', 'namespaces_name_key', 'agents_namespace_uuid_name_key']

/** The answer of a statement that gives a name to somebody. Throws conflict where it is taken, or messages of another carry it. */
export async function takingName<T>(statement: PromiseLike<T>, taken = 'This name exists already.'): Promise<T> {
  try {
    return await statement
  } catch (error) {
    const constraint = error instanceof Error && 'constraint_name' in error ? String(error.constraint_name) : ''
    if (!(error instanceof Error) || !NAME_CONSTRAINTS.includes(constraint)) throw error
    throw new NameTaken(constraint === 'former_name' ? error.message : taken, error)
  }
}

/** What `work` answers; the refusal of a name gets one that is free into its hint. */
export async function suggestingName<T>(work: () => Promise<T>, suggest: () => Promise<string | null>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof NameTaken)) throw error
    const suggestion = await suggest()
    if (suggestion === null) throw error
    throw new PatchcordError('conflict', error.message, {
      hint: `${suggestion} is free.`,
      details: { suggestion },
      cause: error,
    })
  }
}

export interface MyNamespace {
  name: string
  role: MemberRole
  agents: number
  wakeable: number
  /** New messages, older than two minutes, of agents that are not wakeable. */
  waiting: number
  paused_at: string | null
  created_at: string
}

/** Where the person is a member, by name. */
export async function listMyNamespaces(scope: PersonScope): Promise<MyNamespace[]> {
  return await asPerson(scope, async (sql) => {
    const [row] = await sql`select patchcord.my_namespaces() as namespaces`
    return row?.namespaces as MyNamespace[]
  })
}

/** A new namespace that the person owns. Throws invalid, forbidden for one too many, or conflict with a free name in its hint. */
export async function foundNamespace(scope: PersonScope, input: { name: string }): Promise<{ name: string }> {
  const name = checkName(input.name, 'namespace')
  await suggestingName(
    () =>
      asPerson(scope, async (sql) => {
        const [row] = await takingName(sql`
          select patchcord.found_namespace(${name}, ${NAMESPACES_PER_PERSON_MAX}) as outcome`)
        if (row?.outcome === 'taken') throw new NameTaken(`Namespace ${name} exists already.`)
        if (row?.outcome !== 'too_many') return
        throw new PatchcordError('forbidden', `You own ${NAMESPACES_PER_PERSON_MAX} namespaces already.`, {
          hint: 'Delete one that is not needed any more.',
        })
      }),
    () => suggestNamespaceName(scope, name),
  )
  return { name }
}

async function suggestNamespaceName(scope: PersonScope, wanted: string): Promise<string | null> {
  return await asPerson(scope, async (sql) => {
    const [row] = await sql`select patchcord.free_namespace_name(${wanted}) as name`
    return row?.name as string | null
  })
}

export interface NamespaceDetails {
  name: string
  role: MemberRole
  paused_at: string | null
  created_at: string
  agents: number
  /** Stored ones; 10,000 stands for more, too. */
  messages: number
  members: number
}

export async function getNamespace(scope: PersonScope, input: { namespace: string }): Promise<NamespaceDetails> {
  return await asMember(scope, input.namespace, async (sql, me) => {
    const [row] = await sql`
      select to_jsonb(n.created_at) as created_at,
        (select count(*) from patchcord.agents a where a.namespace_uuid = n.id and a.deleted_at is null) as agents,
        (select count(*) from patchcord.members m where m.namespace_uuid = n.id) as members,
        (select count(*) from (
          select from patchcord.agents a join patchcord.message_bodies b on b.from_agent_uuid = a.id
          where a.namespace_uuid = n.id limit ${MESSAGES_COUNTED_MAX}
        ) counted) as messages
      from patchcord.namespaces n where n.id = ${me.namespaceId}`
    const counts = row as unknown as Pick<NamespaceDetails, 'created_at' | 'agents' | 'members' | 'messages'>
    return { name: me.namespace, role: me.role, paused_at: me.pausedAt, ...counts }
  })
}

export interface RenameMyNamespace {
  namespace: string
  newName: string
  /** The name that the page showed. */
  seen?: string | undefined
}

/** For admins. Throws as renameNamespace, with a free name in the hint of a conflict. */
export async function renameMyNamespace(scope: PersonScope, input: RenameMyNamespace): Promise<void> {
  if (input.seen !== undefined && input.seen !== input.namespace) {
    throw new PatchcordError('conflict', 'Somebody else has renamed this namespace meanwhile.', { hint: 'Look again.' })
  }
  const rename = { name: input.namespace, newName: input.newName }
  await suggestingName(
    () => asMember(scope, input.namespace, (sql) => renameNamespace(sql, rename), 'admin'),
    () => suggestNamespaceName(scope, input.newName),
  )
}

/** For owners. Everything in it is closed to everybody at once; its rows go in the background, and its name is free after that. */
export async function deleteNamespace(scope: PersonScope, input: { namespace: string }): Promise<void> {
  await asMember(
    scope,
    input.namespace,
    async (sql, me) => {
      await sql`update patchcord.namespaces set deleted_at = clock_timestamp() where id = ${me.namespaceId}`
    },
    'owner',
  )
}

/** For admins. Twice is once: the time of the first stays. */
export async function setPaused(scope: PersonScope, input: { namespace: string; paused: boolean }): Promise<void> {
  await asMember(
    scope,
    input.namespace,
    async (sql, me) => {
      await sql`
        update patchcord.namespaces
        set paused_at = case when ${input.paused}::boolean then coalesce(paused_at, clock_timestamp()) end
        where id = ${me.namespaceId}`
    },
    'admin',
  )
}

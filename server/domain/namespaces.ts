import type { Sql } from '../db/connect.ts'
import { PatchcordError } from '../errors.ts'
import { checkName } from './names.ts'

/** For operators: a new tenant. Throws invalid, or conflict for a name that is taken or stands in messages of another one. */
export async function createNamespace(admin: Sql, input: { name: string }): Promise<{ id: string; name: string }> {
  const name = checkName(input.name, 'namespace')
  const [row] = await takingName(admin`
    insert into patchcord.namespaces (name) values (${name}) on conflict (name) do nothing returning id`)
  if (row) return { id: row.id as string, name }
  throw new PatchcordError('conflict', `Namespace ${name} exists already.`, { hint: 'Choose another name.' })
}

export async function listNamespaces(admin: Sql): Promise<{ name: string; agents: number; created_at: string }[]> {
  const rows = await admin`
    select n.name, count(a.id)::integer as agents, n.created_at
    from patchcord.namespaces n left join patchcord.agents a on a.namespace_uuid = n.id and a.deleted_at is null
    group by n.id order by n.name`
  return [...rows] as unknown as { name: string; agents: number; created_at: string }[]
}

/** For operators. Throws not_found. */
export async function findNamespaceId(admin: Sql, name: string): Promise<string> {
  const [row] = await admin`select id from patchcord.namespaces where name = ${name}`
  if (row) return row.id as string
  throw new PatchcordError('not_found', `There is no namespace ${name}.`, { hint: 'create-namespace makes one.' })
}

/**
 * For operators. Agents, tokens and messages stay; sockets and waits under the old name end within a second, and listeners
 * connect again. Throws invalid, not_found, or conflict for a name that is taken or still stands in messages.
 */
export async function renameNamespace(admin: Sql, input: { name: string; newName: string }): Promise<{ id: string }> {
  const name = checkName(input.newName, 'namespace')
  const id = await findNamespaceId(admin, input.name)
  const rows = await takingName(admin`
    update patchcord.namespaces set name = ${name}
    where id = ${id} and not exists (select from patchcord.namespaces where name = ${name} and id <> ${id})
    returning id`)
  if (rows.length > 0) return { id }
  throw new PatchcordError('conflict', `Namespace ${name} exists already.`, { hint: 'Choose another name.' })
}

/** The answer of a statement that gives a name to somebody. Throws conflict where messages of another one carry it. */
export async function takingName<T>(statement: PromiseLike<T>): Promise<T> {
  try {
    return await statement
  } catch (error) {
    if (!(error instanceof Error) || !('constraint_name' in error) || error.constraint_name !== 'former_name')
      throw error
    throw new PatchcordError('conflict', error.message, { hint: 'Choose another name.', cause: error })
  }
}

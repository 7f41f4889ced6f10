import type { Sql } from '../db/connect.ts'
import { PatchcordError } from '../errors.ts'
import { checkName } from './names.ts'

/** For operators: a new tenant. Throws invalid, or conflict for a taken name. */
export async function createNamespace(admin: Sql, input: { name: string }): Promise<{ id: string; name: string }> {
  const name = checkName(input.name, 'namespace')
  await requireUnusedName(admin, name)
  const [row] = await admin`
    insert into patchcord.namespaces (name) values (${name}) on conflict (name) do nothing returning id`
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
  await requireUnusedName(admin, name, id)
  await admin.begin(async (sql) => {
    const rows = await sql`
      update patchcord.namespaces set name = ${name}
      where id = ${id} and not exists (select from patchcord.namespaces where name = ${name} and id <> ${id})
      returning id`
    if (rows.length === 0) {
      throw new PatchcordError('conflict', `Namespace ${name} exists already.`, { hint: 'Choose another name.' })
    }
    // As on_rename does for one agent: what was opened under the old address ends.
    await sql`update patchcord.agents set renamed_at = clock_timestamp() where namespace_uuid = ${id} and deleted_at is null`
  })
  return { id }
}

/** A name that another namespace had when messages were sent would let a newcomer pass for it in their history. */
async function requireUnusedName(admin: Sql, name: string, id: string | null = null): Promise<void> {
  const [row] = await admin`
    select from patchcord.agent_messages m
    where m.namespace_id = ${name} and m.to_namespace_uuid is distinct from ${id}::uuid
      and not exists (select from patchcord.namespaces n where n.name = ${name})
    limit 1`
  if (!row) return
  throw new PatchcordError('conflict', `${name} was the name of another namespace, and messages still carry it.`, {
    hint: 'Choose another name.',
  })
}

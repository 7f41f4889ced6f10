import { z } from 'zod'
import type { AnySql, Sql } from '../db/connect.ts'
import { asAgent, asMember, type PersonScope, type Scope } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'
import { checkName, NameTaken } from './names.ts'
import { findNamespaceId, suggestingName, takingName } from './namespaces.ts'

export const ListAgents = z.strictObject({
  all: z.boolean().optional().meta({ description: 'Also who is offline' }),
})

export const Agent = z.object({
  agent: z.string(),
  reach: z.enum(['wakeable', 'online', 'offline']),
  state: z.enum(['idle', 'busy']).nullable(),
  client: z.string().nullable(),
  machine: z.string().nullable(),
  lease_renewed_at: z.string().nullable(),
  last_seen_at: z.string().nullable(),
  is_you: z.boolean(),
})
export type Agent = z.output<typeof Agent>

export const Agents = z.object({
  namespace: z.string(),
  /** Only while a person has paused the namespace: nobody is woken, whatever the reach. */
  paused_at: z.string().optional(),
  agents: z.array(Agent),
  offline_left_out: z.int(),
})
export type Agents = z.output<typeof Agents>

/** A row of `patchcord.reach_of` as the wire says it. */
export function toAgent(row: Record<string, unknown>, me: string): Agent {
  return {
    agent: row.agent as string,
    reach: row.reach as Agent['reach'],
    state: row.state as Agent['state'],
    client: row.client as string | null,
    machine: row.machine as string | null,
    lease_renewed_at: row.lease_renewed_at as string | null,
    last_seen_at: row.last_seen_at as string | null,
    is_you: row.agent === me,
  }
}

/** Agents of the caller's namespace with the evidence for their reach; offline ones only with `all`. */
export async function listAgents(scope: Scope, input: z.output<typeof ListAgents>): Promise<Agents> {
  return await asAgent(scope, async (sql, me) => {
    const [row = { agents: [] }] = await sql`
      select coalesce(jsonb_agg(to_jsonb(r) order by r.agent), '[]') as agents
      from patchcord.reach_of(array(select id from patchcord.agents where deleted_at is null)) r`
    const all = (row.agents as Record<string, unknown>[]).map((each) => toAgent(each, me.agent))
    const shown = input.all ? all : all.filter((agent) => agent.reach !== 'offline')
    const paused = me.pausedAt === null ? {} : { paused_at: me.pausedAt }
    return { namespace: me.namespace, ...paused, agents: shown, offline_left_out: all.length - shown.length }
  })
}

/** For operators. Throws invalid, not_found for the namespace, or conflict for a name as createNamespace does. */
export async function createAgent(admin: AnySql, input: { namespace: string; name: string }): Promise<{ id: string }> {
  const name = checkAgentName(input.name)
  const namespaceId = await findNamespaceId(admin, input.namespace)
  const [row] = await takingName(admin`
    insert into patchcord.agents (namespace_uuid, name) values (${namespaceId}, ${name})
    on conflict (namespace_uuid, name) do nothing returning id`)
  if (row) return { id: row.id as string }
  throw new NameTaken(`Agent ${name}@${input.namespace} exists already.`)
}

/** For operators. Throws not_found. */
export async function findAgentId(admin: AnySql, input: { namespace: string; agent: string }): Promise<string> {
  const [row] = await admin`
    select a.id from patchcord.agents a join patchcord.namespaces n on n.id = a.namespace_uuid
    where n.name = ${input.namespace} and a.name = ${input.agent} and a.deleted_at is null`
  if (row) return row.id as string
  throw new PatchcordError('not_found', `There is no agent ${input.agent}@${input.namespace}.`, {
    hint: 'create-agent makes one.',
  })
}

export interface AgentLine {
  id: string
  name: string
  /** Tokens that open its door now. */
  tokens: number
  created_at: string
  last_used_at: string | null
}

/** For operators, by name. Throws not_found for the namespace. */
export async function listAllAgents(admin: Sql, input: { namespace: string }): Promise<AgentLine[]> {
  const namespaceId = await findNamespaceId(admin, input.namespace)
  const rows = await admin`
    select a.id, a.name, a.created_at, max(t.last_used_at) as last_used_at,
      count(t.id) filter (where t.revoked_at is null and coalesce(t.expires_at > clock_timestamp(), true))::integer as tokens
    from patchcord.agents a left join patchcord.tokens t on t.agent_uuid = a.id
    where a.namespace_uuid = ${namespaceId} and a.deleted_at is null
    group by a.id order by a.name`
  return [...rows] as unknown as AgentLine[]
}

/**
 * For operators. Tokens, messages and history stay with the agent; sockets and waits under the old name end within a second.
 * Throws invalid, not_found, or conflict for a name that is taken or still stands in messages.
 */
export async function renameAgent(
  admin: AnySql,
  input: { namespace: string; agent: string; newName: string },
): Promise<{ id: string }> {
  const name = checkAgentName(input.newName)
  const id = await findAgentId(admin, input)
  // Of two who rename at once the second renames nothing that it has not seen.
  const rows = await takingName(
    admin`
      update patchcord.agents set name = ${name} where id = ${id} and name = ${input.agent} and deleted_at is null
      returning id`,
    `Agent ${name}@${input.namespace} exists already.`,
  )
  if (rows.length > 0) return { id }
  throw new PatchcordError('conflict', `Somebody else has renamed or deleted ${input.agent} meanwhile.`, {
    hint: 'Look again.',
  })
}

/** Notices of the server are from `patchcord`: nobody may be taken for it. */
function checkAgentName(text: string): string {
  const name = checkName(text, 'agent')
  if (name !== 'patchcord') return name
  throw new PatchcordError('invalid', 'patchcord is the name of the server itself.', { hint: 'Choose another name.' })
}

/** An agent as a member of its namespace sees it. */
export type AgentCard = Omit<Agent, 'is_you'> & {
  id: string
  created_at: string
  /** Messages that it has not fetched. */
  new: number
  /** Messages that it fetched and has not settled. */
  open: number
  /** Tokens that open its door now. */
  tokens: number
}

export interface ListAgentsOf {
  namespace: string
  /** Part of a name. */
  q?: string | undefined
  /** `next` of the page before. */
  after?: string | undefined
}

const PAGE = 50

/** A page of the agents of a namespace, by name. */
export async function listAgentsOf(
  scope: PersonScope,
  input: ListAgentsOf,
): Promise<{ agents: AgentCard[]; next: string | null }> {
  return await asMember(scope, input.namespace, async (sql, me) => {
    const rows = await sql`
      select a.id, a.name from patchcord.agents a
      where a.namespace_uuid = ${me.namespaceId} and a.deleted_at is null and a.name > ${input.after ?? ''}
        and strpos(a.name, ${(input.q ?? '').trim().toLowerCase()}) > 0
      order by a.name limit ${PAGE + 1}`
    const shown = rows.slice(0, PAGE)
    return {
      agents: await describeAgents(
        sql,
        shown.map((row) => row.id as string),
      ),
      next: rows.length > PAGE ? (shown.at(-1)?.name as string) : null,
    }
  })
}

/** Names to choose from; null where there are more than `max`. */
export async function listAgentNames(
  scope: PersonScope,
  input: { namespace: string; max: number },
): Promise<string[] | null> {
  return await asMember(scope, input.namespace, async (sql, me) => {
    const rows = await sql`
      select a.name from patchcord.agents a where a.namespace_uuid = ${me.namespaceId} and a.deleted_at is null
      order by a.name limit ${input.max + 1}`
    return rows.length > input.max ? null : rows.map((row) => row.name as string)
  })
}

/** One agent by name. Throws not_found. */
export async function getAgentOf(scope: PersonScope, input: { namespace: string; agent: string }): Promise<AgentCard> {
  return await asMember(scope, input.namespace, async (sql) => {
    const [card] = await describeAgents(sql, [await findAgentId(sql, input)])
    if (card) return card
    throw new PatchcordError('not_found', 'There is nothing here.')
  })
}

async function describeAgents(sql: AnySql, ids: string[]): Promise<AgentCard[]> {
  // Each table is counted once for all of the page. Agent by agent, a planner that has no statistics yet may take an index of
  // the whole namespace for each.
  const [row] = await sql`
    with fresh as materialized (
      select d.to_agent_uuid as id, count(*) as count from patchcord.deliveries d
      where d.to_agent_uuid = any (${ids}::uuid[]) and d.state = 'new' and d.wake_at is not null
        and coalesce(d.expires_at > clock_timestamp(), true)
      group by 1
    ), open as materialized (
      select d.to_agent_uuid as id, count(*) as count from patchcord.deliveries d
      where d.to_agent_uuid = any (${ids}::uuid[]) and d.state in ('open', 'deferred') and d.state = 'open'
      group by 1
    ), token as materialized (
      select t.agent_uuid as id, count(*) as count from patchcord.tokens t
      where t.agent_uuid = any (${ids}::uuid[]) and t.revoked_at is null
        and coalesce(t.expires_at > clock_timestamp(), true)
      group by 1
    )
    select coalesce(jsonb_agg(to_jsonb(r) - 'agent_uuid' || jsonb_build_object('id', a.id, 'created_at', a.created_at,
      'new', coalesce(f.count, 0), 'open', coalesce(o.count, 0), 'tokens', coalesce(t.count, 0)) order by a.name), '[]') as cards
    from patchcord.reach_of(${ids}::uuid[]) r
      join patchcord.agents a on a.id = r.agent_uuid
      left join fresh f on f.id = a.id
      left join open o on o.id = a.id
      left join token t on t.id = a.id`
  return row?.cards as AgentCard[]
}

/** For admins. Throws invalid, or conflict with a free name in its hint. */
export async function addAgent(
  scope: PersonScope,
  input: { namespace: string; name: string },
): Promise<{ id: string; name: string }> {
  const { id } = await suggestingName(
    () => asMember(scope, input.namespace, (sql) => createAgent(sql, input), 'admin'),
    () => suggestAgentName(scope, input.namespace, input.name),
  )
  return { id, name: input.name }
}

async function suggestAgentName(scope: PersonScope, namespace: string, wanted: string): Promise<string | null> {
  return await asMember(scope, namespace, async (sql) => {
    const [row] = await sql`select patchcord.free_agent_name(${wanted}) as name`
    return row?.name as string | null
  })
}

/** For admins. Throws as renameAgent, with a free name in the hint of a conflict. */
export async function renameMyAgent(
  scope: PersonScope,
  input: { namespace: string; agent: string; newName: string },
): Promise<void> {
  await suggestingName(
    () => asMember(scope, input.namespace, (sql) => renameAgent(sql, input), 'admin'),
    () => suggestAgentName(scope, input.namespace, input.newName),
  )
}

/**
 * For admins. Its tokens, sockets and waits end within a second; its messages stay with those that it wrote to, and its name
 * with them. Throws not_found.
 */
export async function deleteAgent(scope: PersonScope, input: { namespace: string; agent: string }): Promise<void> {
  await asMember(
    scope,
    input.namespace,
    async (sql) => {
      const id = await findAgentId(sql, input)
      await sql`update patchcord.agents set deleted_at = clock_timestamp() where id = ${id} and deleted_at is null`
    },
    'admin',
  )
}

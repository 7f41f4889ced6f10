import type { Sql } from '../db/connect.ts'
import { asMember, type PersonScope } from '../db/scope.ts'
import { PatchcordError } from '../errors.ts'

export interface SecurityEvent {
  logged_at: string
  event: string
  namespace: string | null
  agent: string | null
  token_id: string | null
  detail: string | null
  by_role: string
  /** A person by the name of then, `operator`, or null: an agent or the server. */
  by_name: string | null
}

const EVENTS_MAX = 1_000

/** For operators: the latest changes of who may enter, oldest first. */
export async function listSecurityEvents(admin: Sql): Promise<SecurityEvent[]> {
  const rows = await admin`
    select logged_at, event, namespace, agent, token_uuid as token_id, detail, by_role, by_name
    from (select * from patchcord.security_log order by logged_at desc, id desc limit ${EVENTS_MAX}) s
    order by logged_at, id`
  return [...rows] as unknown as SecurityEvent[]
}

export interface AuditEvent {
  id: number
  logged_at: string
  event: string
  /** The name of then. */
  agent: string | null
  token_id: string | null
  detail: string | null
  by_name: string | null
  by_person_id: string | null
}

const PAGE = 100

/** What changed in a namespace and by whom, the latest first. */
export async function listAudit(
  scope: PersonScope,
  input: { namespace: string; before?: string | undefined },
): Promise<{ events: AuditEvent[]; next: string | null }> {
  const before = input.before ?? '9007199254740991'
  if (!/^\d{1,16}$/.test(before)) {
    throw new PatchcordError('invalid', 'This page is not there.', { hint: 'Start at the first page.' })
  }
  return await asMember(scope, input.namespace, async (sql, me) => {
    const rows = await sql`
      select jsonb_build_object('id', s.id, 'logged_at', s.logged_at, 'event', s.event, 'agent', s.agent,
        'token_id', s.token_uuid, 'detail', s.detail, 'by_name', s.by_name, 'by_person_id', s.by_person_uuid) as event
      from patchcord.security_log s
      where s.namespace_uuid = ${me.namespaceId} and s.id < ${before}::bigint
      order by s.id desc limit ${PAGE + 1}`
    const events = rows.slice(0, PAGE).map((row) => row.event as AuditEvent)
    return { events, next: rows.length > PAGE ? String(events.at(-1)?.id) : null }
  })
}

import type { Sql } from '../db/connect.ts'

export interface SecurityEvent {
  logged_at: string
  event: string
  namespace: string | null
  agent: string | null
  token_id: string | null
  detail: string | null
  by_role: string
}

const EVENTS_MAX = 1_000

/** For operators: the latest changes of who may enter, oldest first. */
export async function listSecurityEvents(admin: Sql): Promise<SecurityEvent[]> {
  const rows = await admin`
    select logged_at, event, namespace, agent, token_uuid as token_id, detail, by_role
    from (select * from patchcord.security_log order by logged_at desc, id desc limit ${EVENTS_MAX}) s
    order by logged_at, id`
  return [...rows] as unknown as SecurityEvent[]
}

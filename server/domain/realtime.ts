import type { Sql } from '../db/connect.ts'
import { translateDatabaseError } from '../db/errors.ts'
import type { Wake } from '../wakes/bus.ts'

/** The one table whose inserts are published, as on Supabase. */
export const PUBLISHED_TABLE = {
  schema: 'patchcord',
  name: 'agent_messages',
  primaryKey: ['id', 'to_agent_uuid'],
} as const

/** One inserted row as a ticket of its recipient sees it: only the columns that the ticket's role may select. */
export interface Change {
  id: string
  toAgentId: string
  record: Record<string, unknown>
  /** ISO time in UTC with milliseconds. */
  committedAt: string
}

export interface Changes {
  /** In the order of the table. */
  columns: { name: string; type: string }[]
  rows: Change[]
}

export interface ChangeFilter {
  column: string
  op: 'eq' | 'in'
  /** One for eq. */
  values: string[]
}

/** The filters with their values as the record shows them, or why they cannot be used. */
export type FilterCheck =
  | { filters: ChangeFilter[] }
  /** `index` of the filter that is wrong; -1: it is the role. */
  | { index: number; state: string; message: string }

/** What our own Realtime endpoint asks the database for. Every function throws `unavailable` while it does not answer. */
export interface RealtimeSource {
  /**
   * The newest `limit` wakes of an agent since a time, oldest first: what Supabase keeps in `realtime.messages` for a replay
   * is here the due rows of `agent_messages`, the same rows whose insert sends the wake there. No second store can miss one.
   */
  listRecentWakes(agentId: string, sinceMs: number, limit: number): Promise<Wake[]>
  /** Rows for these agents of the last `seconds`, oldest first, those in `seen` (ids of rows) left out. At most CHANGES_MAX. */
  readChanges(agentIds: string[], seconds: number, seen: string[]): Promise<Changes>
  /** Whether a role exists, and may filter by these columns and values. */
  checkFilters(role: string, filters: ChangeFilter[]): Promise<FilterCheck>
}

export const CHANGES_MAX = 1_000

/** `sql` is connected as patchcord_api. */
export function createRealtimeSource(sql: Sql): RealtimeSource {
  return {
    async listRecentWakes(agentId, sinceMs, limit) {
      return await answer(sql`select patchcord.recent_wakes(${agentId}, ${sinceMs}, ${limit}) as answer`)
    },
    async readChanges(agentIds, seconds, seen) {
      return await answer(
        sql`select patchcord.read_changes(${agentIds}::uuid[], ${seconds}, ${seen}::text[], ${CHANGES_MAX}) as answer`,
      )
    },
    async checkFilters(role, filters) {
      return await answer(
        sql`select patchcord.check_filters(${role}, ${JSON.stringify(filters)}::text::jsonb) as answer`,
      )
    },
  }
}

async function answer<T>(rows: Promise<{ answer?: unknown }[]>): Promise<T> {
  try {
    const [row] = await rows
    return row?.answer as T
  } catch (error) {
    throw translateDatabaseError(error)
  }
}

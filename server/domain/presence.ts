import { z } from 'zod'
import type { Sql } from '../db/connect.ts'
import { callEntry, checkEntrance, type Entrance, reach, type Scope } from '../db/scope.ts'
import { MessageId } from './delivery.ts'

/** A lease lives three renewals long, so that one lost renewal costs nothing. */
const LEASE_SECONDS = 90
const ANNOUNCED_MAX = 1_000

/** No spaces, and short: models of other agents are shown these, and a sentence in them would be read as one. */
const Label = z
  .string()
  .regex(/^[A-Za-z0-9][\w.:@/+-]{0,39}$/, '1 to 40 of letters, digits and . : @ / + - _, without spaces')

export const ReportPresence = z.strictObject({
  state: z.enum(['idle', 'busy']),
  human_prompt: z.literal(true).optional().meta({ description: 'A person has just typed in this session' }),
  client: Label.optional(),
  session: Label.optional(),
  machine: Label.optional(),
})

export const RenewLease = z.strictObject({
  session: Label,
  client: Label,
  machine: Label,
  announced: z.array(MessageId).max(ANNOUNCED_MAX).default([]).meta({ description: 'Messages whose line was written' }),
})

export const EndLease = z.strictObject({ session: Label })

/** What the caller's session is doing; a human prompt also gives its pairs a fresh loop budget. */
export async function reportPresence(scope: Scope, input: z.output<typeof ReportPresence>): Promise<void> {
  const { state, client = null, session = null, machine = null, human_prompt = false } = input
  await callEntry(
    scope,
    (sql) => sql`
      select patchcord.report_presence(${scope.tokenHash}, ${state}, ${client}, ${session}, ${machine}, ${human_prompt})
        as answer`,
  )
}

/** A listener of the caller lives and its stdout drains: the agent is wakeable for 90 s, and `announced` ids are notified. */
export async function renewLease(scope: Scope, input: z.output<typeof RenewLease>): Promise<void> {
  const [outcome] = await storeLeases(scope.sql, [{ hash: scope.tokenHash, ...input, waited_seconds: 0 }])
  if (outcome) checkEntrance(outcome)
}

/** A renewal as SQL takes it: whose it is, and how long ago it was asked for. */
export interface LeaseRow extends z.output<typeof RenewLease> {
  hash: string
  waited_seconds: number
}

/** One statement for all of them; what came of each, in order. */
export async function storeLeases(sql: Sql, rows: LeaseRow[]): Promise<Entrance[]> {
  const [row] = await reach(
    () => sql`select patchcord.renew_leases(${JSON.stringify(rows)}::text::jsonb, ${LEASE_SECONDS}) as answers`,
  )
  return row?.answers as Entrance[]
}

export async function endLease(scope: Scope, input: z.output<typeof EndLease>): Promise<void> {
  await callEntry(scope, (sql) => sql`select patchcord.end_lease(${scope.tokenHash}, ${input.session}) as answer`)
}

import { randomUUID } from 'node:crypto'
import type { Sql } from '../../../server/db/connect.ts'
import { attentionLimits } from '../../../server/domain/attention.ts'
import { DEFAULT_LIMITS } from '../../helpers/seed.ts'

export const LIMITS = JSON.stringify(attentionLimits(DEFAULT_LIMITS))

type Call = (sql: Sql, hash: string, to: string) => Promise<{ answer: { outcome: string } }[]>

const call = (run: (sql: Sql, hash: string, to: string) => unknown) => run as Call

/** A call of each function that the API's connection may execute and that takes the hash of a token. */
export const ENTRIES: Record<string, Call> = {
  resolve_token: call((sql, hash) => sql`select patchcord.resolve_token(${hash}) as answer`),
  resolve_tokens: call((sql, hash) => sql`select patchcord.resolve_tokens(${[hash, hash]}::text[]) -> 1 as answer`),
  enter: call((sql, hash) => sql`select to_jsonb(patchcord.enter(${hash}, 1, ${LIMITS}::text::jsonb)) as answer`),
  note_refusal: call((sql, hash) => sql`select patchcord.note_refusal(${hash}, ${LIMITS}::text::jsonb) as answer`),
  enter_agent: call((sql, hash) => sql`select patchcord.enter_agent(${hash}) as answer`),
  fetch_inbox: call((sql, hash) => sql`select patchcord.fetch_inbox(${hash}, ${[randomUUID()]}::uuid[]) as answer`),
  fetch_next: call((sql, hash) => sql`select patchcord.fetch_next(${hash}, null, null) as answer`),
  peek_inbox: call((sql, hash) => sql`select patchcord.peek_inbox(${hash}, 'new', 100) as answer`),
  recall_messages: call(
    (sql, hash) => sql`select patchcord.recall_messages(${hash}, null, null, null, 0, 100, 0, 10) as answer`,
  ),
  send_message: call(
    (sql, hash, to) => sql`
      select patchcord.send_message(${hash}, ${[to]}::text[], ${[null]}::text[], 'x', 't', 'message', 'normal', 'k', 'h',
        ${LIMITS}::text::jsonb) as answer`,
  ),
  send_batch: call(
    (sql, hash, to) => sql`
      select patchcord.send_batch(${JSON.stringify([toRow(hash, to)])}::text::jsonb, ${LIMITS}::text::jsonb) -> 0 as answer`,
  ),
  /** Gives a row for whom it lets in, and nothing for the others. */
  prepare_batch: call(
    (sql, hash, to) => sql`
      select jsonb_build_object('outcome', coalesce(
        (
          select 'ok' from patchcord.prepare_batch(array(
            select r from jsonb_populate_recordset(
              null::patchcord.batch_row, ${JSON.stringify([toRow(hash, to)])}::text::jsonb) r), ${LIMITS}::text::jsonb)
        ), patchcord.resolve_token(${hash}) ->> 'outcome')) as answer`,
  ),
  reply_message: call(
    (sql, hash) => sql`
      select patchcord.reply_message(${hash}, ${randomUUID()}, 'x', 'answered', 'k', 'h', ${LIMITS}::text::jsonb)
        as answer`,
  ),
  settle_messages: call(
    (sql, hash) => sql`select patchcord.settle_messages(${hash}, ${[randomUUID()]}::uuid[], 'done') as answer`,
  ),
  unsend_message: call((sql, hash) => sql`select patchcord.unsend_message(${hash}, ${randomUUID()}) as answer`),
  report_presence: call(
    (sql, hash) => sql`select patchcord.report_presence(${hash}, 'busy', 'c', 's', 'm', true) as answer`,
  ),
  renew_leases: call(
    (sql, hash) => sql`
      select patchcord.renew_leases(
        jsonb_build_array(jsonb_build_object('hash', ${hash}::text, 'session', 's', 'client', 'c', 'machine', 'm',
          'announced', '[]'::jsonb, 'waited_seconds', 0)), 90) -> 0 as answer`,
  ),
  end_lease: call((sql, hash) => sql`select patchcord.end_lease(${hash}, 's') as answer`),
}

/** A plain send, as a batch has it. */
function toRow(hash: string, to: string) {
  return { hash, to: [to], namespaces: [null], content: 'x', kind: 'report', urgency: 'normal', body_hash: 'h' }
}

/** Calls each of them with this hash: name and answer. */
export async function callEntries(sql: Sql, hash: string, to: string): Promise<[string, { outcome: string }][]> {
  const answers: [string, { outcome: string }][] = []
  for (const [name, entry] of Object.entries(ENTRIES)) {
    const [row] = await entry(sql, hash, to)
    answers.push([name, row?.answer ?? { outcome: 'no answer' }])
  }
  return answers
}

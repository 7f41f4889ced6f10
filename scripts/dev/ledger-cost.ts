import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { connect, type Sql } from '../../server/db/connect.ts'
import { startEmbedded } from '../../server/db/embedded/index.ts'
import { attentionLimits } from '../../server/domain/attention.ts'
import { DEFAULT_LIMITS, type SeededAgent, seed } from '../../test/helpers/seed.ts'

/**
 * `npm run bench:ledger -- [--rounds 200] [--folder DIR]`: what the ledger adds to a send, on a Postgres that keeps every commit
 * on its disk (in DIR). Measure on a machine that does nothing else. The send as it is stands against a copy that writes only
 * what the inbox needs of a delivery (which message, to whom, its state, when it wakes) and nothing for the ledger; against one
 * that writes no row for the recipient at all, which nobody could read; and against itself, which shows how far chance goes.
 * Rounds are interleaved, each of all of them in another order.
 */

export const RATIO_MAX = 1.1
const SENDS = 8
const AGENTS = 16
const CONTENT = 'The migration is done on staging; two tests of billing fail since then. '.repeat(5)
/** The parts of a send; the last one writes the row. */
const FUNCTIONS = ['send_message', 'send_as_me', 'store_message', 'insert_message']
const LEDGER_ROW = /\s*insert into patchcord\.deliveries \([\s\S]*?;/
/** Raised openly: this is about what a send costs, not about limits. */
const LIMITS = { ...DEFAULT_LIMITS, sendBurst: 1_000_000, sendPerSecond: 1_000_000, newPerRecipientMax: 1_000_000 }

const INBOX_ROW = `
  insert into patchcord.deliveries_of_inbox (message_id, to_agent_uuid, from_agent_uuid, state, wake_at)
  select p_id, r.id, v_me, case when r.id = v_me then 'deferred' else 'new' end, r.wake_at
  from unnest(p_to, p_wake_ats) as r (id, wake_at);`
/** As `deliveries`, without the columns and indexes that only the ledger needs. */
const INBOX_TABLE = `
  create table patchcord.deliveries_of_inbox (
    message_id uuid not null,
    to_agent_uuid uuid not null,
    from_agent_uuid uuid not null references patchcord.agents (id),
    state text not null default 'new'
      check (state in ('new', 'open', 'deferred', 'answered', 'done', 'resolved', 'unsent', 'expired')),
    wake_at timestamptz,
    primary key (message_id, to_agent_uuid),
    foreign key (message_id, to_agent_uuid) references patchcord.agent_messages (id, to_agent_uuid) on delete cascade
  );
  create index on patchcord.deliveries_of_inbox (to_agent_uuid, from_agent_uuid) where state = 'new' and wake_at is not null;
  create index on patchcord.deliveries_of_inbox (to_agent_uuid, message_id) where state = 'new';
  create index on patchcord.deliveries_of_inbox (to_agent_uuid, message_id) where state in ('open', 'deferred');
  alter table patchcord.deliveries_of_inbox enable row level security, force row level security;
  create policy agent_sends on patchcord.deliveries_of_inbox for insert to patchcord_agent
    with check (
      from_agent_uuid = (select patchcord.claim_agent())
      and (state = 'new' or state = 'deferred' and to_agent_uuid = from_agent_uuid)
    );
  grant insert on patchcord.deliveries_of_inbox to patchcord_agent;`

const VARIANTS = ['send_message', 'send_message_again', 'send_message_inbox', 'send_message_without'] as const
/** What a copy writes in place of the row of a delivery. */
const COPIES = { again: null, inbox: INBOX_ROW, without: '' } as const
type Variant = (typeof VARIANTS)[number]

export interface LedgerCost {
  concurrency: number
  /** Medians of the rounds, in ms for each send. */
  medianMs: number
  inboxMs: number
  withoutMs: number
  /** Medians of what rounds had: the send to the copy with the inbox's part of the row, to that without a row, and to itself. */
  ratio: number
  withoutRatio: number
  controlRatio: number
  /** How many rows each way has left. */
  messages: number
  rows: number
}

export async function measureLedgerCost(
  rounds: number,
  folder: string,
  settings: Record<string, string> = {},
): Promise<LedgerCost[]> {
  const dataDir = await mkdtemp(join(folder, 'patchcord-ledger-cost-'))
  const embedded = await startEmbedded({ dataDir, settings, log: () => {} })
  const admin = connect(embedded.admin, { max: 2, applicationName: 'ledger-cost' })
  const api = connect(embedded.api, { max: 8, applicationName: 'ledger-cost' })
  try {
    await addCopies(admin)
    const costs: LedgerCost[] = []
    for (const concurrency of [1, 8]) costs.push(await measure(admin, api, rounds, concurrency))
    return costs
  } finally {
    await Promise.all([admin.end({ timeout: 1 }), api.end({ timeout: 1 })])
    await embedded.stop()
    await rm(dataDir, { recursive: true, force: true })
  }
}

/** Copies of the whole send under other names, which differ in the row that they write for a recipient. */
async function addCopies(admin: Sql): Promise<void> {
  await admin.unsafe(INBOX_TABLE)
  for (const [suffix, insert] of Object.entries(COPIES)) {
    for (const name of [...FUNCTIONS].reverse()) {
      const [found] = await admin`select pg_get_functiondef(to_regproc(${`patchcord.${name}`})) as source`
      const source = found?.source as string
      const isChanged = insert !== null && name === 'insert_message'
      if (isChanged && !LEDGER_ROW.test(source))
        throw new Error('the row of a delivery was not found in insert_message')
      const changed = isChanged ? source.replace(LEDGER_ROW, () => insert) : source
      const copy = changed.replaceAll(
        new RegExp(`\\bpatchcord\\.(${FUNCTIONS.join('|')})\\(`, 'g'),
        `patchcord.$1_${suffix}(`,
      )
      await admin.unsafe(copy)
      await admin.unsafe(`grant execute on function patchcord.${name}_${suffix} to patchcord_api, patchcord_agent`)
    }
  }
}

async function measure(admin: Sql, api: Sql, rounds: number, concurrency: number): Promise<LedgerCost> {
  const names = Array.from({ length: AGENTS }, (_, index) => `agent-${index}`)
  const agents = Object.values(await seed({ admin, api }, `cost-${concurrency}`, names))
  for (const variant of VARIANTS) await sendAll(api, variant, agents, concurrency)
  await admin`analyze`
  const times = new Map<Variant, number[]>(VARIANTS.map((variant) => [variant, []]))
  for (let round = 0; round < rounds; round++) {
    for (const variant of orderOf(round)) {
      times.get(variant)?.push(await sendAll(api, variant, agents, concurrency))
    }
  }
  const of = (variant: Variant) => times.get(variant) ?? []
  const over = (above: Variant, below: Variant) => median(of(above).map((ms, round) => ms / (of(below)[round] ?? ms)))
  const [count] = await admin`
    select count(*)::int as messages, count(d.message_id)::int as rows from patchcord.agent_messages m
    left join patchcord.deliveries d on d.message_id = m.id and d.to_agent_uuid = m.to_agent_uuid
    where m.namespace_id = ${`cost-${concurrency}`}`
  return {
    concurrency,
    medianMs: median(of('send_message')),
    inboxMs: median(of('send_message_inbox')),
    withoutMs: median(of('send_message_without')),
    ratio: over('send_message', 'send_message_inbox'),
    withoutRatio: over('send_message', 'send_message_without'),
    controlRatio: over('send_message', 'send_message_again'),
    messages: count?.messages as number,
    rows: count?.rows as number,
  }
}

/** Whatever comes after another one may pay for it: each comes after each of the others equally often. */
function orderOf(round: number): Variant[] {
  const start = round % VARIANTS.length
  const turned = [...VARIANTS.slice(start), ...VARIANTS.slice(0, start)]
  return round % 2 === 0 ? turned : turned.reverse()
}

/** So many sends, in ms for each of them. */
async function sendAll(api: Sql, variant: Variant, agents: SeededAgent[], concurrency: number): Promise<number> {
  const limits = JSON.stringify(attentionLimits(LIMITS))
  let next = 0
  const work = async () => {
    while (next < SENDS) {
      const index = next++
      const from = agents[index % AGENTS] as SeededAgent
      const to = agents[(index + 1) % AGENTS] as SeededAgent
      const [row] = await api`
        select ${api(`patchcord.${variant}`)}(${from.tokenHash}, ${[to.agent]}::text[], ${[null]}::text[], ${CONTENT}, null,
          'report', 'normal', null, ${'0'.repeat(64)}, ${limits}::text::jsonb) ->> 'outcome' as outcome`
      if (row?.outcome !== 'sent') throw new Error(`${variant}: ${row?.outcome}`)
    }
  }
  const startedAt = performance.now()
  await Promise.all(Array.from({ length: concurrency }, work))
  return (performance.now() - startedAt) / SENDS
}

function median(values: number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: { rounds: { type: 'string', default: '200' }, folder: { type: 'string', default: tmpdir() } },
  })
  const rounds = Number(values.rounds)
  if (!Number.isInteger(rounds) || rounds < 1) throw new Error('--rounds takes a whole number from 1 on')
  const costs = await measureLedgerCost(rounds, values.folder)
  for (const { concurrency, medianMs, inboxMs, withoutMs, ratio, withoutRatio, controlRatio, messages } of costs) {
    process.stdout.write(
      `${concurrency} at once: ${medianMs.toFixed(2)} ms a send, ${inboxMs.toFixed(2)} ms without the ledger: ` +
        `${ratio.toFixed(3)} times as long (against itself ${controlRatio.toFixed(3)}); ` +
        `${withoutMs.toFixed(2)} ms without any row for its recipient: ${withoutRatio.toFixed(3)}; ${messages} messages\n`,
    )
  }
  if (costs.some(({ ratio }) => ratio > RATIO_MAX)) process.exitCode = 1
}

if (fileURLToPath(import.meta.url) === process.argv[1]) await main()

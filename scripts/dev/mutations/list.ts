/** Deliberate bugs, each a mistake that somebody could make, and the test that must notice it. */

export interface Mutation {
  name: string
  /** From the root of the repository. */
  file: string
  /** `from` must occur exactly once in the file. */
  edits: { from: string; to: string }[]
  /** Words for `tsx test/run.ts`: as few tests as will do. */
  tests: string[]
  /** The test that fails, as the run names it. */
  foundBy: string
}

const MESSAGES_SQL = 'supabase/migrations/20261129100400_messages.sql'

export const MUTATIONS: Mutation[] = [
  {
    name: 'skip the catch-up',
    file: 'scripts/lib/subscription.mjs',
    edits: [
      {
        from: 'this.#check.request(this.#isFirst ? 0 : times.compareSoonMs)',
        to: 'if (this.#isFirst) this.#check.request()',
      },
      {
        from: 'this.#options.onHearing(true)\n    this.#check.request()',
        to: 'this.#options.onHearing(true)',
      },
    ],
    tests: ['scripts/listener-faults'],
    foundBy: 'a close with 1012 is survived',
  },
  {
    name: 'settle on fetch',
    file: 'supabase/migrations/20261129100800_inbox.sql',
    edits: [{ from: `state = case when picked.is_notice then 'done' else 'open' end,`, to: `state = 'done',` }],
    tests: ['domain/inbox.test'],
    foundBy: 'what was fetched within a minute is shown in full again, later as one line',
  },
  {
    name: 'notify before commit',
    file: 'server/db/scope.ts',
    edits: [
      {
        from: `  return await enter(scope, () => (sends && row ? sends.add({ ...row, hash: tokenHash }, alone) : alone()))
`,
        to: `  const early = () =>
    sql.begin(async (transaction) => {
      const rows = await call(transaction as unknown as Sql)
      const { wakes } = rows[0]?.answer as Outcome
      if (wakes) scope.bus.publish(wakes)
      return rows
    }) as Promise<EntryRows>
  return await enter(scope, () => (sends && row === null ? sends.add({ hash: tokenHash } as SendRow, alone) : early()))
`,
      },
    ],
    tests: ['db/scope'],
    foundBy: 'a wake is published when its message can be read, not while its commit is under way',
  },
  {
    name: 'drop the idempotency check',
    file: 'supabase/migrations/20261129100450_idempotency.sql',
    edits: [{ from: `\n    where k.created_at < clock_timestamp() - interval '24 hours'`, to: '' }],
    tests: ['domain/messages'],
    foundBy: 'the same idempotency key gives the same answer once, another text under it is a conflict',
  },
  {
    name: 'lease without drain',
    file: 'scripts/lib/listener.mjs',
    edits: [{ from: 'isHeard: () => lines.isDrained', to: 'isHeard: () => true' }],
    tests: ['scripts/listener-process'],
    foundBy: 'a process that › writes into a full pipe that nobody reads goes on, gives up its lease and can be ended',
  },
  {
    name: 'forget a waiter on restart',
    file: 'server/wakes/waiters.ts',
    edits: [{ from: `      for (const waiter of waiting.all()) waiter.end({ how: 'closing' })\n`, to: '' }],
    tests: ['domain/inbox.test'],
    foundBy: 'a wait ends at its time-out, at shutdown and when its caller goes, and leaves no waiter behind',
  },
  {
    name: 'forget a waiter on reconnect',
    file: 'server/wakes/bus.ts',
    edits: [{ from: 'const ids = new Set(waiters.agentIds())', to: 'const ids = new Set<string>()' }],
    tests: ['wakes/instances'],
    foundBy: 'a wait whose NOTIFY never came ends with its message within 3 s',
  },
  {
    name: 'bucket after work',
    file: MESSAGES_SQL,
    edits: [
      { from: 'w := patchcord.enter(p_hash, 1, p_limits);', to: 'w := patchcord.enter(p_hash, 0, p_limits);' },
      {
        from: `  return patchcord.remember(p_key,
    patchcord.send_as_me(p_to, p_namespaces, p_content, p_thread, p_kind, p_urgency, p_limits, p_expires_in));`,
        to: `  v_answer := patchcord.remember(p_key,
    patchcord.send_as_me(p_to, p_namespaces, p_content, p_thread, p_kind, p_urgency, p_limits, p_expires_in));
  perform set_config('role', 'none', true);
  w := patchcord.enter(p_hash, 1, p_limits);
  return case when w.outcome = 'ok' then v_answer else to_jsonb(w) end;`,
      },
    ],
    tests: ['end-to-end/limits'],
    foundBy:
      'limits hold across instances › of 50 sends at once over two instances against a bucket of 30, exactly 30 pass',
  },
  {
    name: 'double announce',
    file: 'scripts/lib/announcements.mjs',
    edits: [{ from: '    if (this.#spoken.has(id)) return false\n', to: '' }],
    tests: ['scripts/listener.test'],
    foundBy: 'the same message told twice, by both kinds of event and by the inbox, is one line',
  },
]

/** The text of a mutation's file with the mistake in it. Throws where the text is not what the mutation was written for. */
export function mutate(text: string, { name, file, edits }: Mutation): string {
  return edits.reduce((mutated, { from, to }) => {
    const count = mutated.split(from).length - 1
    if (count === 1) return mutated.replace(from, () => to)
    throw new Error(`mutation "${name}": its text is ${count} times in ${file}, not once: ${from}`)
  }, text)
}

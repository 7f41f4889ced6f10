import { parseArgs } from 'node:util'
import { KINDS, type Kind } from './faults/kinds.ts'
import { isWrong } from './faults/model.ts'
import { describe, type Report, runFaults } from './faults/run.ts'
import { shrink } from './faults/shrink.ts'

/**
 * `npm run faults -- [--minutes 30] [--each 150] [--seed N] [--agents 8] [--kinds "delays, server killed"] [--no-shrink]`: two servers on
 * one Postgres, agents with real listeners, MCP clients and calls of the JSON API, all of them real processes and sockets,
 * while faults of every kind overlap. About once a minute everything is healed and comes to rest: every accepted message must
 * be in its inbox exactly once, announced as the listener promises, and its ledger must hold nothing that did not happen.
 * With `--each` it goes on until every kind has happened so often, in up to four times the minutes.
 * Exit 1 when anything is wrong. The seed decides what is broken, when, and who sends what to whom; how these meet is up to
 * the machine, so a seed repeats the drawing and not each race.
 */

const WORDS_SHOWN = 30

interface Arguments {
  seed: number
  minutes: number
  each: number
  agents: number
  kinds: Kind[]
  isShrinking: boolean
}

function readArguments(): Arguments {
  const options = {
    minutes: { type: 'string' },
    each: { type: 'string' },
    seed: { type: 'string' },
    agents: { type: 'string' },
    kinds: { type: 'string' },
    'no-shrink': { type: 'boolean' },
  } as const
  const { values } = parseArgs({ options })
  const minutes = Number(values.minutes ?? 30)
  const each = Number(values.each ?? 0)
  const seed = Number(values.seed ?? Math.floor(Math.random() * 1_000_000))
  const agents = Number(values.agents ?? 8)
  if (!(minutes > 0)) throw new Error('--minutes takes a number above 0, for example --minutes 30')
  if (!Number.isInteger(each) || each < 0) throw new Error('--each takes a whole number from 0')
  if (!Number.isInteger(seed)) throw new Error('--seed takes a whole number')
  if (!Number.isInteger(agents) || agents < 4) throw new Error('--agents takes a whole number from 4')
  return { seed, minutes, each, agents, kinds: readKinds(values.kinds), isShrinking: values['no-shrink'] !== true }
}

function readKinds(names: string | undefined): Kind[] {
  if (names === undefined) return KINDS
  return names.split(',').map((name) => {
    const kind = KINDS.find((each) => each.name === name.trim())
    if (kind) return kind
    throw new Error(`--kinds: there is no "${name.trim()}" among ${KINDS.map((each) => each.name).join(', ')}`)
  })
}

async function main(): Promise<void> {
  const { isShrinking, ...options } = readArguments()
  const stopping = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => stopping.abort(new Error(`stopped by ${signal}`)))
  }
  const log = (line: string) => console.log(line)
  const possible = options.kinds.filter((kind) => (kind.whyNot?.() ?? null) === null)
  log(`Faults: seed ${options.seed}, ${options.minutes} min, ${options.agents} agents, ${possible.length} kinds`)
  const run = { ...options, kinds: possible, log, stopped: stopping.signal }
  const report = await runFaults(run)
  print(options.kinds, report, options.seed)
  if (!isWrong(report.verdict)) return
  process.exitCode = 1
  if (isShrinking && !stopping.signal.aborted) await shrink(run, report)
}

function print(kinds: Kind[], { minutes, faults, spentMs, counts, verdict }: Report, seed: number): void {
  const line = (name: string, value: string | number, more = '') =>
    console.log(`${name.padEnd(24)}${String(value).padStart(8)}${more}`)
  console.log()
  for (const { name, whyNot } of kinds) {
    const count = faults.get(name)
    const seconds = (spentMs.get(name) ?? 0) / Math.max(1, count ?? 0) / 1000
    if (count === undefined) line(name, `not run: ${whyNot?.()}`)
    else line(name, count, `, ${seconds.toFixed(1)} s each`)
  }
  line(
    'faults in all',
    [...faults.values()].reduce((sum, count) => sum + count, 0),
  )
  console.log()
  for (const [name, value] of Object.entries(counts)) line(name, value)
  for (const name of ['lost', 'doubled', 'missed', 'forged'] as const) line(name, verdict[name])
  for (const words of verdict.words.slice(0, WORDS_SHOWN)) console.log(`WRONG (seed ${seed}): ${words}`)
  if (verdict.words.length > WORDS_SHOWN) console.log(`… and ${verdict.words.length - WORDS_SHOWN} more`)
  console.log(
    `\nFaults of ${minutes.toFixed(1)} min with seed ${seed}: ${isWrong(verdict) ? 'WRONG, ' : ''}${describe(verdict)}`,
  )
}

await main().catch((error: unknown) => {
  console.error(error instanceof Error ? (error.stack ?? error.message) : error)
  process.exitCode = 1
})

import { access, writeFile } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { Opened } from './bench/opened.ts'
import type { MeasurePart, Row } from './bench/row.ts'
import { formatTable } from './bench/table.ts'

/**
 * `npm run bench -- [--only b,g] [--quick] [--huge] [--json FILE] [--folder DIR]`: what Patchcord costs, as ratios that are each
 * measured within one run, in turns. A table, and the same as JSON in FILE. Measure on a machine that does nothing else.
 */

const HELP = `npm run bench -- [--only a,c] [--quick] [--huge] [--json FILE] [--folder DIR]

  a  a send through each layer, at 1, 8 and 32 callers     b  from a send's commit to a listener's line
  c  MCP inbox, both protocol eras                         d  1,000 to 10,000 idle listeners
  e  one listener: memory and start                        f  sends, inbox and recall among 1,000 to 1,000,000 messages
  g  tokens that a model reads                             h  the start of a server, cold and warm

  --quick shows that everything works; its figures mean little. --huge adds 10,000,000 messages to f. --json writes the figures of
  every round. Databases are made in --folder (${tmpdir()}) and deleted. A target that is missed is no failure: exit 0.`

/** In the order of the table. */
const PARTS: Record<string, () => Promise<{ measure: MeasurePart }>> = {
  a: () => import('./bench/send.ts'),
  b: () => import('./bench/wake.ts'),
  c: () => import('./bench/mcp.ts'),
  d: () => import('./bench/listeners.ts'),
  e: () => import('./bench/listener.ts'),
  f: () => import('./bench/sizes.ts'),
  g: () => import('./bench/tokens.ts'),
  h: () => import('./bench/start.ts'),
}

const INTERRUPTED_EXIT_CODE = 130
/** What a part was just starting when it was interrupted is known a moment later. */
const LATE_MS = 5_000

const startedAt = performance.now()
let opened = new Opened()
/** The part that is being measured, however it ends. */
let current: Promise<unknown> = Promise.resolve()
let interruption: Promise<void> | null = null

async function main(): Promise<void> {
  const options = await readOptions()
  if (!options) return void process.stdout.write(`${HELP}\n`)
  process.on('SIGINT', interrupt)
  process.on('SIGTERM', interrupt)
  const rows: Row[] = []
  const failures: { part: string; error: string }[] = []
  for (const part of options.parts) {
    try {
      rows.push(...(await measurePart(part, options)))
    } catch (error) {
      if (interruption) return await interruption
      failures.push({ part, error: describe(error) })
      tell(part, `failed: ${describe(error)}`)
    }
  }
  const about = `${new Date().toISOString()}, Node ${process.version}, ${availableParallelism()} cores, ${process.platform} ${process.arch}`
  const notes = [
    ...(options.isQuick ? ['--quick shows that everything works; its figures mean little.'] : []),
    ...failures.map(({ part }) => `Part ${part} failed and has no figures: its error stands in what was logged.`),
  ]
  const table = rows.length > 0 ? ['', ...formatTable(rows)] : []
  process.stdout.write(`${[about, ...table, ...(notes.length > 0 ? ['', ...notes] : [])].join('\n')}\n`)
  if (options.json) await writeFile(options.json, `${JSON.stringify({ about, rows, failures }, null, 2)}\n`)
  if (failures.length > 0) process.exitCode = 1
}

interface Options {
  parts: string[]
  isQuick: boolean
  isHuge: boolean
  json: string | null
  folder: string
}

/** Whatever is wrong with them is said before anything is measured. */
async function readOptions(): Promise<Options | null> {
  const { values } = parseArgs({
    options: {
      only: { type: 'string', default: Object.keys(PARTS).join(',') },
      quick: { type: 'boolean', default: false },
      huge: { type: 'boolean', default: false },
      json: { type: 'string' },
      folder: { type: 'string', default: tmpdir() },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) return null
  const parts = values.only.split(',')
  const unknown = parts.find((part) => !Object.hasOwn(PARTS, part))
  if (unknown !== undefined) {
    throw new Error(`there is no part "${unknown}": --only takes one or more of ${Object.keys(PARTS).join(',')}`)
  }
  const folder = resolve(values.folder)
  await access(folder).catch(() => {
    throw new Error(`the folder ${folder} is not there: make it, or name another with --folder`)
  })
  // A run of half an hour must not end with a file that cannot be written.
  if (values.json) await writeFile(values.json, '')
  return { parts, isQuick: values.quick, isHuge: values.huge, json: values.json ?? null, folder }
}

async function measurePart(part: string, { folder, isQuick, isHuge }: Options): Promise<Row[]> {
  const own = new Opened()
  opened = own
  const load = PARTS[part] as () => Promise<{ measure: MeasurePart }>
  const { measure } = await load()
  tell(part, 'starts')
  const log = (line: string) => tell(part, line)
  const measuring = measure({ folder, isQuick, isHuge, log, onEnd: (close) => own.add(close) })
  current = measuring.catch(() => {})
  try {
    await measuring
  } catch (error) {
    // What ended the part is the error to be told of; what cannot be closed after it is often its consequence.
    await own.close().catch((closing: unknown) => tell(part, describe(closing)))
    throw error
  }
  await own.close()
  return await measuring
}

/** Ends what this run has opened; without figures, since they would be of half a run. npm sends a second Ctrl-C. */
function interrupt(): void {
  interruption ??= endEarly()
}

async function endEarly(): Promise<void> {
  process.stderr.write('\nending: closing what was opened\n')
  try {
    await opened.close()
    await Promise.race([current, sleep(LATE_MS)])
    await opened.close()
  } catch (error) {
    process.stderr.write(`${describe(error)}\n`)
  }
  process.exit(INTERRUPTED_EXIT_CODE)
}

function tell(part: string, line: string): void {
  const seconds = Math.round((performance.now() - startedAt) / 1000)
  const time = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`
  process.stderr.write(`${time.padStart(6)}  ${part}: ${line}\n`)
}

function describe(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error)
}

await main().catch((error: unknown) => {
  process.stderr.write(`bench: ${error instanceof Error ? error.message : error}\n`)
  process.exitCode = 1
})

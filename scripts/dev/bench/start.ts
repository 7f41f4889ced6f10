import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { chooseAccount } from '../../../server/db/embedded/account.ts'
import { prepareBinaries } from '../../../server/db/embedded/binaries.ts'
import { clusterFolder, createCluster, hasCluster } from '../../../server/db/embedded/cluster.ts'
import { startPostmaster } from '../../../server/db/embedded/postmaster.ts'
import { choosePlace } from '../../../server/db/embedded/socket-place.ts'
import { startServer } from '../../../test/helpers/processes.ts'
import { type BenchOptions, formatMs, median, orderOf, type Row, ratioOf } from './row.ts'

/**
 * Part h: from the spawn of `node dist/server/main.js` to the line that says it listens. Cold: on an empty data folder, with initdb and
 * all migrations. Warm: on one that is there. Against the same Postgres alone, made with the same initdb and started, or only
 * started; and against the start of bare Node, which is all that a program without a database could be faster by.
 */

const ROUNDS = { cold: 5, warm: 15 }
const ROUNDS_QUICK = 1

export async function measure(options: BenchOptions): Promise<Row[]> {
  const { folder, isQuick, log, onEnd } = options
  const place = await mkdtemp(join(folder, 'patchcord-bench-start-'))
  onEnd(() => rm(place, { recursive: true, force: true, maxRetries: 3 }))
  // Others may pass through: as root, Postgres runs as another user.
  await chmod(place, 0o711)
  const context: Context = { place, onEnd, existing: await newFolder(place), plain: await newFolder(place) }
  // The program's files are in the cache from here on: what is measured is the start, and not the disk that it was copied to.
  await startOurs(context, context.existing)
  await startPlain(context, context.plain)
  const cold = await compare(isQuick ? ROUNDS_QUICK : ROUNDS.cold, log, 'cold', {
    ours: async () => startOurs(context, await newFolder(place)),
    plain: async () => startPlain(context, await newFolder(place)),
    node: runBare,
  })
  const warm = await compare(isQuick ? ROUNDS_QUICK : ROUNDS.warm, log, 'warm', {
    ours: () => startOurs(context, context.existing),
    plain: () => startPlain(context, context.plain),
    node: runBare,
  })
  return [
    ...describe('cold (empty data folder)', cold, 'initdb and start of Postgres alone'),
    ...describe('warm', warm, 'start of Postgres alone'),
  ]
}

interface Context {
  place: string
  onEnd: BenchOptions['onEnd']
  /** Data folders: of a server, and of Postgres alone. */
  existing: string
  plain: string
}

async function newFolder(place: string): Promise<string> {
  const folder = await mkdtemp(join(place, 'data-'))
  await chmod(folder, 0o711)
  return folder
}

async function startOurs({ onEnd }: Context, dataDir: string): Promise<number> {
  const { startMs, stop } = await startServer({ dataDir })
  onEnd(stop)
  await stop()
  return startMs
}

/** The same initdb with the same options where there is no cluster yet, and the same postmaster until it takes connections. */
async function startPlain({ onEnd }: Context, dataDir: string): Promise<number> {
  const startedAt = performance.now()
  const account = await chooseAccount(clusterFolder(dataDir))
  const binaries = await prepareBinaries({ dataDir, account })
  if (!(await hasCluster(dataDir)))
    await createCluster({ dataDir, account, binaries, password: randomBytes(16).toString('hex') })
  const place = await choosePlace(dataDir, account)
  const postmaster = await startPostmaster({ dataDir, account, binaries, place, settings: {}, log: () => {} })
  const ms = performance.now() - startedAt
  const stop = () => postmaster.stop().finally(place.remove)
  onEnd(stop)
  await stop()
  return ms
}

/** `node -e 0`, until it has ended. */
async function runBare(): Promise<number> {
  const startedAt = performance.now()
  const [code] = await once(spawn(process.execPath, ['-e', '0'], { stdio: 'ignore', env: {} }), 'exit')
  if (code !== 0) throw new Error(`bare Node ended with ${code}`)
  return performance.now() - startedAt
}

type Kind = 'ours' | 'plain' | 'node'
const KINDS: readonly Kind[] = ['ours', 'plain', 'node']

async function compare(
  rounds: number,
  log: BenchOptions['log'],
  name: string,
  start: Record<Kind, () => Promise<number>>,
): Promise<Record<Kind, number[]>> {
  const times: Record<Kind, number[]> = { ours: [], plain: [], node: [] }
  for (let round = 0; round < rounds; round++) {
    for (const kind of orderOf(KINDS, round)) times[kind].push(await start[kind]())
    log(`${name}: ${round + 1} of ${rounds} rounds`)
  }
  return times
}

function describe(name: string, times: Record<Kind, number[]>, plain: string): Row[] {
  const row = (against: string, kind: Kind): Row => ({
    part: 'h',
    what: `start of the server, ${name}`,
    measured: formatMs(median(times.ours)),
    against: `${against}: ${formatMs(median(times[kind]))}`,
    ratio: median(times.ours.map((ms, round) => ratioOf(ms, times[kind][round] ?? Number.NaN))),
    target: null,
    isMet: null,
    data: { times },
  })
  return [row(plain, 'plain'), row('node -e 0', 'node')]
}

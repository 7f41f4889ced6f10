import { existsSync, readFileSync, rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import { type Embedded, startEmbedded } from '../../server/db/embedded/index.ts'

/** Suites run at the same time and each holds pools; a crash of the machine is not what these tests are about. */
const SETTINGS = { max_connections: '400', fsync: 'off', full_page_writes: 'off', synchronous_commit: 'off' }

interface Cluster extends Embedded {
  dataDir: string
}

let nativeDir: string | undefined
let cluster: Promise<Cluster> | undefined

/** Other Postgres binaries for the whole run; before the first database. */
export function setNativeDir(folder: string): void {
  if (cluster) throw new Error('the cluster runs already')
  nativeDir = folder
}

export function getNativeDir(): string | undefined {
  return nativeDir
}

/** The one cluster of this test run, in a temporary folder, started when the first suite asks. */
export function getCluster(): Promise<Cluster> {
  cluster ??= startCluster()
  return cluster
}

async function startCluster(): Promise<Cluster> {
  const dataDir = await mkdtemp(join(tmpdir(), 'patchcord-test-'))
  const kill = () => killCluster(dataDir)
  process.once('exit', kill)
  const embedded = await startEmbedded({ dataDir, nativeDir, settings: SETTINGS, log: () => {} })
  const stop = async () => {
    await embedded.stop()
    process.off('exit', kill)
    await rm(dataDir, { recursive: true, force: true })
  }
  return { ...embedded, stop, dataDir }
}

/** For a run that ends before its hooks do: Postgres has a session of its own and would live on. */
function killCluster(dataDir: string): void {
  const file = join(dataDir, 'postgres', 'postmaster.pid')
  const pid = existsSync(file) ? Number(readFileSync(file, 'utf8').split('\n')[0]) : 0
  if (pid > 1) process.kill(pid, 'SIGKILL')
  rmSync(dataDir, { recursive: true, force: true, maxRetries: 5 })
}

export async function stopCluster(): Promise<void> {
  const started = await cluster?.catch(() => undefined)
  cluster = undefined
  await started?.stop()
}

after(stopCluster)

import { execFile, execFileSync } from 'node:child_process'
import { readFileSync, rmSync } from 'node:fs'
import { mkdir, open } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { type ConnectionTarget, connect, type Sql } from '../../../server/db/connect.ts'
import { type Embedded, startEmbedded } from '../../../server/db/embedded/index.ts'
import type { Random } from '../soak-actors.ts'
import { Network, type Place, SILENT_MS_MAX } from './proxy.ts'

/** The run's own Postgres: it can be killed (and comes back by itself), and its disk can be full. */

const run = promisify(execFile)

/** A crash of the machine is not what a run is about; a crash of Postgres is, so each commit reaches the kernel. */
const SETTINGS = {
  max_connections: '100',
  fsync: 'off',
  full_page_writes: 'off',
  max_wal_size: '96MB',
  min_wal_size: '32MB',
}
const DISK_MIB = 400
const FILL_BYTES = 4 * 1024 * 1024
const POLL_MS = 20
const READY_TIMEOUT_MS = 60_000
const RETRY_MS = 50
/** A server can neither start nor end on a database that keeps silent; mostly it is short, so that there is time for other faults. */
const SHORT_SILENCE_MS = 2_500
const LONG_SILENCE_SHARE = 0.1

/** Why the disk cannot be filled here; null: it can. */
export function whyNoFullDisk(): string | null {
  if (process.platform === 'linux' && process.getuid?.() === 0) return null
  return 'a disk of its own can be made by root on Linux only'
}

export class RunPostgres {
  /** Between it and the servers. */
  readonly network: Network
  /** As the servers reach it. */
  readonly url: string
  readonly #dataDir: string
  readonly #embedded: Embedded
  readonly #admin: Sql
  readonly #ballast: string

  private constructor(dataDir: string, embedded: Embedded, network: Network, port: number) {
    this.#dataDir = dataDir
    this.#embedded = embedded
    this.network = network
    this.url = toUrl(embedded.api, port)
    this.#ballast = join(dataDir, 'ballast')
    this.#admin = connect(embedded.admin, { max: 2, applicationName: 'faults' })
    process.once('exit', this.#abandon)
  }

  static async start(folder: string, random: Random): Promise<RunPostgres> {
    const dataDir = join(folder, 'data')
    await mkdir(dataDir, { mode: 0o711 })
    if (whyNoFullDisk() === null)
      await run('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MIB}m,mode=711`, 'tmpfs', dataDir])
    const embedded = await startEmbedded({ dataDir, settings: SETTINGS, log: () => {} })
    const silentMs = () => (random() < LONG_SILENCE_SHARE ? SILENT_MS_MAX : SHORT_SILENCE_MS)
    const network = new Network(() => [toPlace(embedded.api)], random, silentMs)
    return new RunPostgres(dataDir, embedded, network, await network.open())
  }

  /** As the operator; repeated until the database answers, so what it does must bear that. */
  async administer<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await work(this.#admin)
      } catch (error) {
        if (!isPassing(error)) throw error
        await sleep(RETRY_MS)
      }
    }
  }

  /** Kills the postmaster; resolves when Postgres takes connections again. */
  async kill(): Promise<void> {
    const pid = this.#readPid()
    if (pid === null) throw new Error('Postgres does not run')
    process.kill(pid, 'SIGKILL')
    await this.#waitReady(pid)
  }

  /** Not a byte is left on the disk for a while. A Postgres that fell over it has come back when this resolves. */
  async fillDisk(ms: number): Promise<void> {
    const file = await open(this.#ballast, 'w')
    try {
      const zeros = Buffer.alloc(FILL_BYTES)
      for (let bytes = FILL_BYTES; bytes >= 4_096; ) {
        try {
          await file.writeFile(zeros.subarray(0, bytes))
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
          bytes /= 4
        }
      }
      await sleep(ms)
    } finally {
      await file.close()
      rmSync(this.#ballast)
    }
    await this.#waitReady(0)
  }

  async stop(): Promise<void> {
    await this.#admin.end({ timeout: 1 })
    await this.network.close()
    await this.#embedded.stop()
    process.off('exit', this.#abandon)
    if (whyNoFullDisk() === null) await run('umount', [this.#dataDir])
  }

  /** For a run that ends before it can stop: Postgres has a session of its own and would live on, and a mount stays. */
  readonly #abandon = (): void => {
    const pid = this.#readPid()
    if (pid !== null) process.kill(pid, 'SIGKILL')
    if (whyNoFullDisk() === null) execFileSync('umount', ['--lazy', this.#dataDir])
  }

  #readPid(): number | null {
    const file = join(this.#dataDir, 'postgres', 'postmaster.pid')
    try {
      const pid = Number(readFileSync(file, 'utf8').split('\n')[0])
      return pid > 1 ? pid : null
    } catch (error) {
      // A Postgres that ends removes it.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
      return null
    }
  }

  async #waitReady(oldPid: number): Promise<void> {
    const deadline = performance.now() + READY_TIMEOUT_MS
    for (;;) {
      const pid = this.#readPid()
      if (pid !== null && pid !== oldPid && (await this.#answers())) return
      if (performance.now() > deadline) throw new Error('Postgres did not come back in time')
      await sleep(POLL_MS)
    }
  }

  async #answers(): Promise<boolean> {
    try {
      await this.#admin`select 1`
      return true
    } catch (error) {
      if (!isPassing(error)) throw error
      return false
    }
  }
}

/** As a URL, which names TCP only. */
function toUrl(target: ConnectionTarget, port: number): string {
  if ('url' in target) throw new Error('the embedded Postgres has no URL')
  const url = new URL(`postgres://127.0.0.1:${port}/${target.database}`)
  url.username = target.user
  url.password = target.password
  return url.href
}

function toPlace(target: ConnectionTarget): Place {
  if ('url' in target) throw new Error('the embedded Postgres has no URL')
  const { host, port } = target
  return host.startsWith('/') ? { path: `${host}/.s.PGSQL.${port}` } : { host, port }
}

/** As long as Postgres is away, comes back, or has no room. */
function isPassing(error: unknown): boolean {
  const code = String((error as { code?: unknown }).code)
  return /^(?:E[A-Z]+|CONNECT\w+|08\w{3}|53\w{3}|57\w{3})$/.test(code)
}

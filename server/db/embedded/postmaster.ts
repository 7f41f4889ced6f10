import type { ChildProcess } from 'node:child_process'
import { type FileHandle, open, readFile, rename, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { StartError } from '../../errors.ts'
import type { Account } from './account.ts'
import type { Binaries } from './binaries.ts'
import { clusterFolder } from './cluster.ts'
import { readPostmasterFile } from './postmaster-file.ts'
import { isAlive } from './process-info.ts'
import { runAs, SET_DATABASE_URL, spawnAs } from './run-as.ts'
import type { Place } from './socket-place.ts'

const READY_TIMEOUT_MS = 300_000 // Recovery after a crash replays what was written since the last checkpoint.
const POLL_MS = 10
const FAST_STOP_MS = 60_000
const IMMEDIATE_STOP_MS = 10_000
const LOG_BYTES_MAX = 10 * 1024 * 1024
const START_TRIES_MAX = 5
const RETRY_MS = 500
const RELAUNCH_MS = 2_000
/** What a killed Postgres can leave for a moment: processes of its own that have not noticed yet. */
const TRANSIENT = /pre-existing shared memory block|lock file ".*" already exists/

export interface PostmasterOptions {
  dataDir: string
  account: Account | null
  binaries: Binaries
  place: Place
  settings: Record<string, string>
  log(line: string): void
}

export interface Postmaster {
  stop(): Promise<void>
}

/**
 * Postgres as a child in a session of its own, so that Ctrl-C reaches only the server, which drains first. When it dies
 * by itself it is started again at the same place. Resolves when it is ready.
 */
export async function startPostmaster(options: PostmasterOptions): Promise<Postmaster> {
  let child = await launch(options)
  let stopping = false
  let restarting = Promise.resolve()
  const watch = (watched: ChildProcess) => {
    watched.once('exit', (code, signal) => {
      if (stopping) return
      options.log(`Postgres ended unexpectedly (${signal ?? `code ${code}`}): starting it again`)
      restarting = relaunch()
    })
  }
  const relaunch = async () => {
    while (!stopping) {
      try {
        child = await launch(options)
        watch(child)
        return
      } catch (error) {
        options.log((error as Error).message)
        await sleep(RELAUNCH_MS)
      }
    }
  }
  watch(child)
  return {
    async stop() {
      stopping = true
      await restarting
      if (child.pid !== undefined && !hasEnded(child))
        await stopPostgres(child.pid, clusterFolder(options.dataDir), options)
    },
  }
}

async function launch(options: PostmasterOptions): Promise<ChildProcess> {
  const logPath = join(options.dataDir, 'postgres.log')
  for (let tries = 1; ; tries++) {
    const offset = await rotateLog(logPath)
    const child = await spawnPostgres(options, logPath)
    if (await becomesReady(child, clusterFolder(options.dataDir))) return child
    const lines = (await readFile(logPath)).subarray(offset).toString().split('\n')
    const fatal =
      lines.find((line) => /FATAL|PANIC/.test(line)) ?? lines.filter((line) => line.trim()).at(-1) ?? 'no reason'
    if (tries >= START_TRIES_MAX || !TRANSIENT.test(fatal)) {
      throw new StartError(
        `Postgres did not start (${fatal.replace(/^.*?(FATAL|PANIC): +/, '')}; its log is ${logPath}): ` +
          `repair that, or ${SET_DATABASE_URL}.`,
      )
    }
    await sleep(RETRY_MS)
  }
}

async function spawnPostgres(options: PostmasterOptions, logPath: string): Promise<ChildProcess> {
  const logFile: FileHandle = await open(logPath, 'a', 0o600)
  try {
    const stdio: ('ignore' | number)[] = ['ignore', logFile.fd, logFile.fd]
    const child = spawnAs(options.account, options.binaries.postgres, postgresArguments(options), {
      detached: true,
      stdio,
    })
    child.on('error', (error) => options.log(`Postgres could not be started: ${error.message}`))
    child.unref()
    return child
  } finally {
    await logFile.close()
  }
}

function postgresArguments({ dataDir, place, settings }: PostmasterOptions): string[] {
  const isSocket = place.host.startsWith('/')
  const all: Record<string, string> = {
    listen_addresses: isSocket ? '' : place.host,
    unix_socket_directories: isSocket ? place.host : '',
    port: String(place.port),
    timezone: 'UTC',
    log_timezone: 'UTC',
    // The detail of an error repeats values of the row, which may be a message's text.
    log_error_verbosity: 'terse',
    ...settings,
  }
  return ['-D', clusterFolder(dataDir), ...Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`])]
}

/** The log is kept small at starts only. Returns where the next start's lines begin. */
async function rotateLog(path: string): Promise<number> {
  const size = (await stat(path).catch(() => null))?.size ?? 0
  if (size <= LOG_BYTES_MAX) return size
  await rename(path, `${path}.1`)
  return 0
}

/** false when the child ended before it took connections. */
async function becomesReady(child: ChildProcess, folder: string): Promise<boolean> {
  const deadline = performance.now() + READY_TIMEOUT_MS
  while (!hasEnded(child)) {
    const file = await readPostmasterFile(folder)
    if (file?.pid === child.pid && file?.isReady) return true
    if (performance.now() > deadline) {
      child.kill('SIGQUIT')
      throw new StartError(`Postgres was not ready after ${READY_TIMEOUT_MS / 1000} s.`)
    }
    await sleep(POLL_MS)
  }
  return false
}

/** Asked and not listened for: a child that ends at once has emitted its event before anybody could listen. */
function hasEnded(child: ChildProcess): boolean {
  return child.pid === undefined || child.exitCode !== null || child.signalCode !== null
}

/** A fast stop: clients are cut off, everything committed is on disk. Where that hangs, a crash stop, which loses nothing either. */
export async function stopPostgres(
  pid: number,
  folder: string,
  options: { binaries: Binaries; account: Account | null },
): Promise<void> {
  if (process.platform === 'win32') {
    await runAs(options.account, options.binaries.pgCtl, ['stop', '-m', 'fast', '-w', '-D', folder], FAST_STOP_MS)
    return
  }
  if (await signalAndWait(pid, 'SIGINT', FAST_STOP_MS)) return
  if (await signalAndWait(pid, 'SIGQUIT', IMMEDIATE_STOP_MS)) return
  await signalAndWait(pid, 'SIGKILL', IMMEDIATE_STOP_MS)
}

async function signalAndWait(pid: number, signal: NodeJS.Signals, timeoutMs: number): Promise<boolean> {
  const deadline = performance.now() + timeoutMs
  try {
    process.kill(pid, signal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return true
    throw error
  }
  while (performance.now() < deadline) {
    if (!isAlive(pid)) return true
    await sleep(POLL_MS)
  }
  return false
}

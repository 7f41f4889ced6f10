import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { ConnectionTarget } from '../../../server/db/connect.ts'
import { findEmbedded } from '../../../server/db/embedded/index.ts'
import { OPEN_LIMITS } from '../../../test/helpers/loss.ts'
import { stopChild } from '../../../test/helpers/processes.ts'
import type { BenchOptions } from './row.ts'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const START_TIMEOUT_MS = 60_000
const LIMITS = JSON.stringify({ ...JSON.parse(OPEN_LIMITS), newPerRecipientMax: 1_000_000 })

export interface Usage {
  rss: number
  heap: number
  /** The longest delay of the event loop since it was watched. */
  stallMs: number
  /** How much of such a delay was work of its own. */
  busyMs: number
  cpuMs: number
  /** How many timers run in the process. */
  timers: number
  /** When wakes were published since the last call: after the commit of each message; `ms` until they were written out. */
  published: { at: number; ms: number }[]
}

/** The built server with probe.mjs inside. */
export interface MeasuredServer {
  url: string
  dataDir: string
  /** The operator's login to its database. */
  target: ConnectionTarget
  /** What was used since the last call. `collects`: rids it of garbage first. `watches` the event loop from now on, at some cost. */
  measure(options?: { collects?: boolean; watches?: boolean }): Promise<Usage>
}

/** `node dist/server/main.js` on a fresh data folder. It and the folder are gone at the end. */
export async function startMeasuredServer({
  folder,
  onEnd,
}: Pick<BenchOptions, 'folder' | 'onEnd'>): Promise<MeasuredServer> {
  const dataDir = await mkdtemp(join(folder, 'patchcord-bench-'))
  onEnd(() => rm(dataDir, { recursive: true, force: true, maxRetries: 3 }))
  const probe = new URL('probe.mjs', import.meta.url).href
  const child = spawn(process.execPath, ['--expose-gc', '--import', probe, 'dist/server/main.js'], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    env: {
      PATH: process.env.PATH ?? '',
      PATCHCORD_DATA_DIR: dataDir,
      PORT: '0',
      LOG_LEVEL: 'error',
      PATCHCORD_LIMITS: LIMITS,
    },
  })
  onEnd(() => stopChild(child))
  const url = await new Promise<string>((resolve, reject) => {
    createInterface({ input: child.stdout as NodeJS.ReadableStream }).on('line', (line) => {
      const found = /listens on (http:\/\/\S+)/.exec(line)?.[1]
      if (found) resolve(found)
    })
    child.once('exit', (code) => reject(new Error(`the server ended with ${code} before it listened`)))
    AbortSignal.timeout(START_TIMEOUT_MS).addEventListener('abort', () =>
      reject(new Error(`the server did not listen within ${START_TIMEOUT_MS / 1000} s`)),
    )
  })
  const embedded = await findEmbedded(dataDir)
  if (!embedded) throw new Error('the server has no embedded Postgres')
  return {
    url,
    dataDir,
    target: embedded.admin,
    async measure(options = {}) {
      child.send(options)
      const [usage] = await answerOf(child)
      return usage as Usage
    },
  }
}

/** The next message of a child, which must not end before. */
export async function answerOf(child: ReturnType<typeof spawn>): Promise<unknown[]> {
  const ending = new AbortController()
  try {
    return await Promise.race([
      once(child, 'message', { signal: ending.signal }),
      once(child, 'exit', { signal: ending.signal }).then(([code, signal]) => {
        throw new Error(`a process that is measured ended (${signal ?? `code ${code}`})`)
      }),
    ])
  } finally {
    ending.abort()
  }
}

/** Milliseconds of the machine's monotonic clock, which all its processes share. */
export function now(): number {
  return Number(process.hrtime.bigint()) / 1e6
}

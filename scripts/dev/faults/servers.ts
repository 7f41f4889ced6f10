import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { stopChild } from '../../../test/helpers/processes.ts'
import { type Clock, endsWithin, hasEnded, ROOT, spawnProgram } from './programs.ts'

/** One of the two instances, as an init system keeps it: what has ended is started again until it listens. */

const START_TIMEOUT_MS = 60_000
const POLL_MS = 20
const LISTENS = 'Patchcord listens on '
const AGAIN_MS = 100
/** Draining has 7 s and Postgres' share 2 s; a machine under load needs some more. */
const END_MS_MAX = 15_000
const LOG_CHARACTERS_SHOWN = 3_000

export interface ServerPlace {
  name: string
  port: number
  folder: string
  env: Record<string, string>
  clock: Clock
}

export class RunServer {
  readonly name: string
  readonly port: number
  readonly clock: Clock
  readonly #place: ServerPlace
  readonly #problems: string[]
  #child: ChildProcess | null = null
  /** After an end that nobody asked for. */
  #restarting: Promise<void> = Promise.resolve()

  constructor(place: ServerPlace, problems: string[]) {
    this.name = place.name
    this.port = place.port
    this.clock = place.clock
    this.#place = place
    this.#problems = problems
  }

  get pid(): number {
    return this.#child?.pid ?? 0
  }

  /** The last lines that it wrote. */
  get log(): string {
    return readFileSync(this.#logFile, 'utf8').slice(-LOG_CHARACTERS_SHOWN)
  }

  get #logFile(): string {
    return join(this.#place.folder, `${this.name}.log`)
  }

  /** Resolves when it listens. While its database is away a server does not start, so it is tried again. */
  async start(): Promise<void> {
    const deadline = performance.now() + START_TIMEOUT_MS
    while (!(await this.#tryStart(deadline))) {
      if (performance.now() > deadline) throw new Error(`${this.name} does not start:\n${this.log}`)
      await sleep(AGAIN_MS)
    }
  }

  async kill(): Promise<void> {
    const child = await this.#take()
    if (child !== null) await stopChild(child, 'SIGKILL')
  }

  /** Asks it to end, as for an update; it must drain and end with 0. */
  async end(): Promise<void> {
    const child = await this.#take()
    if (child === null) return
    child.kill('SIGTERM')
    if (!(await endsWithin(child, END_MS_MAX))) {
      this.#problems.push(`${this.name} did not end within ${END_MS_MAX / 1000} s of SIGTERM:\n${this.log}`)
      await stopChild(child, 'SIGKILL')
    } else if (child.exitCode !== 0) {
      this.#problems.push(`${this.name} ended with ${child.exitCode ?? child.signalCode} after SIGTERM:\n${this.log}`)
    }
  }

  pause(): void {
    this.#child?.kill('SIGSTOP')
  }

  resume(): void {
    this.#child?.kill('SIGCONT')
  }

  async #take(): Promise<ChildProcess | null> {
    await this.#restarting
    const child = this.#child
    this.#child = null
    return child
  }

  async #tryStart(deadline: number): Promise<boolean> {
    const { env, clock, port } = this.#place
    const before = existsSync(this.#logFile) ? statSync(this.#logFile).size : 0
    const child = spawnProgram({
      script: 'dist/server/main.js',
      cwd: ROOT,
      env: { ...env, ...clock.environment, PORT: String(port) },
      stdout: null,
      logFile: this.#logFile,
    })
    while (!hasEnded(child) && performance.now() < deadline) {
      if (this.#says(LISTENS, before)) {
        this.#child = child
        this.#watch(child)
        return true
      }
      await sleep(POLL_MS)
    }
    await stopChild(child, 'SIGKILL')
    return false
  }

  /** By its own words: it takes connections for a moment earlier, to see whether its port is free. */
  #says(words: string, from: number): boolean {
    return readFileSync(this.#logFile).subarray(from).includes(words)
  }

  /** Nothing but a signal of ours may end it. */
  #watch(child: ChildProcess): void {
    void once(child, 'exit').then(([code, signal]) => {
      if (this.#child !== child) return
      this.#problems.push(`${this.name} ended by itself (${code ?? signal}):\n${this.log}`)
      this.#child = null
      this.#restarting = this.start()
    })
  }
}

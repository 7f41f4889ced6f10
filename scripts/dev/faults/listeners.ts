import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { countAnnounced } from '../../../test/helpers/loss.ts'
import { stopChild } from '../../../test/helpers/processes.ts'
import { LinePipe } from './pipe.ts'
import { type Clock, endsWithin, spawnProgram } from './programs.ts'

/** The listener of one agent through all its lives. Its stdout is a named pipe, which can be filled up and left unread. */

/** Smaller than in earnest, so that a minute holds many reconnects; what must not hide a loss (the slow comparison) stays. */
const TIMES = {
  httpMs: 4_000,
  handshakeMs: 4_000,
  heartbeatMs: 3_000,
  heartbeatReplyMs: 2_000,
  joinMs: 6_000,
  leaseMs: 5_000,
  leaseGraceMs: 5_000,
  askAgainMs: 200,
  tickMs: 500,
  sleptMs: 2_500,
  stalledMs: 500,
  backoffMs: [200, 400, 800, 1_500],
}
const REJECTED = /^PATCHCORD: stopped: token rejected \(HTTP 40[13]\)/
const LOG_CHARACTERS_SHOWN = 4_000

export interface ListenerEvents {
  onLife(): void
  /** At this time of Date.now() the pipe had taken it. */
  onLine(count: number, at: number): void
  onEnd(): void
}

export interface ListenerPlace {
  name: string
  url: string
  home: string
  clock: Clock
  /** The part of a ticket's life after which a fresh one is fetched; above 1 each ticket ends first. */
  refreshShare: number
}

export class RunListener {
  readonly name: string
  readonly clock: Clock
  readonly #place: ListenerPlace
  readonly #events: ListenerEvents
  readonly #problems: string[]
  #child: ChildProcess | null = null
  #output: LinePipe | null = null
  /** A refused token may end it, and is no fault of its own. */
  mayBeRejected = false
  #isEnding = false
  #wasRejected = false
  #closed: Promise<unknown> = Promise.resolve()

  constructor(place: ListenerPlace, events: ListenerEvents, problems: string[]) {
    this.name = place.name
    this.clock = place.clock
    this.#place = place
    this.#events = events
    this.#problems = problems
  }

  get isRunning(): boolean {
    return this.#child !== null
  }

  get log(): string {
    return existsSync(this.#logFile) ? readFileSync(this.#logFile, 'utf8').slice(-LOG_CHARACTERS_SHOWN) : ''
  }

  /** How often it has connected in all its lives. */
  countConnected(): number {
    return existsSync(this.#logFile) ? readFileSync(this.#logFile, 'utf8').split('subscribe: connected\n').length : 0
  }

  get #logFile(): string {
    return join(this.#place.home, 'listener.log')
  }

  /** A new life with this token. */
  async start(token: string): Promise<void> {
    const { home, url, clock, refreshShare } = this.#place
    await mkdir(home, { mode: 0o700, recursive: true })
    const output = new LinePipe(join(home, 'stdout'), (text, at) => this.#take(text, at))
    this.#isEnding = false
    this.#wasRejected = false
    this.#events.onLife()
    const env = {
      HOME: home,
      XDG_RUNTIME_DIR: home,
      PATCHCORD_URL: url,
      PATCHCORD_TOKEN: token,
      PATCHCORD_LISTENER_TIMES: JSON.stringify({ ...TIMES, refreshShare }),
      ...clock.environment,
    }
    const child = spawnProgram({
      script: 'scripts/subscribe.mjs',
      cwd: home,
      env,
      stdout: output.writing,
      logFile: this.#logFile,
    })
    this.#child = child
    this.#output = output
    this.#closed = this.#attend(child, output)
  }

  /** Resolves when it has ended and its last line has been read. */
  async stop(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child
    if (child === null) return
    this.#isEnding = true
    await stopChild(child, signal)
    await this.#closed
    if (signal === 'SIGTERM' && child.exitCode !== 0) {
      this.#problems.push(`${this.name}'s listener ended with ${child.exitCode} after SIGTERM:\n${this.log}`)
    }
  }

  /** Its token is no good any more: it must say so and end by itself. */
  async endsRejected(ms: number): Promise<boolean> {
    const child = this.#child
    if (child === null) return true
    this.#isEnding = true
    const hasEnded = await endsWithin(child, ms)
    if (!hasEnded) await stopChild(child, 'SIGKILL')
    await this.#closed
    return hasEnded && this.#wasRejected && child.exitCode === 1
  }

  pause(): void {
    this.#child?.kill('SIGSTOP')
  }

  resume(): void {
    this.#child?.kill('SIGCONT')
  }

  /** Nobody reads its stdout, and the pipe has no room for a byte. */
  stall(): void {
    this.#output?.stall()
  }

  unstall(): void {
    this.#output?.unstall()
  }

  async #attend(child: ChildProcess, output: LinePipe): Promise<void> {
    await once(child, 'exit')
    output.close()
    this.#child = null
    this.#output = null
    this.#events.onEnd()
    if (!this.#isEnding && !(this.mayBeRejected && this.#wasRejected)) {
      const how = child.exitCode ?? child.signalCode
      this.#problems.push(`${this.name}'s listener ended by itself with ${how}:\n${this.log}`)
    }
  }

  #take(text: string, at: number): void {
    const count = countAnnounced(text)
    if (count !== null) this.#events.onLine(count, at)
    else if (REJECTED.test(text)) this.#wasRejected = true
    else this.#problems.push(`${this.name}'s listener wrote "${text}"`)
  }
}

import { type ChildProcess, execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, existsSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { Socket } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { countAnnounced } from '../../../test/helpers/loss.ts'
import { stopChild } from '../../../test/helpers/processes.ts'
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
const PIPE_BYTES = 4_096
const REJECTED = /^PATCHCORD: stopped: token rejected \(HTTP 40[13]\)/
const LOG_CHARACTERS_SHOWN = 4_000

export interface ListenerEvents {
  onLife(): void
  onLine(count: number): void
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
  #output: Socket | null = null
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

  get #pipe(): string {
    return join(this.#place.home, 'stdout')
  }

  /** A new life with this token. */
  async start(token: string): Promise<void> {
    const { home, url, clock, refreshShare } = this.#place
    await mkdir(home, { mode: 0o700, recursive: true })
    rmSync(this.#pipe, { force: true })
    execFileSync('mkfifo', [this.#pipe])
    const reading = openSync(this.#pipe, constants.O_RDONLY | constants.O_NONBLOCK)
    const writing = openSync(this.#pipe, constants.O_WRONLY)
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
      stdout: writing,
      logFile: this.#logFile,
    })
    this.#child = child
    this.#output = new Socket({ fd: reading, readable: true, writable: false })
    this.#closed = this.#read(this.#output, child)
  }

  /** Resolves when it has ended and its last line has been read. */
  async stop(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child
    if (child === null) return
    this.#isEnding = true
    await stopChild(child, signal)
    this.#output?.resume()
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
    this.#output?.pause()
    const pipe = openSync(this.#pipe, constants.O_WRONLY | constants.O_NONBLOCK)
    for (const bytes of [PIPE_BYTES, 1]) {
      try {
        while (true) writeSync(pipe, '\n'.repeat(bytes))
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error
      }
    }
    closeSync(pipe)
  }

  unstall(): void {
    this.#output?.resume()
  }

  async #read(output: Socket, child: ChildProcess): Promise<void> {
    const lines = createInterface({ input: output })
    lines.on('line', (text) => this.#take(text))
    const closed = once(lines, 'close')
    await once(child, 'exit')
    await closed
    this.#child = null
    this.#output = null
    this.#events.onEnd()
    if (!this.#isEnding && !(this.mayBeRejected && this.#wasRejected)) {
      const how = child.exitCode ?? child.signalCode
      this.#problems.push(`${this.name}'s listener ended by itself with ${how}:\n${this.log}`)
    }
  }

  #take(text: string): void {
    if (text === '') return
    const count = countAnnounced(text)
    if (count !== null) this.#events.onLine(count)
    else if (REJECTED.test(text)) this.#wasRejected = true
    else this.#problems.push(`${this.name}'s listener wrote "${text}"`)
  }
}

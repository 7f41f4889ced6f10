import { randomUUID } from 'node:crypto'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleepFor } from 'node:timers/promises'
import { countAnnounced, sendUntilAnswered } from '../../test/helpers/loss.ts'
import {
  type ListenerProcess,
  type RunningServer,
  type ServerOptions,
  spawnListener,
  startServer,
} from '../../test/helpers/processes.ts'
import type { Ledger } from './ledger.ts'

/** Who takes part in a soak run: the server and the listeners, each killed now and then and started again, and the senders. */

/** Ranges of ms; every time of a run is drawn from one of these. */
const SERVER_LIFE_MS = [1_000, 20_000] as const
const SERVER_GONE_MS = [0, 4_000] as const
const LISTENER_LIFE_MS = [300, 15_000] as const
const LISTENER_GONE_MS = [0, 5_000] as const
const SEND_PAUSE_MS = [0, 800] as const
/** One send in so many begins a burst without pauses: kills are to meet sends under way. */
const BURST_EVERY = 12
const BURST_SENDS = 15
/** One message in so many goes to two agents. */
const PAIR_EVERY = 8
const KINDS = ['message', 'question', 'report', 'heads-up', 'request']
const URGENCIES = ['fyi', 'normal', 'urgent']
const LOG_LINES_KEPT = 30
/** Every other listener takes a fresh ticket after some 10 s instead of 7 minutes, so that this happens under load, too. */
export const FAST_REFRESH = JSON.stringify({ refreshShare: 0.018 })

export interface Figures {
  accepted: number
  deliveries: number
  repeated: number
  serverKilled: number
  serverTerminated: number
  listenerKilled: number
  listenerTerminated: number
  /** Connections of a listener's life after its first. */
  reconnects: number
  refreshes: number
  lines: number
}

export interface Run {
  ledger: Ledger
  figures: Figures
  /** What must not happen, in sentences. */
  problems: string[]
}

export type Random = () => number

/** Mulberry32: numbers from 0 to 1 that the seed and the actor's name decide. */
export function createRandom(seed: number, name: string): Random {
  let state = seed
  for (const character of name) state = Math.imul(state ^ character.charCodeAt(0), 0x01000193)
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

function drawMs(random: Random, [from, to]: readonly [number, number]): number {
  return Math.round(from + random() * (to - from))
}

function drawOne<T>(random: Random, values: readonly T[]): T {
  return values[Math.floor(random() * values.length)] as T
}

/** Ends early, without an error, when the signal aborts. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleepFor(ms, undefined, { signal }).catch(() => undefined)
}

export class SoakServer {
  readonly #options: ServerOptions
  readonly #run: Run
  readonly #random: Random
  #server: RunningServer | null = null

  constructor(options: ServerOptions, run: Run, random: Random) {
    this.#options = options
    this.#run = run
    this.#random = random
  }

  async start(): Promise<string> {
    this.#server = await startServer(this.#options)
    return this.#server.url
  }

  /** Kills and starts it until the signal aborts; it runs when this resolves. */
  async disturb(signal: AbortSignal): Promise<void> {
    const { figures } = this.#run
    for (;;) {
      await pause(drawMs(this.#random, SERVER_LIFE_MS), signal)
      if (signal.aborted) return
      const isGentle = this.#random() < 0.5
      if (isGentle) figures.serverTerminated += 1
      else figures.serverKilled += 1
      await this.stop(isGentle ? 'SIGTERM' : 'SIGKILL')
      await pause(drawMs(this.#random, SERVER_GONE_MS), signal)
      await this.start()
    }
  }

  async stop(signal: NodeJS.Signals): Promise<void> {
    const code = await this.#server?.stop(signal)
    this.#server = null
    if (signal === 'SIGTERM' && code !== 0) this.#run.problems.push(`the server ended with ${code} after SIGTERM`)
  }
}

export interface SoakAgent {
  name: string
  token: string
}

export class SoakListener {
  readonly name: string
  readonly token: string
  readonly #place: { url: string; home: string; env: Record<string, string> }
  readonly #run: Run
  readonly #random: Random
  #process: ListenerProcess | null = null
  #isStopping = false
  /** Whether it has got as far as its own code: Node ends at a signal that comes before anybody handles it. */
  #hasSpoken = false
  #log: string[] = []

  constructor(agent: SoakAgent, url: string, folder: string, isFast: boolean, run: Run, random: Random) {
    this.name = agent.name
    this.token = agent.token
    const env: Record<string, string> = isFast ? { PATCHCORD_LISTENER_TIMES: FAST_REFRESH } : {}
    this.#place = { url, home: join(folder, agent.name), env }
    this.#run = run
    this.#random = random
  }

  /** The last lines of stderr, for a report of what went wrong. */
  get log(): string {
    return this.#log.join('\n')
  }

  async start(): Promise<void> {
    await mkdir(this.#place.home, { mode: 0o700, recursive: true })
    const { ledger, figures, problems } = this.#run
    const started = spawnListener({ ...this.#place, token: this.token })
    this.#process = started
    this.#isStopping = false
    this.#hasSpoken = false
    ledger.startLife(this.name)
    started.onLine((text) => {
      const count = countAnnounced(text)
      if (count === null) problems.push(`${this.name} wrote "${text}"`)
      else ledger.announce(this.name, count)
      figures.lines += 1
      this.#note(`stdout ${text}`)
    })
    this.#watchLog(started)
    void started.ended.then((code) => {
      ledger.endLife(this.name)
      if (!this.#isStopping) problems.push(`${this.name}'s listener ended by itself with ${code}:\n${this.log}`)
    })
  }

  #watchLog(started: ListenerProcess): void {
    let isConnected = false
    started.onLog((text) => {
      this.#hasSpoken = true
      this.#note(text)
      if (text === 'subscribe: connected') {
        if (isConnected) this.#run.figures.reconnects += 1
        isConnected = true
      }
      if (text === 'subscribe: token refreshed') this.#run.figures.refreshes += 1
    })
  }

  #note(text: string): void {
    this.#log.push(`${new Date().toISOString().slice(11, 23)} ${text}`)
    if (this.#log.length > LOG_LINES_KEPT) this.#log.shift()
  }

  /** Kills and starts it until the signal aborts; it runs when this resolves. */
  async disturb(signal: AbortSignal): Promise<void> {
    const { figures } = this.#run
    for (;;) {
      await pause(drawMs(this.#random, LISTENER_LIFE_MS), signal)
      if (signal.aborted) return
      const isGentle = this.#random() < 0.5
      if (isGentle) figures.listenerTerminated += 1
      else figures.listenerKilled += 1
      await this.stop(isGentle ? 'SIGTERM' : 'SIGKILL')
      await pause(drawMs(this.#random, LISTENER_GONE_MS), signal)
      await this.start()
    }
  }

  async stop(signal: NodeJS.Signals): Promise<void> {
    const stopped = this.#process
    if (stopped === null) return
    this.#isStopping = true
    this.#process = null
    const code = await stopped.stop(signal)
    // Its last lines have been read, too.
    await stopped.ended
    this.#note(`${signal}, ended with ${code}`)
    if (signal === 'SIGTERM' && code !== 0 && this.#hasSpoken) {
      this.#run.problems.push(`${this.name}'s listener ended with ${code} after SIGTERM:\n${this.log}`)
    }
  }
}

export interface Traffic {
  sender: SoakAgent
  recipients: string[]
  url: string
  random: Random
}

/** Sends until the signal aborts; every send has been answered when this resolves. Rejects when `failed` aborts. */
export async function sendSteadily(
  traffic: Traffic,
  run: Run,
  signal: AbortSignal,
  failed: AbortSignal,
): Promise<void> {
  const { sender, recipients, url, random } = traffic
  const { ledger, figures } = run
  let burst = 0
  while (!signal.aborted) {
    const to = drawRecipients(random, recipients)
    const key = randomUUID()
    const kind = drawOne(random, KINDS)
    const urgency = drawOne(random, URGENCIES)
    ledger.begin(to)
    const message = { to: to.join(', '), content: key, kind, urgency, idempotency_key: key }
    const countRepeated = () => {
      figures.repeated += 1
    }
    const id = await sendUntilAnswered(url, sender.token, message, countRepeated, failed)
    ledger.accept(id, to)
    figures.accepted += 1
    figures.deliveries += to.length
    if (burst > 0) burst -= 1
    else if (random() < 1 / BURST_EVERY) burst = BURST_SENDS
    if (burst === 0) await pause(drawMs(random, SEND_PAUSE_MS), signal)
  }
}

function drawRecipients(random: Random, recipients: string[]): string[] {
  const first = drawOne(random, recipients)
  const second = drawOne(random, recipients)
  return random() < 1 / PAIR_EVERY && first !== second ? [first, second] : [first]
}

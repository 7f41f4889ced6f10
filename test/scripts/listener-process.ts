/** The real listener as a child process, with a HOME, a runtime folder and a project of its own. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { checksumToken } from '../../scripts/lib/tokens.mjs'
import { toTrustId } from '../../scripts/lib/trust.mjs'

const SUBSCRIBE = fileURLToPath(new URL('../../scripts/subscribe.mjs', import.meta.url))
const WAIT_MS = 30_000

/** Short enough for tests, long enough that a busy machine does not turn one into another. */
export const FAST_TIMES = {
  httpMs: 2_000,
  handshakeMs: 2_000,
  joinMs: 2_000,
  compareGapMs: 50,
  askAgainMs: 50,
  standbyMs: 200,
  configMs: 200,
  tickMs: 200,
  backoffMs: [50, 100, 200, 400],
}

export const TOKEN = makeToken('b')
export const OTHER_TOKEN = makeToken('c')

/** A token of the right shape, which no server has issued. */
export function makeToken(letters: string): string {
  const secret = letters.padStart(43, letters)
  return `pc_${secret}${checksumToken(secret)}`
}

/** A machine for listeners: everything they read and write lies below one temporary folder. */
export class Home {
  readonly root: string
  readonly #children: ListenerProcess[] = []

  private constructor(root: string) {
    this.root = root
  }

  static async create(): Promise<Home> {
    const home = new Home(await mkdtemp(join(tmpdir(), 'patchcord-home-')))
    await mkdir(home.project)
    await mkdir(home.runtime, { mode: 0o700 })
    return home
  }

  get project(): string {
    return join(this.root, 'project')
  }

  get runtime(): string {
    return join(this.root, 'run')
  }

  get trustFile(): string {
    return join(this.root, '.config', 'patchcord', 'trusted.json')
  }

  async writeMcpJson(content: unknown): Promise<void> {
    await writeFile(join(this.project, '.mcp.json'), typeof content === 'string' ? content : JSON.stringify(content))
  }

  /** The usual configuration: one server, one token. */
  async connect(origin: string, token = TOKEN): Promise<void> {
    await this.writeMcpJson({ mcpServers: { patchcord: entry(origin, token) } })
  }

  /** These and no others; the usual token where only a server is named. */
  async trust(...identities: (string | { base: string; token: string })[]): Promise<void> {
    const trusted = identities.map((one) => toTrustId(typeof one === 'string' ? { base: one, token: TOKEN } : one))
    await mkdir(join(this.root, '.config', 'patchcord'), { recursive: true })
    await writeFile(this.trustFile, JSON.stringify({ trusted }), { mode: 0o600 })
  }

  async readTrusted(): Promise<string[]> {
    return JSON.parse(await readFile(this.trustFile, 'utf8')).trusted
  }

  async listPidfiles(): Promise<string[]> {
    const files = await readdir(join(this.runtime, 'patchcord')).catch(() => [])
    return files.filter((file) => !file.startsWith('status_'))
  }

  /** Waits until it is so. */
  async hasNoPidfile(): Promise<void> {
    await eventually(() => !existsSync(join(this.runtime, 'patchcord', 'subscribe_acme_bob.pid')))
  }

  start({ args = [], env = {}, times = {}, stdout = 'pipe' }: StartOptions = {}): ListenerProcess {
    const child = new ListenerProcess(
      spawn(process.execPath, [SUBSCRIBE, ...args], {
        cwd: this.project,
        stdio: ['ignore', stdout, 'pipe'],
        env: { ...this.environment(times), ...env },
      }),
    )
    this.#children.push(child)
    return child
  }

  environment(times: Record<string, unknown> = {}): Record<string, string> {
    return {
      HOME: this.root,
      PATH: process.env.PATH ?? '',
      XDG_RUNTIME_DIR: this.runtime,
      TMPDIR: this.root,
      PATCHCORD_LISTENER_TIMES: JSON.stringify({ ...FAST_TIMES, ...times }),
    }
  }

  async remove(): Promise<void> {
    await Promise.all(this.#children.map((child) => child.kill()))
    await rm(this.root, { recursive: true, force: true })
  }
}

export interface StartOptions {
  args?: string[]
  env?: Record<string, string>
  times?: Record<string, unknown>
  /** A file descriptor instead of a pipe that is read at once. */
  stdout?: number | 'pipe'
}

export class ListenerProcess {
  stderr = ''
  stdout = ''
  readonly child: ChildProcess
  readonly ended: Promise<number | null>

  constructor(child: ChildProcess) {
    this.child = child
    child.stdout?.setEncoding('utf8').on('data', (text) => {
      this.stdout += text
    })
    child.stderr?.setEncoding('utf8').on('data', (text) => {
      this.stderr += text
    })
    this.ended = new Promise((resolve) => child.on('close', (code) => resolve(code)))
  }

  get pid(): number {
    return this.child.pid ?? 0
  }

  get lines(): string[] {
    return this.stdout.split('\n').slice(0, -1)
  }

  get isRunning(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null
  }

  /** Waits for a line of stdout, exactly. */
  async line(text: string): Promise<void> {
    await eventually(
      () => this.lines.includes(text),
      () => `no line "${text}" in:\n${this.stdout}\n${this.stderr}`,
    )
  }

  async logged(pattern: RegExp, times = 1): Promise<void> {
    const all = new RegExp(pattern.source, `${pattern.flags.replace('g', '')}g`)
    await eventually(
      () => (this.stderr.match(all)?.length ?? 0) >= times,
      () => `stderr has not ${times} × ${pattern}:\n${this.stderr}\n${this.stdout}`,
    )
  }

  async exitCode(): Promise<number | null> {
    await eventually(
      () => !this.isRunning,
      () => `still running:\n${this.stderr}\n${this.stdout}`,
    )
    return this.ended
  }

  async stop(): Promise<number | null> {
    this.child.kill('SIGTERM')
    return this.exitCode()
  }

  async kill(): Promise<void> {
    if (this.isRunning) this.child.kill('SIGKILL')
    await this.ended
  }
}

export function entry(origin: string, token: string) {
  return { type: 'http', url: `${origin}/mcp`, headers: { Authorization: `Bearer ${token}` } }
}

/** Code that the listener's process loads before its own. */
export function preload(code: string): Record<string, string> {
  return { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(code)}` }
}

/** As on a full disk: a file is made, and nothing can be written into it, until the file `space` is there. */
export function fillDisk(space: string): Record<string, string> {
  return preload(`
    import fs from 'node:fs'
    const { writeFileSync } = fs
    fs.writeFileSync = (file, text, options) => {
      if (fs.existsSync(${JSON.stringify(space)})) return writeFileSync(file, text, options)
      writeFileSync(file, '', options)
      throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
    }`)
}

/** Polls until the condition holds; fails with the message after a generous time. */
export async function eventually(
  condition: () => boolean,
  message: () => string = () => 'never came true',
): Promise<void> {
  const deadline = Date.now() + WAIT_MS
  while (!condition()) {
    if (Date.now() > deadline) assert.fail(message())
    await pause(10)
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

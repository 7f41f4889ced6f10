/** Stands for Codex: a shell that is called `codex`, so that its hooks find it as their parent, and takes `codex queue`. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { eventually, type Home } from './listener-process.ts'

const HOOK = fileURLToPath(new URL('../../scripts/codex-hook.mjs', import.meta.url))
/** `codex queue --thread A --message B` is `sh queue …`: this script. */
const QUEUE = 'printf "%s %s\\n" "$2" "$4" >> queued\n'

let threads = 0

/** An id as Codex makes them. */
export function createThreadId(): string {
  return `01a22826-208e-77e1-ad70-${String(++threads).padStart(12, '0')}`
}

export class FakeCodex {
  readonly child: ChildProcess
  readonly #home: Home
  #hooks = 0

  /** @param args `exec` for a single turn, `app-server unix://` for the daemon */
  constructor(home: Home, args: string[] = [], env: Record<string, string> = {}) {
    const program = join(home.root, 'codex')
    if (!existsSync(program)) copyFileSync('/bin/sh', program)
    writeFileSync(join(home.project, 'queue'), QUEUE)
    this.#home = home
    this.child = spawn(program, ['-s', ...args], {
      cwd: home.project,
      stdio: ['pipe', 'ignore', 'inherit'],
      // What a hook does is tested here, not whether a busy machine lets it answer in time.
      env: { ...home.environment(), PATCHCORD_HOOK_MS: '10000', ...env },
    })
  }

  /** Fires one event; the hook's output, once it has ended. */
  async hook(event: string, thread: string, more: Record<string, unknown> = {}): Promise<string> {
    const name = this.#start(event, thread, more, ';')
    await eventually(() => existsSync(`${name}.done`))
    return readFileSync(`${name}.out`, 'utf8')
  }

  /** Fires one event and does not wait, so that the hook of the next one runs beside it. */
  hookLate(event: string, thread: string, more: Record<string, unknown> = {}): void {
    this.#start(event, thread, more, '&')
  }

  #start(event: string, thread: string, more: Record<string, unknown>, separator: ';' | '&'): string {
    const name = join(this.#home.root, `hook-${this.child.pid}-${++this.#hooks}`)
    const input = { session_id: thread, cwd: this.#home.project, hook_event_name: event, ...more }
    writeFileSync(`${name}.json`, JSON.stringify(input))
    const command = `"${process.execPath}" "${HOOK}" < ${name}.json > ${name}.out`
    this.child.stdin?.write(`${command} ${separator} echo > ${name}.done\n`)
    return name
  }

  /** The first prompt of a thread and its answer, as in the interactive Codex: SessionStart comes with it. */
  async startThread(thread: string): Promise<void> {
    await this.hook('SessionStart', thread, { source: 'startup' })
    await this.turn(thread, 'hello')
  }

  async turn(thread: string, prompt: string): Promise<void> {
    await this.hook('UserPromptSubmit', thread, { prompt })
    const answer = await this.hook('Stop', thread, { stop_hook_active: false })
    if (answer.includes('"block"')) await this.hook('Stop', thread, { stop_hook_active: true })
  }

  /** As a closed terminal or a crash ends it. */
  async kill(): Promise<void> {
    const ended = once(this.child, 'exit')
    if (this.child.exitCode === null && this.child.signalCode === null) {
      this.child.kill('SIGKILL')
      await ended
    }
  }
}

/** What was queued: `THREAD TEXT` each. */
export function readQueued(home: Home): string[] {
  const file = join(home.project, 'queued')
  return existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1) : []
}

/** Files in the runtime folder that belong to threads. */
export function listThreadFiles(home: Home): string[] {
  const folder = join(home.runtime, 'patchcord')
  return existsSync(folder) ? readdirSync(folder).filter((name) => name.includes('codex')) : []
}

/** How many messages are new by what the listener has written down for the hooks; null: nothing yet. */
export function readStatusNew(home: Home): number | null {
  const folder = join(home.runtime, 'patchcord')
  const name = readdirSync(folder).find((one) => one.startsWith('status_') && one.endsWith('.json'))
  return name === undefined ? null : JSON.parse(readFileSync(join(folder, name), 'utf8')).new
}

export function readListenerPid(home: Home, thread: string): number {
  const file = join(home.runtime, 'patchcord', `subscribe_codex-thread_${thread}.pid`)
  return existsSync(file) ? Number(readFileSync(file, 'utf8').split('\n')[0]) : 0
}

import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { assertIsolated } from './isolated.ts'
import { waitUntil } from './wait.ts'

const run = promisify(execFile)
const WAIT_MS = 120_000
const LOOK_MS = 100
/** Between a line that was typed and Enter: what comes in one burst is taken for something pasted. */
const TYPING_MS = 400
/** A line that is not there by then was typed too early, and is typed again. */
const SHOWN_MS = 15_000
/** By so much of its end a line is known that is on the screen. */
const SHOWN_CHARACTERS = 40
const TRIES = 3
const END_MS = 60_000
/** A key that has changed nothing by then was lost. */
const EFFECT_MS = 5_000
const HISTORY_LINES = 500

export interface TerminalOptions {
  /** An empty place for the socket of tmux; short, since the path of a socket is. */
  folder: string
  command: string[]
  env: Record<string, string>
  cwd: string
}

/** A program in a terminal of its own (a private tmux): what a person would type and see. */
export class Terminal {
  #socket: string
  /** Of the program itself. */
  readonly pid: number

  private constructor(socket: string, pid: number) {
    this.#socket = socket
    this.pid = pid
  }

  static async open({ folder, command, env, cwd }: TerminalOptions): Promise<Terminal> {
    assertIsolated()
    const socket = join(folder, `tmux-${Math.random().toString(36).slice(2, 8)}`)
    const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`)
    const size = ['-x', '160', '-y', '50']
    const session = ['new-session', '-d', '-P', '-F', '#{pane_pid}', '-s', 't', ...size, '-c', cwd]
    // The pane stays when its program ends, so that its last words can be read.
    const options = ['set', '-g', 'remain-on-exit', 'on', ';', 'set', '-g', 'history-limit', '5000', ';']
    const { stdout } = await tmux(socket, [...options, ...session, 'env', '-i', ...variables, ...command])
    return new Terminal(socket, Number(stdout.trim()))
  }

  /** Types a line and Enter, once the program shows what was typed. */
  async send(text: string): Promise<void> {
    const before = count(await this.screen(), text)
    for (let tries = 1; ; tries++) {
      await tmux(this.#socket, ['send-keys', '-t', 't', '-l', text])
      const isShown = async () => count(await this.screen(), text) > before
      try {
        await waitUntil(isShown, () => this.screen(), SHOWN_MS)
        break
      } catch (error) {
        if (tries === TRIES) throw error
        await this.key('C-u')
      }
    }
    await sleep(TYPING_MS)
    await this.key('Enter')
  }

  /** Presses a key until the screen is as wanted. */
  async press(key: string, wanted: RegExp): Promise<void> {
    const isThere = async () => wanted.test(await this.screen())
    await waitUntil(
      async () => {
        if (await isThere()) return true
        await this.keyWithEffect(key)
        return await isThere()
      },
      async () => `${key} does not bring ${wanted}:\n${await this.screen()}`,
    )
  }

  /** One key, and waits until the screen changes; not for ever, as what comes before a program listens is lost. */
  async keyWithEffect(key: string): Promise<void> {
    const before = await this.screen()
    await this.key(key)
    const until = performance.now() + EFFECT_MS
    while ((await this.screen()) === before && performance.now() < until) await sleep(LOOK_MS)
  }

  /** Keys by their names in tmux: `Enter`, `Escape`, `C-c`, `Down`. */
  async key(...keys: string[]): Promise<void> {
    await tmux(this.#socket, ['send-keys', '-t', 't', ...keys])
  }

  /** What is on the screen, with what has scrolled off. */
  async screen(): Promise<string> {
    const { stdout } = await tmux(this.#socket, ['capture-pane', '-p', '-t', 't', '-S', `-${HISTORY_LINES}`])
    return stdout
      .split('\n')
      .filter((line) => line.trim() !== '')
      .join('\n')
  }

  /** Waits until something is on the screen; throws with the screen when it does not come. */
  async waitFor(wanted: string | RegExp, timeoutMs = WAIT_MS): Promise<string> {
    const until = performance.now() + timeoutMs
    for (;;) {
      const screen = await this.screen()
      if (typeof wanted === 'string' ? screen.includes(wanted) : wanted.test(screen)) return screen
      if (performance.now() > until) throw new Error(`no ${wanted} on the screen within ${timeoutMs} ms:\n${screen}`)
      await sleep(LOOK_MS)
    }
  }

  async isRunning(): Promise<boolean> {
    const { stdout } = await tmux(this.#socket, ['list-panes', '-t', 't', '-F', '#{pane_dead}'])
    return stdout.trim() === '0'
  }

  /** Waits until the program has ended by itself. */
  async waitForEnd(timeoutMs = END_MS): Promise<void> {
    const until = performance.now() + timeoutMs
    while (await this.isRunning()) {
      if (performance.now() > until) throw new Error(`still running after ${timeoutMs} ms:\n${await this.screen()}`)
      await sleep(LOOK_MS)
    }
  }

  /** Ends the program as closing the window does, and the tmux. */
  async close(): Promise<void> {
    await tmux(this.#socket, ['kill-server']).catch(() => {})
    const until = performance.now() + END_MS
    while (isAlive(this.pid) && performance.now() < until) await sleep(LOOK_MS)
    if (isAlive(this.pid)) process.kill(this.pid, 'SIGKILL')
  }
}

function tmux(socket: string, args: string[]): Promise<{ stdout: string }> {
  return run('tmux', ['-S', socket, '-f', '/dev/null', ...args], { env: { PATH: process.env.PATH, LANG: 'C.UTF-8' } })
}

/** How often the end of a line is on the screen. */
function count(screen: string, line: string): number {
  return screen.split(line.slice(-SHOWN_CHARACTERS)).length - 1
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

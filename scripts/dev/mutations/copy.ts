import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, cp, mkdir, mkdtemp, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { findProcesses } from '../faults/leftovers.ts'
import { type Mutation, mutate } from './list.ts'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const LIST_FILES = ['ls-files', '-z', '--cached', '--others', '--exclude-standard', '--deduplicate']
/** A run of tests that is told to end stops its Postgres first. */
const STOP_MS = 20_000
const TAIL_LINES = 40
/** As root, Postgres runs as another user, who must pass through to what it owns inside. */
const PASSABLE = 0o711

export interface Ended {
  isGood: boolean
  /** How it ended, for people. */
  how: string
  /** The last lines that it wrote. */
  tail: string
}

export interface RunOptions {
  timeoutMs: number
  stopped: AbortSignal
  /** Ends the program, too: more of it is not needed. */
  enough?: AbortSignal
  onLine?: (line: string) => void
}

/** A copy of the working tree, with a folder for temporary files of its own: by that name all that was started in it is found. */
export class Copy {
  readonly #folder: string
  readonly #tree: string
  readonly #temporary: string

  private constructor(folder: string) {
    this.#folder = folder
    this.#tree = join(folder, 'tree')
    this.#temporary = join(folder, 't')
  }

  static async create(): Promise<Copy> {
    const copy = new Copy(await mkdtemp(join(tmpdir(), 'patchcord-mutation-')))
    try {
      await copy.#fill()
      return copy
    } catch (error) {
      await copy.remove()
      throw error
    }
  }

  /** Files that git knows or would add; what is installed is linked. */
  async #fill(): Promise<void> {
    await chmod(this.#folder, PASSABLE)
    await mkdir(this.#temporary, PASSABLE)
    const { stdout } = await promisify(execFile)('git', LIST_FILES, { cwd: ROOT, maxBuffer: 2 ** 24 })
    for (const file of stdout.split('\0').filter((name) => name !== '')) {
      const target = join(this.#tree, file)
      await mkdir(dirname(target), { recursive: true })
      await cp(join(ROOT, file), target, { verbatimSymlinks: true })
    }
    await symlink(await realpath(join(ROOT, 'node_modules')), join(this.#tree, 'node_modules'))
  }

  async mutate(mutation: Mutation): Promise<void> {
    const path = join(this.#tree, mutation.file)
    await writeFile(path, mutate(await readFile(path, 'utf8'), mutation))
  }

  /** Runs a program in the copy; afterwards it and all that it has started is gone. */
  async run(command: string, args: string[], { timeoutMs, stopped, enough, onLine }: RunOptions): Promise<Ended> {
    stopped.throwIfAborted()
    const child = spawn(command, args, {
      cwd: this.#tree,
      env: { ...process.env, TMPDIR: this.#temporary },
      stdio: ['ignore', 'pipe', 'pipe'],
      // A group of its own: Ctrl-C is for us, who then end it in order.
      detached: true,
    })
    const tail = keepLines([child.stdout, child.stderr], onLine)
    const exit = once(child, 'exit')
    const closed = new Promise((resolve) => child.once('close', resolve))
    const isOver = await isOverBefore(exit, timeoutMs, enough ? [stopped, enough] : [stopped])
    if (isOver) child.kill('SIGTERM')
    if (isOver) await isOverBefore(exit, STOP_MS, [])
    this.#endAll(child)
    await closed
    stopped.throwIfAborted()
    const how = isOver ? `was ended after ${timeoutMs / 1000} s` : `ended with ${child.exitCode ?? child.signalCode}`
    return { isGood: !isOver && child.exitCode === 0, how, tail: tail.join('\n') }
  }

  /** Postgres has a group of its own, and a run that was killed leaves it behind. */
  #endAll(child?: ChildProcess): void {
    if (child?.pid) kill(-child.pid)
    for (const { pid } of findProcesses(this.#temporary)) kill(pid)
  }

  async remove(): Promise<void> {
    this.#endAll()
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 5 })
  }
}

/** Whether the time is over, or one of the signals has come, before that happens. */
async function isOverBefore(end: Promise<unknown>, ms: number, signals: AbortSignal[]): Promise<boolean> {
  const timer = new AbortController()
  const over = sleep(ms, true, { signal: AbortSignal.any([...signals, timer.signal]) }).catch(() => true)
  const isOver = await Promise.race([end.then(() => false), over])
  timer.abort()
  return isOver
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error
  }
}

function keepLines(streams: NodeJS.ReadableStream[], onLine?: (line: string) => void): string[] {
  const lines: string[] = []
  for (const input of streams) {
    createInterface({ input }).on('line', (line) => {
      lines.push(line)
      if (lines.length > TAIL_LINES) lines.shift()
      onLine?.(line)
    })
  }
  return lines
}

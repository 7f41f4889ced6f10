/** The built command as a person or an agent runs it, with a HOME and a project of its own. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { checksumToken } from '../../scripts/lib/identity.cjs'
import { stopChild } from '../helpers/processes.ts'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const COMMAND = join(ROOT, 'dist/plugin/cli/main.js')
const END_MS = 120_000

export interface CommandEnd {
  code: number | null
  stdout: string
  stderr: string
  /** stdout as the one JSON document that it is; throws when it is none. */
  // biome-ignore lint/suspicious/noExplicitAny: tests read answers of every shape
  readonly json: any
}

export interface RunOptions {
  stdin?: string
  env?: Record<string, string>
  folder?: string
}

export interface Running {
  child: ChildProcess
  output: { stdout: string; stderr: string }
  ended: Promise<CommandEnd>
}

export class Machine {
  readonly root: string
  readonly project: string

  private constructor(root: string) {
    this.root = root
    this.project = join(root, 'project')
  }

  static async create(): Promise<Machine> {
    const machine = new Machine(await realpath(await mkdtemp(join(tmpdir(), 'patchcord-cli-'))))
    await mkdir(machine.project)
    await mkdir(join(machine.root, 'run'), { mode: 0o700 })
    return machine
  }

  get configFolder(): string {
    return join(this.root, '.config', 'patchcord')
  }

  environment(more: Record<string, string> = {}): Record<string, string> {
    return {
      HOME: this.root,
      PATH: process.env.PATH ?? '',
      XDG_RUNTIME_DIR: join(this.root, 'run'),
      TMPDIR: this.root,
      ...more,
    }
  }

  start(args: readonly string[], { stdin, env, folder }: RunOptions = {}): Running {
    const child = spawn(process.execPath, [COMMAND, ...args], {
      cwd: folder ?? this.project,
      env: this.environment(env),
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    const output = { stdout: '', stderr: '' }
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output.stdout += text
    })
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      output.stderr += text
    })
    if (stdin !== undefined) child.stdin.end(stdin)
    const timer = setTimeout(() => void stopChild(child, 'SIGKILL'), END_MS)
    const ended = once(child, 'close').then(([code]) => {
      clearTimeout(timer)
      return toEnd(code as number | null, output)
    })
    return { child, output, ended }
  }

  run(args: readonly string[], options: RunOptions = {}): Promise<CommandEnd> {
    return this.start(args, { stdin: '', ...options }).ended
  }

  async write(path: string, text: string | Buffer): Promise<string> {
    const file = join(this.project, path)
    await mkdir(dirname(file), { recursive: true })
    await writeFile(file, text)
    return file
  }

  read(path: string): Promise<string> {
    return readFile(join(this.project, path), 'utf8')
  }

  /** Every file below HOME with its bytes, but for what git keeps to itself. */
  async listFiles(): Promise<Record<string, string>> {
    const entries = await readdir(this.root, { recursive: true, withFileTypes: true })
    const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
    const named = await Promise.all(
      files
        .filter((file) => !file.includes('/.git/'))
        .map(async (file) => [file.slice(this.root.length), (await readFile(file)).toString('base64')] as const),
    )
    return Object.fromEntries(named.sort())
  }

  async remove(): Promise<void> {
    await rm(this.root, { recursive: true, force: true, maxRetries: 3 })
  }
}

function toEnd(code: number | null, output: { stdout: string; stderr: string }): CommandEnd {
  return {
    code,
    ...output,
    get json() {
      return JSON.parse(output.stdout)
    },
  }
}

/** Waits until it is so. */
export async function eventually(isSo: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const deadline = Date.now() + 30_000
  while (!(await isSo())) {
    if (Date.now() > deadline) throw new Error(`never: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** A token of the right shape, which no server has issued. */
export function makeToken(letter: string): string {
  const secret = letter.repeat(43)
  return `pc_${secret}${checksumToken(secret)}`
}

/** A port on which nobody listens. */
export async function findClosedPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

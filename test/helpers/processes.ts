import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'

/** The real programs as child processes, as a user runs them: the built server, its operator verbs, listeners, MCP clients. */

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const START_TIMEOUT_MS = 60_000
const STOP_TIMEOUT_MS = 20_000

type Environment = Record<string, string>

/** Only what a program of ours needs: nothing of the caller's environment may decide a run. */
function cleanEnvironment(more: Environment): Environment {
  const path = process.env.PATH ?? ''
  return { PATH: path, ...more }
}

export interface RunningServer {
  url: string
  pid: number
  /** From spawn to the line that says it listens, in ms. */
  startMs: number
  stop(signal?: NodeJS.Signals): Promise<number | null>
}

export interface ServerOptions {
  dataDir: string
  port?: number
  env?: Environment
}

/** `node dist/server/main.js` on a data folder, once it listens. Throws with its stderr when it ends before that. */
export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const startedAt = performance.now()
  const child = spawn(process.execPath, [join(ROOT, 'dist/server/main.js')], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: cleanEnvironment({
      PATCHCORD_DATA_DIR: options.dataDir,
      PORT: String(options.port ?? 0),
      LOG_LEVEL: 'warn',
      ...options.env,
    }),
  })
  let errors = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-4_000)
  })
  const url = await firstMatch(child, /listens on (http:\/\/\S+)/, () => errors)
  return {
    url,
    pid: child.pid as number,
    startMs: performance.now() - startedAt,
    stop: (signal) => stopChild(child, signal),
  }
}

async function firstMatch(child: ChildProcess, pattern: RegExp, errors: () => string): Promise<string> {
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream })
  const timeout = AbortSignal.timeout(START_TIMEOUT_MS)
  return await new Promise((resolve, reject) => {
    lines.on('line', (line) => {
      const found = pattern.exec(line)?.[1]
      if (found) resolve(found)
    })
    child.once('exit', (code) => reject(new Error(`the server ended with ${code} before it listened: ${errors()}`)))
    timeout.addEventListener('abort', () => reject(new Error(`the server did not listen in time: ${errors()}`)))
  })
}

/** Ends a child that we started; SIGKILL after a while. Its exit code, null for a signal. */
export async function stopChild(child: ChildProcess, signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return child.exitCode
  const exit = once(child, 'exit')
  child.kill(signal)
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS)
  await exit
  clearTimeout(timer)
  return child.exitCode
}

/** One operator verb with --json on a data folder's running server; its answer. */
export async function runAdmin(dataDir: string, ...verb: string[]): Promise<Record<string, unknown>> {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [join(ROOT, 'dist/server/admin.js'), ...verb, '--json'],
    { cwd: ROOT, env: cleanEnvironment({ PATCHCORD_DATA_DIR: dataDir }) },
  )
  return JSON.parse(stdout) as Record<string, unknown>
}

export interface ListenerProcess {
  pid: number
  lines: { text: string; at: number }[]
  onLine(tell: (text: string, at: number) => void): void
  /** Lines of stderr. */
  onLog(tell: (text: string) => void): void
  ended: Promise<number | null>
  stop(signal?: NodeJS.Signals): Promise<number | null>
}

export interface RunningListener extends ListenerProcess {
  /** From spawn to `subscribe: connected`, in ms. */
  startMs: number
}

export interface ListenerOptions {
  url: string
  token: string
  /** A folder of its own: pidfiles, trust and nothing of the user's. */
  home: string
  env?: Environment
}

/** `node scripts/subscribe.mjs`, started by hand. `at` is performance.now() when a line arrived. */
export function spawnListener(options: ListenerOptions): ListenerProcess {
  const child = spawn(process.execPath, [join(ROOT, 'scripts/subscribe.mjs')], {
    cwd: options.home,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: cleanEnvironment({
      HOME: options.home,
      XDG_RUNTIME_DIR: options.home,
      PATCHCORD_URL: options.url,
      PATCHCORD_TOKEN: options.token,
      ...options.env,
    }),
  })
  const lines: { text: string; at: number }[] = []
  const tellers: ((text: string, at: number) => void)[] = []
  createInterface({ input: child.stdout }).on('line', (text) => {
    const at = performance.now()
    lines.push({ text, at })
    for (const tell of tellers) tell(text, at)
  })
  const errors = createInterface({ input: child.stderr })
  return {
    pid: child.pid as number,
    lines,
    onLine: (tell) => tellers.push(tell),
    onLog: (tell) => errors.on('line', tell),
    ended: new Promise((resolve) => child.once('close', (code) => resolve(code))),
    stop: (signal) => stopChild(child, signal),
  }
}

/** A listener that is connected. */
export async function startListener(options: ListenerOptions): Promise<RunningListener> {
  const startedAt = performance.now()
  const listener = spawnListener(options)
  let errors = ''
  await new Promise<void>((resolve, reject) => {
    listener.onLog((line) => {
      errors = `${errors}\n${line}`.slice(-4_000)
      if (line.includes('subscribe: connected')) resolve()
    })
    listener.ended.then((code) => reject(new Error(`the listener ended with ${code}:${errors}`)))
    AbortSignal.timeout(START_TIMEOUT_MS).addEventListener('abort', () =>
      reject(new Error(`the listener did not connect in time:${errors}`)),
    )
  })
  return { ...listener, startMs: performance.now() - startedAt }
}

/**
 * `connected` may come before the listener knows what waits in the inbox: a message that its first look still finds is
 * announced as waiting, not as new. Call this before the listener of the token starts, and what it gives after.
 */
export function watchFirstLook(server: Server, token: string): () => Promise<void> {
  let isAnswered = false
  const watch = ({ method, url, headers }: IncomingMessage, response: ServerResponse) => {
    if (method !== 'GET' || !url?.startsWith('/api/inbox') || headers.authorization !== `Bearer ${token}`) return
    response.once('finish', () => {
      isAnswered ||= response.statusCode === 200
    })
  }
  server.on('request', watch)
  return async () => {
    await untilTrue('the listener has looked into its inbox', () => isAnswered)
    server.off('request', watch)
  }
}

/** `connected` comes before the lease that it leads to is stored: until then others see the agent as online. */
export async function untilWakeable(url: string, token: string): Promise<void> {
  await untilTrue('the agent is wakeable', async () => {
    const response = await fetch(new URL('/api/agents', url), { headers: { authorization: `Bearer ${token}` } })
    const { agents } = (await response.json()) as { agents: { is_you: boolean; reach: string }[] }
    return agents.some((agent) => agent.is_you && agent.reach === 'wakeable')
  })
}

async function untilTrue(what: string, isTrue: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + START_TIMEOUT_MS
  while (!(await isTrue())) {
    if (performance.now() > deadline) throw new Error(`not in time: ${what}`)
    await sleep(20)
  }
}

export interface McpAgent {
  /** Calls a tool; its text, and whether the tool said that it failed. */
  call(
    name: string,
    input?: Record<string, unknown>,
  ): Promise<{ text: string; isError: boolean; data: Record<string, unknown> }>
  close(): Promise<void>
}

/** A real MCP client of an agent's token. */
export async function connectMcp(url: string, token: string): Promise<McpAgent> {
  const client = new Client({ name: 'patchcord-check', version: '0.0.0' }, { versionNegotiation: { mode: 'auto' } })
  const headers = { Authorization: `Bearer ${token}` }
  await client.connect(new StreamableHTTPClientTransport(new URL('/mcp', url), { requestInit: { headers } }))
  return {
    async call(name, input = {}) {
      const result = await client.callTool({ name, arguments: input })
      const content = result.content as { type: string; text?: string }[]
      const text = content.map((part) => part.text ?? '').join('\n')
      return {
        text,
        isError: result.isError === true,
        data: (result.structuredContent ?? {}) as Record<string, unknown>,
      }
    },
    close: () => client.close(),
  }
}

/** A temporary folder; call `remove` at the end. */
export async function createTemporaryFolder(): Promise<{ path: string; remove(): Promise<void> }> {
  const path = await mkdtemp(join(tmpdir(), 'patchcord-'))
  // Others may pass through to what they own inside: as root, Postgres runs as another user.
  await chmod(path, 0o711)
  return { path, remove: () => rm(path, { recursive: true, force: true, maxRetries: 3 }) }
}

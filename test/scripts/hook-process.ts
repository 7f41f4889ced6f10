/** The real hook as a child process, as a client starts it, and a server whose every answer can be scripted. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import http from 'node:http'
import https from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import type { TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Home } from './listener-process.ts'

const HOOK = fileURLToPath(new URL('../../scripts/hook.cjs', import.meta.url))
const STATUSLINE = fileURLToPath(new URL('../../scripts/statusline.cjs', import.meta.url))

export interface ProgramResult {
  code: number | null
  stdout: string
  stderr: string
  ms: number
}

export interface HookOptions {
  args?: string[]
  env?: Record<string, string>
  cwd?: string
}

/** One event; on a busy machine a test must not depend on the short time that a hook gives its server. */
export async function runHook(home: Home, input: unknown, options: HookOptions = {}): Promise<ProgramResult> {
  return await runProgram([HOOK, ...(options.args ?? [])], input, {
    cwd: options.cwd ?? home.project,
    env: { ...home.environment(), PATCHCORD_HOOK_MS: '8000', ...options.env },
  })
}

export async function runStatusline(home: Home, input: unknown, options: HookOptions = {}): Promise<ProgramResult> {
  const env = { ...home.environment(), ...options.env }
  return await runProgram([STATUSLINE], input, { cwd: options.cwd ?? home.project, env })
}

export async function runProgram(
  args: string[],
  input: unknown,
  { cwd, env }: { cwd: string; env: Record<string, string> },
): Promise<ProgramResult> {
  const startedAt = performance.now()
  const child = spawn(process.execPath, args, { cwd, env, stdio: 'pipe' })
  const result = { code: null as number | null, stdout: '', stderr: '', ms: 0 }
  child.stdout.setEncoding('utf8').on('data', (text) => {
    result.stdout += text
  })
  child.stderr.setEncoding('utf8').on('data', (text) => {
    result.stderr += text
  })
  child.stdin.on('error', () => {})
  child.stdin.end(typeof input === 'string' ? input : JSON.stringify(input))
  result.code = await new Promise((resolve) => child.on('close', resolve))
  result.ms = performance.now() - startedAt
  return result
}

export type HookAnswer = { status?: number; json?: unknown; text?: string; headers?: Record<string, string> } | 'hang'

export interface HookRequest {
  method: string
  path: string
  token: string
  body: unknown
}

export class HookServer {
  readonly requests: HookRequest[] = []
  /** Answers by path without its query; what is missing here is answered as a healthy server would. */
  answers: Record<string, HookAnswer | ((response: http.ServerResponse, token: string) => void)> = {}
  pending: { message_id: string; from: unknown; sent_at: string }[] = []
  delayMs = 0
  connectionCount = 0
  origin = ''
  readonly #server: http.Server | https.Server
  readonly #sockets = new Set<Socket>()

  private constructor(tls?: { key: string; cert: string }) {
    const answer = (request: http.IncomingMessage, response: http.ServerResponse) => this.#receive(request, response)
    this.#server = tls === undefined ? http.createServer(answer) : https.createServer(tls, answer)
    this.#server.on('connection', (socket: Socket) => {
      this.connectionCount += 1
      this.#sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => this.#sockets.delete(socket))
    })
  }

  static async open(tls?: { key: string; cert: string }): Promise<HookServer> {
    const server = new HookServer(tls)
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve))
    const { port } = server.#server.address() as AddressInfo
    server.origin = `${tls === undefined ? 'http' : 'https'}://127.0.0.1:${port}`
    return server
  }

  deliver(from: unknown): string {
    const id = crypto.randomUUID()
    this.pending.push({ message_id: id, from, sent_at: new Date().toISOString() })
    return id
  }

  list(method: string, path: string): HookRequest[] {
    return this.requests.filter((request) => request.method === method && request.path.startsWith(path))
  }

  /** The states that were noted, in order: where something is new, not those that ask for the inbox first. */
  readonly presence: unknown[] = []

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  #receive(request: http.IncomingMessage, response: http.ServerResponse): void {
    const startedAt = performance.now()
    let text = ''
    request.setEncoding('utf8').on('data', (chunk) => {
      text += chunk
    })
    request.on('error', () => {})
    request.on('end', () => {
      const path = request.url ?? ''
      const token = (request.headers.authorization ?? '').replace('Bearer ', '')
      const body: unknown = text === '' ? null : JSON.parse(text)
      this.requests.push({ method: request.method ?? '', path, token, body })
      const isNoted = !path.endsWith('inbox=first') || this.pending.length === 0
      if (path.startsWith('/api/presence') && isNoted) this.presence.push(body)
      callAt(startedAt + this.delayMs, () => this.#answer(path, response, token))
    })
  }

  #answer(target: string, response: http.ServerResponse, token: string): void {
    const [path = '', query] = target.split('?')
    const answer = this.answers[path] ?? this.#pickHealthy(path, query)
    if (answer === 'hang') return
    if (typeof answer === 'function') {
      answer(response, token)
      return
    }
    const body = answer.text ?? (answer.json === undefined ? '' : JSON.stringify(answer.json))
    response.writeHead(answer.status ?? 200, { 'content-type': 'application/json', ...answer.headers }).end(body)
  }

  #pickHealthy(path: string, query = ''): HookAnswer {
    if (path === '/api/inbox' || (path === '/api/presence' && query.startsWith('inbox='))) {
      const counts = { pending_count: this.pending.length, pending: this.pending }
      return { json: { ...counts, agent_id: 'bob', namespace_id: 'acme' } }
    }
    if (path === '/api/presence') return { status: 204 }
    if (path === '/api/agents')
      return {
        json: { namespace: 'acme', agents: [{ agent: 'bob', reach: 'online', is_you: true }], version: '0.1.0' },
      }
    if (path === '/health') return { json: { status: 'ok', version: '0.1.0' } }
    return { status: 404, text: '<html>not here</html>' }
  }
}

/** Not a millisecond or two late, as timers are. */
function callAt(endsAt: number, call: () => void): void {
  const leftMs = endsAt - performance.now()
  if (leftMs <= 0) call()
  else if (leftMs > 2) setTimeout(callAt, Math.floor(leftMs - 1), endsAt, call)
  else setImmediate(callAt, endsAt, call)
}

/** A trusted project of a healthy server. */
export async function setUpHooks(context: TestContext, tls?: { key: string; cert: string }) {
  const server = await HookServer.open(tls)
  const home = await Home.create()
  context.after(async () => {
    await home.remove()
    await server.close()
  })
  await home.connect(server.origin)
  await home.trust(server.origin)
  return { server, home }
}

export function hookEvent(name: string, more: Record<string, unknown> = {}) {
  return { hook_event_name: name, session_id: 'session-1', prompt: 'hello', source: 'startup', ...more }
}

export function readContext({ stdout }: ProgramResult): { event: string; text: string } {
  const { hookEventName, additionalContext } = JSON.parse(stdout).hookSpecificOutput
  return { event: hookEventName, text: additionalContext }
}

export function assertSilent(result: ProgramResult, about = ''): void {
  assert.deepEqual(
    { code: result.code, stdout: result.stdout, stderr: result.stderr },
    { code: 0, stdout: '', stderr: '' },
    about,
  )
}

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { ConnectionTarget } from '../../server/db/connect.ts'
import { stopChild } from './processes.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const END_TIMEOUT_MS = 60_000

export interface ProgramEnd {
  code: number | null
  stdout: string
  stderr: string
}

export interface Program {
  child: ChildProcess
  /** What it wrote so far. */
  output: ProgramEnd
  /** When it has ended; it is killed after a minute. */
  ended: Promise<ProgramEnd>
}

/** One of the built programs, with no environment but this and PATH. */
export function startProgram(file: string, args: string[], env: Record<string, string>): Program {
  const child = spawn(process.execPath, [join(ROOT, file), ...args], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: process.env.PATH ?? '', ...env },
  })
  const output: ProgramEnd = { code: null, stdout: '', stderr: '' }
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output.stdout += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    output.stderr += text
  })
  const timer = setTimeout(() => void stopChild(child, 'SIGKILL'), END_TIMEOUT_MS)
  const ended = once(child, 'close').then(() => {
    clearTimeout(timer)
    return Object.assign(output, { code: child.exitCode })
  })
  return { child, output, ended }
}

/**
 * The target as a URL, which only names TCP: connections are passed on to its Unix socket; with `isLostWhenReady` each one
 * is cut with the first bytes that the client sends once Postgres is ready for a query. `close` it at the end.
 */
export async function openDatabaseUrl(
  target: ConnectionTarget,
  { isLostWhenReady = false } = {},
): Promise<{ url: string; close(): Promise<void> }> {
  if ('url' in target) throw new Error('the target has a URL already')
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    const isSocketFolder = target.host.startsWith('/')
    const inner = connect(
      isSocketFolder ? { path: `${target.host}/.s.PGSQL.${target.port}` } : { host: target.host, port: target.port },
    )
    if (isLostWhenReady)
      inner.on('data', (bytes) => void (isReadyForQuery(bytes) && socket.once('data', () => socket.destroy())))
    for (const [from, to] of [
      [socket, inner],
      [inner, socket],
    ] as const) {
      sockets.add(from)
      from.pipe(to)
      from.on('error', () => to.destroy())
      from.on('close', () => {
        to.destroy()
        sockets.delete(from)
      })
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const url = new URL(`postgres://127.0.0.1:${port}/${target.database}`)
  url.username = target.user
  url.password = target.password
  return {
    url: url.href,
    async close() {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}

/** The protocol's last message of a login, and of each query. */
function isReadyForQuery(bytes: Buffer): boolean {
  return bytes.subarray(-6).equals(Buffer.from('Z\0\0\0\x05I', 'latin1'))
}

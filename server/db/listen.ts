import { randomUUID } from 'node:crypto'
import { StartError } from '../errors.ts'
import { type ConnectionTarget, connect, describeTarget } from './connect.ts'

/** NOTIFY refuses 8,000 bytes and more. */
const NOTIFY_BYTES_MAX = 7_900
const ECHO_TIMEOUT_MS = 2_000

export interface Channel {
  payloadBytesMax: number
  /** Sends one payload to every instance, this one included. */
  notify(payload: string): Promise<void>
  close(): Promise<void>
}

export interface ChannelHandlers {
  onPayload: (payload: string) => void
  /** After the first and every later (re)connection: what was notified before it may have been missed. */
  onListening: () => void
}

/**
 * LISTEN and NOTIFY on a connection of their own. Throws StartError when the first LISTEN hears nothing of its own NOTIFY
 * within 2 s, as behind a transaction pooler, where LISTEN is accepted and deaf.
 */
export async function openChannel(target: ConnectionTarget, name: string, handlers: ChannelHandlers): Promise<Channel> {
  const sql = connect(target, { max: 1, applicationName: 'patchcord-wakes' })
  const echo = `echo ${randomUUID()}`
  let onEcho: () => void = () => {}
  const heard = new Promise<void>((resolve) => {
    onEcho = resolve
  })
  const onPayload = (payload: string) => {
    if (payload === echo) onEcho()
    else if (!payload.startsWith('echo ')) handlers.onPayload(payload)
  }
  try {
    await sql.listen(name, onPayload, handlers.onListening)
    await sql.notify(name, echo)
    await withTimeout(heard, ECHO_TIMEOUT_MS)
  } catch (error) {
    await sql.end({ timeout: 1 })
    throw new StartError(
      `LISTEN does not work on ${describeTarget(target)}: use a direct or session-mode connection, ` +
        'or name one in DATABASE_LISTEN_URL.',
      { cause: error },
    )
  }
  return {
    payloadBytesMax: NOTIFY_BYTES_MAX,
    async notify(payload) {
      await sql.notify(name, payload)
    },
    async close() {
      await sql.end({ timeout: 1 })
    },
  }
}

async function withTimeout(promise: Promise<void>, timeoutMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs)
  })
  try {
    await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

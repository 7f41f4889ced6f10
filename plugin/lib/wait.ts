import { setTimeout as sleep } from 'node:timers/promises'
import { isRecord } from '../../scripts/lib/text.mjs'
import { callApi, exitOf, type Server } from './api.ts'
import { parseSeconds } from './duration.ts'
import { CommandError, usageError } from './errors.ts'
import { cleanLabel } from './frame.ts'
import type { Message } from './show.ts'
import { callMcp, RpcError } from './upstream.ts'
import { toOurWords } from './wording.ts'

/** One call's share of a wait: short enough that a proxy lets it live. */
const SLICE_SECONDS = 50
const AGAIN_MS = 1_000
const PAGES_MAX = 20

export interface WaitFilter {
  from?: string | undefined
  thread?: string | undefined
}

export function parseTimeoutMs(text: string | undefined, defaultSeconds: number): number {
  if (text === undefined) return defaultSeconds * 1000
  const seconds = parseSeconds(text)
  if (seconds !== null) return seconds * 1000
  throw usageError('--timeout takes seconds, or a number and s, m, h or d, such as 5m.')
}

/**
 * Fetches the next new message that fits, in full; null when none came in time. A server that restarts meanwhile is waited
 * for; one that was not there at the start is an error.
 */
export async function waitForMessage(
  server: Server,
  filter: WaitFilter,
  deadlineMs: number,
  onSlice: () => Promise<boolean> = async () => true,
): Promise<Message | null> {
  let hasAnswered = false
  for (;;) {
    const leftMs = deadlineMs - Date.now()
    if (leftMs <= 0) return null
    try {
      const message = await waitOnce(server, filter, leftMs)
      hasAnswered = true
      if (message !== null) return await readInFull(server, message)
      if (!(await onSlice())) return null
    } catch (error) {
      const isPassing =
        error instanceof CommandError && ['unreachable', 'unavailable', 'not_patchcord'].includes(error.code)
      if (!hasAnswered || !isPassing) throw error
      await sleep(Math.min(AGAIN_MS, Math.max(0, deadlineMs - Date.now())))
    }
  }
}

async function waitOnce(server: Server, filter: WaitFilter, leftMs: number): Promise<Message | null> {
  const timeoutSeconds = Math.min(SLICE_SECONDS, Math.max(1, Math.ceil(leftMs / 1000)))
  const fields = Object.entries(filter).filter(([, value]) => value !== undefined)
  const args = { timeout_seconds: timeoutSeconds, ...Object.fromEntries(fields) }
  const result = await callMcp(server, 'tools/call', { name: 'wait_for_message', arguments: args }).catch((error) => {
    if (error instanceof CommandError) throw inOurWords(error)
    if (!(error instanceof RpcError)) throw error
    const hint = 'The server may be of another version: compare patchcord --version with its /health.'
    throw new CommandError('not_patchcord', `The server refused the wait: ${error.message}`, { hint, cause: error })
  })
  if (result.isError === true) throw toCommandError(result)
  const { end, message } = isRecord(result.structuredContent) ? result.structuredContent : {}
  if (isRecord(message)) return message as unknown as Message
  // A server that goes down answers at once: calling again at once would only knock at a closed door.
  if (end === 'restarting') await sleep(AGAIN_MS)
  return null
}

/** The tool's text came in the server's own frame and cut; this is the message as it was written, to be framed here. */
async function readInFull(server: Server, { message_id: id }: Message): Promise<Message> {
  try {
    const first = await readPage(server, id, 0)
    let { content, next_offset: next } = first
    for (let page = 1; next !== null && page < PAGES_MAX; page++) {
      const more = await readPage(server, id, next)
      content += more.content
      next = more.next_offset
    }
    return { ...first, content }
  } catch (error) {
    throw new CommandError(
      'unreachable',
      `Message ${cleanLabel(id)} came, but its text could not be read: ${cleanLabel((error as Error).message, 500)}`,
      {
        hint: `It is open in your inbox: patchcord recall ${cleanLabel(id)}`,
        cause: error,
      },
    )
  }
}

function readPage(server: Server, id: string, offset: number): Promise<Message & { next_offset: number | null }> {
  return callApi(server, 'GET', `/api/messages/${encodeURIComponent(id)}?offset=${offset}`)
}

function inOurWords({ code, message, hint, exit, cause }: CommandError): CommandError {
  const said = toOurWords(code, { message, hint })
  return new CommandError(code, said.message, { hint: said.hint, exit, cause })
}

function toCommandError({ _meta: meta, content }: Record<string, unknown>): CommandError {
  const error = isRecord(meta) && isRecord(meta['patchcord/error']) ? meta['patchcord/error'] : {}
  const [first] = Array.isArray(content) ? content : []
  const message =
    typeof error.message === 'string' ? error.message : String(isRecord(first) ? first.text : 'The wait failed.')
  const code = typeof error.code === 'string' ? error.code : 'internal'
  const hint = typeof error.hint === 'string' ? error.hint : undefined
  return inOurWords(new CommandError(code, message, { hint, exit: exitOf(code) }))
}

import assert from 'node:assert/strict'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect, type Sql } from '../../server/db/connect.ts'
import { findEmbedded } from '../../server/db/embedded/index.ts'
import { seed } from './seed.ts'

/** What the runs share that kill a real server and look for lost messages: agents, calls that expect no answer, the inbox. */

const ANSWER_TIMEOUT_MS = 10_000
const REPEAT_MS = 100

/** Raised openly: these runs are about loss, not about limits. */
export const OPEN_LIMITS = JSON.stringify({
  sendBurst: 1_000_000,
  sendPerSecond: 1_000_000,
  unauthenticatedPerMinute: 1_000_000,
})

/** A port that was free a moment ago, for a server that must come back on the same one. */
export async function findFreePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  assert.ok(address && typeof address === 'object')
  return address.port
}

/** The operator's connection of a data folder whose server runs. */
export async function withOperator<T>(dataDir: string, work: (admin: Sql) => Promise<T>): Promise<T> {
  const embedded = await findEmbedded(dataDir)
  assert.ok(embedded, 'the server runs')
  const admin = connect(embedded.admin, { max: 1, applicationName: 'loss-run' })
  try {
    return await work(admin)
  } finally {
    await admin.end()
  }
}

/** A namespace with agents; their tokens by name. */
export async function createAgents(dataDir: string, namespace: string, names: string[]): Promise<Map<string, string>> {
  const agents = await withOperator(dataDir, (admin) => seed({ admin, api: admin }, namespace, names))
  return new Map(Object.values(agents).map(({ agent, token }) => [agent, token]))
}

/** A JSON call; null when the server did not answer or is not there. Any answer that is not a success is a failed run. */
export async function callRest(
  url: string,
  token: string,
  method: string,
  path: string,
  body: unknown,
): Promise<Record<string, unknown> | null> {
  let response: Response
  try {
    response = await fetch(new URL(path, url), {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
    })
    const answer = (await response.json()) as Record<string, unknown>
    if (response.ok) return answer
    if (response.status === 503) return null
    throw new assert.AssertionError({ message: `${method} ${path}: ${response.status} ${JSON.stringify(answer)}` })
  } catch (error) {
    if (error instanceof assert.AssertionError) throw error
    return null
  }
}

/** Sends one message until it is answered, as a client does: same key, so that a lost answer stores nothing twice. Rejects when `failed` aborts. */
export async function sendUntilAnswered(
  url: string,
  token: string,
  message: { to: string; content: string; kind: string; urgency?: string; idempotency_key: string },
  onRepeat: () => void,
  failed?: AbortSignal,
): Promise<string> {
  for (;;) {
    failed?.throwIfAborted()
    const answer = await callRest(url, token, 'POST', '/api/messages', message)
    if (answer) return String(answer.message_id)
    onRepeat()
    await sleep(REPEAT_MS)
  }
}

/** Every id that the inbox shows as new, page by page; each page's are done with the next call. */
export async function fetchNew(url: string, token: string): Promise<string[]> {
  const ids: string[] = []
  let done: string[] = []
  for (;;) {
    const inbox = await callRest(url, token, 'POST', '/api/inbox/fetch', { done })
    assert.ok(inbox, 'the inbox answers')
    done = (inbox.new as { message_id: string }[]).map((message) => message.message_id)
    ids.push(...done)
    if (done.length === 0) return ids
  }
}

/** How many messages a listener's line announces; null: the line does not speak of messages. */
export function countAnnounced(line: string): number | null {
  const count = /^PATCHCORD: (\d+) (?:new from \S|waiting in inbox$)/.exec(line)?.[1]
  return count === undefined ? null : Number(count)
}

import assert from 'node:assert/strict'
import { mkdir } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { connect } from '../../server/db/connect.ts'
import { findEmbedded } from '../../server/db/embedded/index.ts'
import {
  createTemporaryFolder,
  type RunningListener,
  type RunningServer,
  startListener,
  startServer,
} from '../helpers/processes.ts'
import { seed } from '../helpers/seed.ts'

const AGENTS = 10
const SETTLE_TIMEOUT_MS = 90_000
const ANSWER_TIMEOUT_MS = 10_000
/** Raised openly: this run is about loss, not about limits. */
const LIMITS = JSON.stringify({ sendBurst: 1_000_000, sendPerSecond: 1_000_000, unauthenticatedPerMinute: 1_000_000 })

interface Receiver {
  name: string
  token: string
  listener: RunningListener
}

interface Sent {
  id: string
  to: string
}

export interface KillReport {
  answered: number
  /** Sends whose answer the kill swallowed, and which were then repeated under the same key. */
  repeated: number
  announced: number
}

/**
 * `sends` messages from 10 senders to 10 listening receivers; in the middle the server is killed with SIGKILL and started
 * again on the same data and port. Asserts that every send that was answered is in its recipient's inbox exactly once and was announced
 * by that agent's listener exactly once.
 */
export async function runKill(sends: number): Promise<KillReport> {
  const folder = await createTemporaryFolder()
  const cleanup: (() => Promise<unknown>)[] = [folder.remove]
  try {
    const place = { dataDir: join(folder.path, 'data'), port: await findFreePort(), env: { PATCHCORD_LIMITS: LIMITS } }
    let server = await startServer(place)
    cleanup.push(() => server.stop())
    const agents = await createAgents(place.dataDir)
    const { url } = server
    const receivers = await Promise.all(
      agents.receivers.map(([name, token]) => startReceiver(url, folder.path, name, token)),
    )
    for (const { listener } of receivers) cleanup.push(() => listener.stop())
    const run = createSendRun(url, receivers, sends)
    const sending = Promise.all(agents.senders.map((token, index) => run.sendShare(token, index)))
    await run.half
    await server.stop('SIGKILL')
    server = await startServer(place)
    await sending
    const announced = await checkReceivers(server, receivers, run.sent)
    return { answered: run.sent.length, repeated: run.repeated(), announced }
  } finally {
    for (const step of cleanup.reverse()) await step()
  }
}

/** Agents of the run with their tokens, through the operator's connection of the running server. */
async function createAgents(dataDir: string): Promise<{ senders: string[]; receivers: [string, string][] }> {
  const embedded = await findEmbedded(dataDir)
  assert.ok(embedded, 'the server runs')
  const admin = connect(embedded.admin, { max: 1, applicationName: 'kill-run' })
  const names = Array.from({ length: AGENTS }, (_, index) => [`sender${index}`, `receiver${index}`]).flat()
  const agents = Object.values(await seed({ admin, api: admin }, 'kill', names))
  await admin.end()
  return {
    senders: agents.filter(({ agent }) => agent.startsWith('sender')).map(({ token }) => token),
    receivers: agents.filter(({ agent }) => agent.startsWith('receiver')).map(({ agent, token }) => [agent, token]),
  }
}

async function startReceiver(url: string, folder: string, name: string, token: string): Promise<Receiver> {
  const home = join(folder, name)
  await mkdir(home, { mode: 0o700 })
  return { name, token, listener: await startListener({ url, token, home }) }
}

function createSendRun(url: string, receivers: Receiver[], sends: number) {
  const sent: Sent[] = []
  let repeated = 0
  let onHalf: () => void = () => {}
  const half = new Promise<void>((resolve) => {
    onHalf = resolve
  })

  /** Sends one message until it is answered, as a client does: same key, so that a lost answer stores nothing twice. */
  async function send(token: string, key: string, to: string): Promise<void> {
    for (;;) {
      const answer = await call(url, token, 'POST', '/api/messages', {
        to,
        content: key,
        kind: 'report',
        idempotency_key: key,
      })
      if (answer) {
        sent.push({ id: String(answer.message_id), to })
        if (sent.length === Math.floor(sends / 2)) onHalf()
        return
      }
      repeated += 1
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  }

  return {
    sent,
    half,
    repeated: () => repeated,
    async sendShare(token: string, index: number) {
      for (let i = index; i < sends; i += AGENTS) {
        const receiver = receivers[Math.floor(i / AGENTS) % AGENTS] as Receiver
        await send(token, `kill-${i}`, receiver.name)
      }
    },
  }
}

/** A JSON call; null when the server did not answer or is not there. Any answer that is not a success is a failed run. */
async function call(
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

async function checkReceivers(server: RunningServer, receivers: Receiver[], sent: Sent[]): Promise<number> {
  let announced = 0
  for (const receiver of receivers) {
    const expected = sent.filter((each) => each.to === receiver.name).map((each) => each.id)
    await waitForAnnouncements(receiver, expected.length)
    assert.equal(countAnnounced(receiver), expected.length, `${receiver.name} announced each message once`)
    const found = await fetchAll(server.url, receiver.token)
    assert.deepEqual([...found].sort(), [...expected].sort(), `${receiver.name} has each message once`)
    announced += countAnnounced(receiver)
  }
  return announced
}

async function waitForAnnouncements(receiver: Receiver, count: number): Promise<void> {
  const deadline = Date.now() + SETTLE_TIMEOUT_MS
  while (countAnnounced(receiver) < count && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** The listener's lines say how many each one announces. */
function countAnnounced({ listener }: Receiver): number {
  return listener.lines.reduce((sum, { text }) => sum + Number(/^PATCHCORD: (\d+) /.exec(text)?.[1] ?? 0), 0)
}

/** Every id that the inbox shows as new, page by page. */
async function fetchAll(url: string, token: string): Promise<string[]> {
  const ids: string[] = []
  for (;;) {
    const inbox = await call(url, token, 'POST', '/api/inbox/fetch', {})
    assert.ok(inbox, 'the inbox answers')
    const shown = (inbox.new as { message_id: string }[]).map((message) => message.message_id)
    ids.push(...shown)
    if (shown.length === 0) return ids
  }
}

async function findFreePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  assert.ok(address && typeof address === 'object')
  return address.port
}

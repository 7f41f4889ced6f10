import assert from 'node:assert/strict'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import {
  countAnnounced,
  createAgents,
  fetchNew,
  findFreePort,
  OPEN_LIMITS,
  sendUntilAnswered,
} from '../helpers/loss.ts'
import {
  createTemporaryFolder,
  type RunningListener,
  type RunningServer,
  startListener,
  startServer,
} from '../helpers/processes.ts'

const AGENTS = 10
const SETTLE_TIMEOUT_MS = 90_000

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
    const place = {
      dataDir: join(folder.path, 'data'),
      port: await findFreePort(),
      env: { PATCHCORD_LIMITS: OPEN_LIMITS },
    }
    let server = await startServer(place)
    cleanup.push(() => server.stop())
    const agents = await createActors(place.dataDir)
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

/** Senders and receivers of the run with their tokens. */
async function createActors(dataDir: string): Promise<{ senders: string[]; receivers: [string, string][] }> {
  const names = Array.from({ length: AGENTS }, (_, index) => [`sender${index}`, `receiver${index}`]).flat()
  const tokens = [...(await createAgents(dataDir, 'kill', names))]
  return {
    senders: tokens.filter(([name]) => name.startsWith('sender')).map(([, token]) => token),
    receivers: tokens.filter(([name]) => name.startsWith('receiver')),
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

  async function send(token: string, key: string, to: string): Promise<void> {
    const message = { to, content: key, kind: 'report', idempotency_key: key }
    const id = await sendUntilAnswered(url, token, message, () => {
      repeated += 1
    })
    sent.push({ id, to })
    if (sent.length === Math.floor(sends / 2)) onHalf()
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

async function checkReceivers(server: RunningServer, receivers: Receiver[], sent: Sent[]): Promise<number> {
  let announced = 0
  for (const receiver of receivers) {
    const expected = sent.filter((each) => each.to === receiver.name).map((each) => each.id)
    await waitForAnnouncements(receiver, expected.length)
    assert.equal(countAll(receiver), expected.length, `${receiver.name} announced each message once`)
    const found = await fetchNew(server.url, receiver.token)
    assert.deepEqual([...found].sort(), [...expected].sort(), `${receiver.name} has each message once`)
    announced += countAll(receiver)
  }
  return announced
}

async function waitForAnnouncements(receiver: Receiver, count: number): Promise<void> {
  const deadline = Date.now() + SETTLE_TIMEOUT_MS
  while (countAll(receiver) < count && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** The listener's lines say how many each one announces. */
function countAll({ listener }: Receiver): number {
  return listener.lines.reduce((sum, { text }) => sum + (countAnnounced(text) ?? 0), 0)
}

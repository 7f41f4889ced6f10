import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import {
  connectMcp,
  createTemporaryFolder,
  type McpAgent,
  type RunningListener,
  runAdmin,
  startListener,
  startServer,
} from '../../test/helpers/processes.ts'

/**
 * The main job, for real: a server on an embedded Postgres in a temporary folder, two agents with real listeners and real
 * MCP clients; a message, its wake, a reply, its wake. `--once` ends by itself; `--wakes N` adds N measured wakes.
 */

const WAKE_TIMEOUT_MS = 30_000
const WAKE_PAUSE_MS = 2_000
const REPORT_MS = 500
const NAMESPACE = 'demo'

interface Actor {
  name: string
  token: string
  mcp: McpAgent
  listener: RunningListener
}

interface Cleanup {
  add(step: () => Promise<unknown>): void
  run(): Promise<void>
}

const say = (text = '') => console.log(text)
const indent = (text: string) => text.replace(/^/gm, '    ')

async function main(): Promise<void> {
  const { once, wakes } = readArguments()
  const cleanup = createCleanup()
  const stopped = waitForSignal()
  try {
    await Promise.race([runDemo(once, wakes, cleanup, stopped), stopped])
  } finally {
    await cleanup.run()
  }
}

function readArguments(): { once: boolean; wakes: number } {
  const { values } = parseArgs({ options: { once: { type: 'boolean' }, wakes: { type: 'string' } } })
  const wakes = Number(values.wakes ?? 0)
  if (!Number.isInteger(wakes) || wakes < 0) throw new Error('--wakes takes a whole number, for example --wakes 50')
  return { once: values.once === true, wakes }
}

async function runDemo(once: boolean, wakes: number, cleanup: Cleanup, stopped: Promise<void>): Promise<void> {
  say('Starting a server on an embedded Postgres in a temporary folder …')
  const folder = await createTemporaryFolder()
  cleanup.add(folder.remove)
  const dataDir = join(folder.path, 'data')
  const server = await startServer({ dataDir })
  cleanup.add(server.stop)
  say(`Server ready at ${server.url} after ${Math.round(server.startMs)} ms (first start: it made its database).`)
  await runAdmin(dataDir, 'create-namespace', NAMESPACE)
  const place = { dataDir, url: server.url, home: folder.path, cleanup }
  const alice = await joinAgent('alice', place)
  const bob = await joinAgent('bob', place)
  say()
  await converse(alice, bob)
  if (wakes > 0) await measureWakes(alice, bob, wakes)
  if (once) return
  const token = await issueToken(dataDir, 'you')
  showHowToConnect(server.url, token, dataDir)
  await stopped
}

interface Place {
  dataDir: string
  url: string
  home: string
  cleanup: Cleanup
}

async function issueToken(dataDir: string, name: string): Promise<string> {
  await runAdmin(dataDir, 'create-agent', `${name}@${NAMESPACE}`)
  const issued = await runAdmin(dataDir, 'issue-token', `${name}@${NAMESPACE}`)
  return String(issued.token)
}

async function joinAgent(name: string, { dataDir, url, home, cleanup }: Place): Promise<Actor> {
  const token = await issueToken(dataDir, name)
  const own = join(home, name)
  await mkdir(own, { mode: 0o700 })
  const listener = await startListener({ url, token, home: own })
  cleanup.add(listener.stop)
  listener.onLine((text) => say(`${name}'s listener │ ${text}`))
  const mcp = await connectMcp(url, token)
  cleanup.add(mcp.close)
  say(
    `${name}@${NAMESPACE} is here: a listener (connected ${Math.round(listener.startMs)} ms after its start) and an MCP client.`,
  )
  return { name, token, mcp, listener }
}

async function converse(alice: Actor, bob: Actor): Promise<void> {
  const question = { to: 'bob', content: 'Which port does the API listen on?', kind: 'question', thread: 'api' }
  const bobWoken = nextLine(bob.listener)
  const asked = await callTool(alice, 'send_message', question)
  const wakeMs = (await bobWoken) - asked.at
  say(`(bob was woken ${formatWake(wakeMs)})`)
  const inbox = await callTool(bob, 'inbox', {})
  const [message] = inbox.data.messages as { message_id: string }[]
  const aliceWoken = nextLine(alice.listener)
  const reply = await callTool(bob, 'reply', { message_id: message?.message_id, content: '8787, see PORT.' })
  say(`(alice was woken ${formatWake((await aliceWoken) - reply.at)})`)
  await callTool(alice, 'inbox', {})
  // The listener reports what it has announced within 250 ms.
  await new Promise((resolve) => setTimeout(resolve, REPORT_MS))
  await callTool(alice, 'message_status', { message_id: message?.message_id })
}

async function callTool(actor: Actor, tool: string, input: Record<string, unknown>) {
  say(`${actor.name} calls ${tool} ${JSON.stringify(input)}`)
  const result = await actor.mcp.call(tool, input)
  const at = performance.now()
  if (result.isError) throw new Error(`${tool} failed: ${result.text}`)
  say(indent(result.text))
  return { ...result, at }
}

/** performance.now() of the next line that the listener writes. */
function nextLine(listener: RunningListener): Promise<number> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('a listener wrote no line')), WAKE_TIMEOUT_MS)
    listener.onLine((_text, at) => {
      clearTimeout(timer)
      resolve(at)
    })
  })
}

function formatWake(ms: number): string {
  if (ms < 0) return `${(-ms).toFixed(1)} ms before the sender had its answer`
  return `${ms.toFixed(1)} ms after the sender had its answer`
}

async function measureWakes(alice: Actor, bob: Actor, count: number): Promise<void> {
  say(`\nMeasuring ${count} wakes, ${WAKE_PAUSE_MS / 1000} s apart …`)
  const afterAnswer: number[] = []
  const afterCall: number[] = []
  for (let i = 0; i < count; i++) {
    await new Promise((resolve) => setTimeout(resolve, WAKE_PAUSE_MS))
    const woken = nextLine(bob.listener)
    const calledAt = performance.now()
    const sent = await alice.mcp.call('send_message', { to: 'bob', content: `wake ${i + 1}`, kind: 'report' })
    const answeredAt = performance.now()
    if (sent.isError) throw new Error(`send_message failed: ${sent.text}`)
    const wokenAt = await woken
    afterAnswer.push(wokenAt - answeredAt)
    afterCall.push(wokenAt - calledAt)
  }
  say(`send answered → line printed: ${summarize(afterAnswer)} (negative: the line came first)`)
  say(`send called → line printed:   ${summarize(afterCall)}`)
  say(
    `listener start → connected:   alice ${Math.round(alice.listener.startMs)} ms, bob ${Math.round(bob.listener.startMs)} ms`,
  )
}

function summarize(values: number[]): string {
  const sorted = values.toSorted((a, b) => a - b)
  const at = (share: number) => (sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0).toFixed(1)
  return `median ${at(0.5)} ms, p90 ${at(0.9)} ms, max ${at(1)} ms over ${values.length}`
}

function showHowToConnect(url: string, token: string, dataDir: string): void {
  const command = fileURLToPath(new URL('../../dist/plugin/cli/main.js', import.meta.url))
  say(`
This server stays up until Ctrl-C. To talk to alice and bob from Claude Code, as agent you@${NAMESPACE}, go to the folder of a
project, run this, and paste the token:

  node ${command} connect --server ${url}

  ${token}

It says what comes next. More agents:

  PATCHCORD_DATA_DIR=${dataDir} node ${command} agent create NAME@${NAMESPACE}

A server that keeps its data:  npm start`)
}

function createCleanup(): Cleanup {
  const steps: (() => Promise<unknown>)[] = []
  return {
    add: (step) => steps.push(step),
    async run() {
      for (const step of steps.splice(0).reverse()) {
        await step().catch((error: unknown) => console.error(`while stopping: ${error}`))
      }
    },
  }
}

function waitForSignal(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve())
  })
}

await main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 1
})

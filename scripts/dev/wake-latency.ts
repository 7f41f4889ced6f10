import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { CodexScene, measureCodexWakes, stopCodexDaemon } from '../../test/clients/helpers/codex.ts'
import { getClientVersion, installClients, installTools } from '../../test/clients/helpers/install.ts'
import { isIsolated, runIsolated } from '../../test/clients/helpers/isolated.ts'
import { callTool, type MessagesModel, type ModelRequest, react } from '../../test/clients/helpers/model.ts'
import { isEvent, Scene } from '../../test/clients/helpers/scene.ts'

/**
 * `npm run bench:wake -- [--wakes 30] [--only monitor,tool,codex]`: how long an idle session takes from the answer to a send until its
 * model is asked, for each path of a wake, in the real clients; `window` is Codex without the daemon that it starts by itself, which is
 * slow and only on demand. As root on Linux.
 */

const SELF = fileURLToPath(import.meta.url)
/** Slower than the listener and Claude Code let lines through (one in 2 s), so that nothing is held back. */
const GAP_MS = 2_500
/** Events must not always meet the same phase of somebody's timer. */
const GAP_SPREAD_MS = 1_000
const WATCH_MS = 1_800_000
const AGENT = 'backend'

const PATHS: Record<string, { name: string; measure: (wakes: number) => Promise<number[]> }> = {
  monitor: { name: `plugin monitor (Claude Code ${getClientVersion('claude')}, interactive)`, measure: measureMonitor },
  tool: { name: `Monitor tool (Claude Code ${getClientVersion('claude')}, -p)`, measure: measureTool },
  codex: { name: `codex queue (Codex ${getClientVersion('codex')}, shared daemon)`, measure: measureDaemon },
  window: { name: `codex queue (Codex ${getClientVersion('codex')}, --no-daemon)`, measure: measureWindow },
}

async function main(): Promise<void> {
  const args = process.argv.slice(2)
  const { values } = parseArgs({
    args,
    options: {
      wakes: { type: 'string', default: '30' },
      only: { type: 'string', default: 'monitor,tool,codex' },
    },
  })
  const wakes = Number(values.wakes)
  if (!(wakes > 0)) throw new Error('--wakes is a number above 0')
  if (!isIsolated()) {
    await installTools()
    await installClients()
    process.exitCode = await runIsolated(SELF, args)
    return
  }
  console.log(`${new Date().toISOString()}, Node ${process.version}: send answered → request at the model`)
  for (const key of values.only.split(',')) {
    const path = PATHS[key]
    if (!path) throw new Error(`--only takes ${Object.keys(PATHS).join(', ')}`)
    report(path.name, await path.measure(wakes))
  }
}

function report(name: string, times: number[]): void {
  const sorted = [...times].sort((a, b) => a - b)
  const rank = (share: number) => Math.round(sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? 0)
  console.log(
    `${name}: ${sorted.length} wakes, p50 ${rank(0.5)} ms, p99 ${rank(0.99)} ms, least ${rank(0)} ms, most ${rank(1)} ms`,
  )
}

async function measureMonitor(wakes: number): Promise<number[]> {
  return await withScene(async (scene) => {
    const project = await scene.world.createProject(AGENT)
    const { model } = await scene.start(project, { reader: AGENT })
    return await measureWakes(scene, model, wakes)
  })
}

async function measureTool(wakes: number): Promise<number[]> {
  return await withScene(async (scene) => {
    const project = await scene.world.createProject(null)
    await scene.connect(project, AGENT, ['--allow'])
    const armed = [callTool('ToolSearch', { query: 'select:Monitor' }), arm, { text: 'armed' }]
    const read = async () => {
      await scene.world.fetchInbox(AGENT)
      return { text: 'noted' }
    }
    const script = react([
      [/<event>PATCHCORD: \d/, [read]],
      [/scripts\/subscribe\.mjs/, armed],
    ])
    const { model } = await scene.print(project, '/patchcord:subscribe', { isConnected: true, script })
    return await measureWakes(scene, model, wakes)
  })
}

/** What the skill says. */
function arm({ text }: ModelRequest) {
  const command = /`(node "[^"`]+\/scripts\/subscribe\.mjs")`/.exec(text)?.[1] ?? 'the skill names no command'
  return callTool('Monitor', { command, description: 'patchcord messages', timeout_ms: WATCH_MS })
}

async function withScene(work: (scene: Scene) => Promise<number[]>): Promise<number[]> {
  const scene = await Scene.open(['alice', AGENT])
  try {
    return await work(scene)
  } finally {
    await scene.close()
  }
}

/** Each wake of a session that has been idle for a while. */
async function measureWakes({ world }: Scene, model: MessagesModel, wakes: number): Promise<number[]> {
  await world.waitForWakeable(AGENT)
  const times: number[] = []
  while (times.length < wakes) {
    await sleep(GAP_MS + Math.random() * GAP_SPREAD_MS)
    const from = model.requests.length
    await world.send('alice', AGENT, 'How long does a wake take?', { kind: 'report' })
    const sentAt = performance.now()
    const woken = await model.waitForRequest((one) => isEvent(one, 'PATCHCORD: 1 new from alice'), { from })
    times.push(woken.at - sentAt)
  }
  return times
}

async function measureDaemon(wakes: number): Promise<number[]> {
  return await withCodex(async (scene) => {
    try {
      return await measureCodexWakes(scene, wakes, [])
    } finally {
      await scene.closeSessions()
      await stopCodexDaemon(scene.home)
    }
  })
}

async function measureWindow(wakes: number): Promise<number[]> {
  return await withCodex((scene) => measureCodexWakes(scene, wakes))
}

async function withCodex(work: (scene: CodexScene) => Promise<number[]>): Promise<number[]> {
  const scene = await CodexScene.open()
  try {
    return await work(scene)
  } finally {
    await scene.close()
  }
}

await main().catch((error: unknown) => {
  console.error(error instanceof Error ? (error.stack ?? error.message) : error)
  process.exitCode = 1
})

import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { installPlugin, startClaude, writeProjectSettings } from '../../test/clients/helpers/claude.ts'
import { getClientVersion, installClients, installTools } from '../../test/clients/helpers/install.ts'
import { isIsolated, runIsolated } from '../../test/clients/helpers/isolated.ts'
import { MessagesModel } from '../../test/clients/helpers/model.ts'
import { copyPlugin } from '../../test/clients/helpers/plugin-copy.ts'
import { World } from '../../test/clients/helpers/world.ts'

/**
 * `npm run bench:idle -- [--minutes 60] [--wake-at-end]`: an interactive Claude Code with the plugin that nobody talks to. It must ask
 * its model nothing in all that time, and with --wake-at-end a message must then still start a turn. As root on Linux.
 */

const SELF = fileURLToPath(import.meta.url)
const MINUTE_MS = 60_000

async function main(): Promise<void> {
  const args = process.argv.slice(2)
  const { values } = parseArgs({
    args,
    options: { minutes: { type: 'string', default: '60' }, 'wake-at-end': { type: 'boolean', default: false } },
  })
  const minutes = Number(values.minutes)
  if (!(minutes > 0)) throw new Error('--minutes is a number above 0')
  if (isIsolated()) return await watch(minutes, values['wake-at-end'])
  await installTools()
  await installClients()
  process.exitCode = await runIsolated(SELF, args)
}

async function watch(minutes: number, isWakeWanted: boolean): Promise<void> {
  const world = await World.start(['backend', 'alice'])
  const model = await new MessagesModel().listen()
  try {
    const home = await world.createHome()
    await installPlugin(home, await copyPlugin(join(world.folder, 'market')))
    const project = await world.createProject('backend')
    await writeProjectSettings(project, { allow: ['mcp__patchcord'], servers: ['patchcord'] })
    const session = await startClaude({ home, project, runtime: world.runtime, model })
    try {
      await world.waitForWakeable('backend')
      console.log(`${new Date().toISOString()} Claude Code ${getClientVersion('claude')} listens, idle from here on`)
      await count(minutes, model)
      if (isWakeWanted) await wake(world, model)
    } finally {
      await session.close()
    }
  } finally {
    await model.close()
    await world.close()
  }
}

async function count(minutes: number, model: MessagesModel): Promise<void> {
  const until = performance.now() + minutes * MINUTE_MS
  const startedAt = performance.now()
  while (performance.now() < until) {
    await sleep(Math.min(MINUTE_MS, until - performance.now()))
    const passed = (performance.now() - startedAt) / MINUTE_MS
    console.log(`${new Date().toISOString()} after ${passed.toFixed(0)} min: ${model.requests.length} model requests`)
  }
  if (model.requests.length > 0) {
    console.log(model.describe())
    process.exitCode = 1
  }
}

async function wake(world: World, model: MessagesModel): Promise<void> {
  const from = model.requests.length
  await world.send('alice', 'backend', 'still there?')
  const sentAt = performance.now()
  const request = await model.waitForRequest(({ news }) => news.includes('PATCHCORD: 1 new from alice'), { from })
  console.log(
    `${new Date().toISOString()} a message at the end started a turn after ${Math.round(request.at - sentAt)} ms`,
  )
}

await main().catch((error: unknown) => {
  console.error(error instanceof Error ? (error.stack ?? error.message) : error)
  process.exitCode = 1
})

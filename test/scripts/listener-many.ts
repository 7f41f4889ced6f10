/** Many listeners in this process, for what only a crowd shows; everything of one but its process and its stdout. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { type Environment, readSettings, type Times } from '../../scripts/lib/config.cjs'
import { Lines } from '../../scripts/lib/lines.mjs'
import { Listener } from '../../scripts/lib/listener.mjs'
import type { ScriptedServer } from '../helpers/scripted-server.ts'
import { makeToken } from './listener-process.ts'

/** Each is an agent of its own on this machine. */
export async function startMany(
  server: ScriptedServer,
  count: number,
  times: Times,
): Promise<{ stop(): Promise<void> }> {
  const folder = await mkdtemp(join(tmpdir(), 'patchcord-many-'))
  const agents: Record<string, string> = {}
  server.script.agents = agents
  const listeners = Array.from({ length: count }, (_, index) => {
    const token = makeToken(String(index).padStart(4, '0'))
    agents[token] = `bob${index}`
    return createListener(server.origin, token, folder, times)
  })
  const running = listeners.map((listener) => listener.run())
  return {
    async stop() {
      await Promise.all(listeners.map((listener) => listener.stop()))
      await Promise.all(running)
      await rm(folder, { recursive: true, force: true })
    },
  }
}

function createListener(origin: string, token: string, folder: string, times: Times): Listener {
  const env: Environment = { XDG_RUNTIME_DIR: folder, HOME: folder }
  const settings = { ...readSettings(env), times }
  const stream = new PassThrough().resume()
  return new Listener({
    identity: { base: origin, origin, token },
    settings,
    isAuto: false,
    lines: new Lines({ stream, times, onClosed: () => {} }),
    log: () => {},
    onAccepted: async () => {},
    onState: () => {},
  })
}

/** A listener with a server of its own, cleaned away at the end of the test. */
import type { TestContext } from 'node:test'
import { type Script, ScriptedServer } from '../helpers/scripted-server.ts'
import { Home, type StartOptions } from './listener-process.ts'

export const CONNECTED = /^subscribe: connected$/m

export async function setUp(context: TestContext, script: Script = {}) {
  const server = await new ScriptedServer(script).listen()
  const home = await Home.create()
  context.after(async () => {
    await home.remove()
    await server.close()
  })
  await home.connect(server.origin)
  await home.trust(server.origin)
  return { server, home }
}

export async function setUpConnected(context: TestContext, script: Script = {}, options: StartOptions = {}) {
  const all = await setUp(context, script)
  const listener = all.home.start(options)
  await listener.logged(CONNECTED)
  return { ...all, listener }
}

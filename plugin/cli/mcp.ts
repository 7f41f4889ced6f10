import { once } from 'node:events'
import { watchSurroundings } from '../../scripts/lib/surroundings.mjs'
import { CommandError, EXIT } from '../lib/errors.ts'
import { cleanLabel } from '../lib/frame.ts'
import { AS_OPTION, findServer } from '../lib/identity.ts'
import { readVersion } from '../lib/programs.ts'
import type { Invocation, Verb } from '../lib/verb.ts'

const FINISH_MS = 3_000

export const verb: Verb = {
  help: `patchcord mcp

An MCP server on stdin and stdout that passes everything on to the real one over HTTP with this folder's token: for hosts
that can start a program and cannot send headers.`,
  options: AS_OPTION,
  arity: [0, 0],
  async run(invocation) {
    const server = await findServer(invocation)
    const { startBridge } = await import('../lib/bridge.ts')
    const bridge = await startBridge({
      server,
      version: readVersion(),
      log: (line) => invocation.output.note(`patchcord: ${line}`),
    })
    const parent = watchParent(invocation.environment.settings.times)
    // A host ends its servers by closing their stdin, or with a signal; what it asked before is answered.
    const fault = await Promise.race([
      bridge.closed,
      once(process.stdin, 'end').then(() => bridge.finish(FINISH_MS)),
      once(process, 'SIGTERM').then(() => null),
      once(process, 'SIGINT').then(() => null),
      parent.gone,
    ])
    parent.forget()
    await bridge.close()
    // A host that holds its end of the pipe open must not keep us.
    process.stdin.destroy()
    // Nor must one that never reads our answers.
    setTimeout(() => process.exit(), FINISH_MS).unref()
    if (fault) {
      throw new CommandError('host_fault', `What the host wrote cannot be read: ${cleanLabel(fault.message)}.`, {
        hint: 'MCP on stdin is one JSON message a line: start the server again from the host.',
        cause: fault,
      })
    }
    return EXIT.ok
  },
}

/** A host that was killed closes nothing where something else holds the other end of our stdin. */
function watchParent({ tickMs, sleptMs }: Invocation['environment']['settings']['times']) {
  let forget = () => {}
  const gone = new Promise<null>((resolve) => {
    const nothing = () => {}
    forget = watchSurroundings({
      clientPid: null,
      everyMs: tickMs,
      sleptMs,
      onGone: () => resolve(null),
      onSlept: nothing,
      onTick: nothing,
    })
  })
  return { gone, forget }
}

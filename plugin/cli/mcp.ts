import { once } from 'node:events'
import { EXIT } from '../lib/errors.ts'
import { AS_OPTION, findServer } from '../lib/identity.ts'
import { readVersion } from '../lib/programs.ts'
import type { Verb } from '../lib/verb.ts'

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
    // A host ends its servers by closing their stdin, or with a signal.
    await Promise.race([
      once(process.stdin, 'end'),
      once(process.stdin, 'close'),
      once(process, 'SIGTERM'),
      once(process, 'SIGINT'),
    ])
    await bridge.close()
    // A host that holds its end of the pipe open must not keep us.
    process.stdin.destroy()
    return EXIT.ok
  },
}

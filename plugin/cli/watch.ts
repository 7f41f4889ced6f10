import { createInterface } from 'node:readline'
import { getWhoami, type Server } from '../lib/api.ts'
import { CommandError, EXIT } from '../lib/errors.ts'
import { AS_OPTION, findServer } from '../lib/identity.ts'
import type { Output } from '../lib/output.ts'
import { findProgram, startProgram, waitForEnd } from '../lib/programs.ts'
import type { Verb } from '../lib/verb.ts'

export const verb: Verb = {
  help: `patchcord watch

Prints one line for each wake, "PATCHCORD: 1 new from alice", until it is stopped: the listener, started by hand. While it
runs, this agent is wakeable. With --json each line is a document of its own. Exit 2: another listener of this agent runs.`,
  options: AS_OPTION,
  arity: [0, 0],
  async run(invocation) {
    const { environment, output } = invocation
    const server = await findServer(invocation)
    const env = environment.forChild({ PATCHCORD_URL: server.base, PATCHCORD_TOKEN: server.token })
    const stdout = output.isJson ? 'pipe' : 'inherit'
    // A yes was for this call. Whoever is trusted already need not be recorded again.
    const child = startProgram(findProgram('scripts/subscribe.mjs'), ['--once'], env, ['ignore', stdout, 'inherit'])
    if (child.stdout) createInterface({ input: child.stdout }).on('line', (line) => printJson(output, line))
    const code = await waitForEnd(child)
    return code === EXIT.error && (await isRefused(server)) ? EXIT.notAuthorised : code
  },
}

/** The listener has told why it stopped; its exit code does not tell a refused token from anything else. */
async function isRefused(server: Server): Promise<boolean> {
  return await getWhoami(server).then(
    () => false,
    (error) => error instanceof CommandError && error.exit === EXIT.notAuthorised,
  )
}

function printJson(output: Output, line: string): void {
  const [, fresh, from] = /^PATCHCORD: (\d+) new from (.+)$/.exec(line) ?? []
  const waiting = /^PATCHCORD: (\d+) waiting in inbox$/.exec(line)?.[1]
  const count = fresh ?? waiting
  const facts = {
    ...(count === undefined ? {} : { count: Number(count) }),
    ...(from === undefined ? {} : { from: from.split(', ') }),
  }
  output.print([], { line, ...facts })
}

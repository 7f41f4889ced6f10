import { findProgram, startProgram, waitForEnd } from '../lib/programs.ts'
import type { Verb } from '../lib/verb.ts'

export const verb: Verb = {
  help: `patchcord serve

Runs the server until it is stopped (Ctrl+C, SIGTERM). It is configured by environment variables: README, "Configuration".`,
  arity: [0, 0],
  async run({ environment }) {
    const stdio = ['ignore', 'inherit', 'inherit'] as const
    return await waitForEnd(startProgram(findProgram('dist/server/main.js'), [], environment.forChild(), stdio))
  },
}

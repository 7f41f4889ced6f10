#!/usr/bin/env node
import { readSettings } from './lib/config.mjs'
import { readInput } from './lib/hook-input.mjs'
/**
 * One line for the status line of Claude Code: `backend@acme · 2 new · wakeable`. Asks no server: reads what the listener and
 * the hooks of this machine have written down. Silent where the project has no agent.
 */
import { getBuiltin } from './lib/node.mjs'
import { describeStatus } from './lib/status-line.mjs'

try {
  const line = await describeStatus(readInput() ?? {}, readSettings())
  if (line !== '') getBuiltin('fs').writeSync(1, `${line}\n`)
} catch {
  // A status line that fails is left empty by every client; there is nobody to tell.
}

#!/usr/bin/env node
/**
 * One line for the status line of Claude Code: `backend@acme · 2 new · wakeable`. Asks no server: reads what the listener and
 * the hooks of this machine have written down. Silent where the project has no agent.
 */
const { writeSync } = require('node:fs')
const { readInput, readSettings } = require('./lib/config.cjs')
const { describeStatus } = require('./lib/status-line.cjs')

try {
  const line = describeStatus(readInput() ?? {}, readSettings())
  if (line !== '') writeSync(1, `${line}\n`)
} catch {
  // A status line that fails is left empty by every client; there is nobody to tell.
}

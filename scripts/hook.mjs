#!/usr/bin/env node
import { readSettings } from './lib/config.mjs'
import { answerHook } from './lib/hook-answer.mjs'
import { readInput } from './lib/hook-input.mjs'
/**
 * The hook of coding clients: reads the event on stdin, prints what the client shows its model, if there is anything to say.
 * `--client codex` names the client. Always exits 0 and never complains: a hook that fails disturbs every turn of a session.
 */
import { getBuiltin } from './lib/node.mjs'

/** Whatever happens, the client is not kept longer: the network has its own, shorter time, this is for the rest. */
const STUCK_MS = 2_000

setTimeout(() => process.exit(0), STUCK_MS)
try {
  const [option, name = ''] = process.argv.slice(2)
  const client = option === '--client' ? name : 'claude-code'
  const input = readInput()
  const output = input === null ? null : await answerHook({ input, client, settings: readSettings() })
  // Not process.stdout, which costs a hook some milliseconds; what is said is short enough for any pipe.
  if (output !== null) getBuiltin('fs').writeSync(1, `${JSON.stringify(output)}\n`)
} catch {
  // There is nobody to tell: stderr of a hook is shown to nobody or to the model.
}
process.exit(0)

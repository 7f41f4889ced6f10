#!/usr/bin/env node
/**
 * The hook of coding clients: reads the event on stdin, prints what the client shows its model, if there is anything to say.
 * `--client codex` names the client. Always exits 0 and never complains: a hook that fails disturbs every turn of a session.
 *
 * CommonJS, with all that it loads: Node starts that 6 ms sooner than modules, and a hook runs after every tool.
 */
const { writeSync } = require('node:fs')
const { readInput, readSettings } = require('./lib/config.cjs')
const { answerHook } = require('./lib/hook-answer.cjs')

/** Whatever happens, the client is not kept longer: the network has its own time, this is for the rest. */
const STUCK_MS = 2_000

main().finally(() => process.exit(0))

async function main() {
  try {
    const settings = readSettings()
    setTimeout(() => process.exit(0), STUCK_MS + settings.hookMs)
    const [option, name = ''] = process.argv.slice(2)
    const client = option === '--client' ? name : 'claude-code'
    const input = readInput()
    const output = input === null ? null : await answerHook({ input, client, settings })
    // Not process.stdout, which costs a hook some milliseconds; what is said is short enough for any pipe.
    if (output !== null) writeSync(1, `${JSON.stringify(output)}\n`)
  } catch {
    // There is nobody to tell: stderr of a hook is shown to nobody or to the model.
  }
}

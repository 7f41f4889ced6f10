#!/usr/bin/env node
/**
 * The hook of Codex for every event: keeps what the thread's listener must know, starts that listener when there is none, and
 * answers as scripts/hook.mjs does. Always exits 0 and never complains: a hook that fails disturbs every turn.
 */
import { noteEvent } from './lib/codex-events.mjs'
import { readSettings } from './lib/config.mjs'
import { answerHook } from './lib/hook-answer.mjs'
import { readInput } from './lib/hook-input.mjs'

/** Whatever happens, Codex is not kept longer. */
const STUCK_MS = 2_500

setTimeout(() => process.exit(0), STUCK_MS)
process.stdout.on('error', () => process.exit(0))
try {
  const input = readInput()
  const settings = readSettings()
  // Whether a turn goes on is known only with the answer to its Stop.
  const isStop = input?.hook_event_name === 'Stop'
  if (input !== null && !isStop) await noteEvent({ input, settings })
  const output = input === null ? null : await answerHook({ input, client: 'codex', settings })
  const isContinued = output !== null && 'decision' in output
  // A server that was slow to take "idle" may have done so after the "busy" of the next prompt, which is therefore told again.
  if (input !== null && isStop && !(await noteEvent({ input, settings, isContinued })))
    await answerHook({ input: { ...input, hook_event_name: 'UserPromptSubmit' }, client: 'codex', settings })
  process.stdout.write(output === null ? '' : `${JSON.stringify(output)}\n`, () => process.exit(0))
} catch {
  // There is nobody to tell: stderr of a hook is shown to nobody or to the model.
  process.exit(0)
}

import { CommandError, EXIT } from '../lib/errors.ts'
import { AS_OPTION, findServer } from '../lib/identity.ts'
import { describeMessage, getNamespace, protect } from '../lib/show.ts'
import { textOption, type Verb } from '../lib/verb.ts'
import { parseTimeoutMs, waitForMessage } from '../lib/wait.ts'

const TIMEOUT_SECONDS = 300

export const verb: Verb = {
  help: `patchcord wait [--from AGENT] [--thread SLUG] [--timeout 5m]

Waits for the next new message and shows it; it becomes open. Exit 2 when none came in time.

  --from AGENT    only from this agent
  --thread SLUG   only of this conversation
  --timeout TIME  how long: seconds, or 90s, 5m, 2h; ${TIMEOUT_SECONDS} s unless given`,
  options: { ...AS_OPTION, from: { type: 'string' }, thread: { type: 'string' }, timeout: { type: 'string' } },
  arity: [0, 0],
  async run(invocation) {
    const { options, output } = invocation
    const timeoutMs = parseTimeoutMs(textOption(options, 'timeout'), TIMEOUT_SECONDS)
    const server = await findServer(invocation)
    const filter = { from: textOption(options, 'from'), thread: textOption(options, 'thread') }
    const message = await waitForMessage(server, filter, Date.now() + timeoutMs)
    if (message === null) {
      throw new CommandError('timed_out', 'No message came in time.', { hint: 'Wait again.', exit: EXIT.timedOut })
    }
    const namespace = await getNamespace(server)
    output.print(describeMessage(message, namespace, output.frame), { message: protect(message, namespace, output) })
    return EXIT.ok
  },
}

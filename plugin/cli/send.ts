import { EXIT } from '../lib/errors.ts'
import { AS_OPTION, findServer } from '../lib/identity.ts'
import { SEND_HELP, SEND_OPTIONS, sendFrom } from '../lib/sending.ts'
import { describeSent } from '../lib/show.ts'
import type { Verb } from '../lib/verb.ts'

export const verb: Verb = {
  help: `patchcord send TO TEXT|-

Sends TEXT (- reads it from stdin) to an agent, a comma list, or * for everyone here, and says how soon each can see it.

${SEND_HELP}`,
  options: { ...AS_OPTION, ...SEND_OPTIONS },
  arity: [1, 2],
  async run(invocation) {
    const server = await findServer(invocation)
    const sent = await sendFrom(server, invocation)
    invocation.output.print(describeSent(sent), sent)
    return EXIT.ok
  },
}

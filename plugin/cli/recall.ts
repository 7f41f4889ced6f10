import { callApi } from '../lib/api.ts'
import { EXIT } from '../lib/errors.ts'
import { cleanLabel } from '../lib/frame.ts'
import { AS_OPTION, findServer } from '../lib/identity.ts'
import { parseMessageId } from '../lib/message-id.ts'
import { describeMessage, getNamespace, type Message, protect } from '../lib/show.ts'
import { textOption, type Verb } from '../lib/verb.ts'

export const verb: Verb = {
  help: `patchcord recall [MESSAGE] [--from AGENT] [--thread SLUG] [--limit N] [--offset N]

History of what was sent and received, newest first, or one message in full. Changes nothing, and shows nothing that is
still new: patchcord inbox does.

  --offset N  skips messages, or with MESSAGE characters`,
  options: {
    ...AS_OPTION,
    from: { type: 'string' },
    thread: { type: 'string' },
    limit: { type: 'string' },
    offset: { type: 'string' },
  },
  arity: [0, 1],
  async run(invocation) {
    const { options, output } = invocation
    const [id] = invocation.arguments
    const names = id === undefined ? ['from', 'thread', 'limit', 'offset'] : ['offset']
    const query = new URLSearchParams()
    for (const name of names) {
      const value = textOption(options, name)
      if (value !== undefined) query.set(name, value)
    }
    const path = id === undefined ? '/api/messages' : `/api/messages/${parseMessageId(id)}`
    const server = await findServer(invocation)
    const [answer, namespace] = await Promise.all([
      callApi<Message & { messages?: Message[]; next_offset: number | null }>(server, 'GET', `${path}?${query}`),
      getNamespace(server),
    ])
    const messages = answer.messages ?? [answer]
    const isMore = answer.messages !== undefined && answer.next_offset !== null
    output.print(
      [
        ...(messages.length === 0 ? ['Nothing there.'] : []),
        ...messages.flatMap((message) => describeMessage(message, namespace, output.frame)),
        ...(isMore ? [`More: --offset ${cleanLabel(answer.next_offset, 20)}`] : []),
      ],
      protect(answer, namespace, output),
    )
    return EXIT.ok
  },
}

import { callApi } from '../lib/api.ts'
import { readContent } from '../lib/content.ts'
import { EXIT } from '../lib/errors.ts'
import { cleanLabel } from '../lib/frame.ts'
import { AS_OPTION, findServer } from '../lib/identity.ts'
import { parseMessageId } from '../lib/message-id.ts'
import { describeSent, type Sent } from '../lib/show.ts'
import { textOption, type Verb } from '../lib/verb.ts'

export const verb: Verb = {
  help: `patchcord reply MESSAGE [TEXT|-] [--defer | --resolve]

Answers a received message in its thread, which settles it (- reads the text from stdin).

  --defer                keep it in the inbox for later
  --resolve              close the thread; wakes nobody, and without a text it is silent
  --idempotency-key KEY  replying again with the same key sends nothing twice`,
  options: {
    ...AS_OPTION,
    defer: { type: 'boolean' },
    resolve: { type: 'boolean' },
    'idempotency-key': { type: 'string' },
  },
  arity: [1, 2],
  async run(invocation) {
    const { options, output } = invocation
    const [id = '', text] = invocation.arguments
    const path = `/api/messages/${parseMessageId(id)}/reply`
    const isSilent = text === undefined && (options.defer === true || options.resolve === true)
    const key = textOption(options, 'idempotency-key')
    const body = {
      ...(isSilent ? {} : { content: await readContent(text, 'answer') }),
      ...(options.defer === true ? { defer: true } : {}),
      ...(options.resolve === true ? { resolve: true } : {}),
      ...(key === undefined ? {} : { idempotency_key: key }),
    }
    const server = await findServer(invocation)
    const reply = await callApi<{ message_id: string; state: string; sent: Sent | null }>(server, 'POST', path, {
      body,
    })
    const settled = `${cleanLabel(reply.message_id)} is ${cleanLabel(reply.state)}`
    output.print([...(reply.sent ? describeSent(reply.sent) : []), settled], reply)
    return EXIT.ok
  },
}

import { callApi } from '../lib/api.ts'
import { EXIT } from '../lib/errors.ts'
import { cleanLabel } from '../lib/frame.ts'
import { AS_OPTION, findServer } from '../lib/identity.ts'
import { parseMessageId } from '../lib/message-id.ts'
import { describeAge, describeTime, protect } from '../lib/show.ts'
import type { Verb } from '../lib/verb.ts'

interface Status {
  message_id: string
  from: string
  thread: string | null
  recipients: {
    agent: string
    state: string
    held_until: string | null
    expires_at: string | null
    steps: { step: string; at: string }[]
  }[]
}

export const verb: Verb = {
  help: `patchcord status MESSAGE

How far a message got with each recipient, each step with its time.`,
  options: AS_OPTION,
  arity: [1, 1],
  async run(invocation) {
    const [id = ''] = invocation.arguments
    const path = `/api/messages/${parseMessageId(id)}/status`
    const status = await callApi<Status>(await findServer(invocation), 'GET', path)
    const thread = status.thread === null ? '' : `, thread ${status.thread}`
    const lines = status.recipients.flatMap(({ agent, state, held_until: heldUntil, expires_at: expiresAt, steps }) => [
      `  ${cleanLabel(agent)}: ${cleanLabel(state)}${heldUntil ? `, held until ${describeTime(heldUntil)}` : ''}${expiresAt ? `, expires unread at ${describeTime(expiresAt)}` : ''}`,
      ...steps.map(({ step, at }) => `    ${cleanLabel(step)} ${describeTime(at)} (${describeAge(at)})`),
    ])
    const { output } = invocation
    output.print(
      [`${cleanLabel(status.message_id)} from ${cleanLabel(status.from)}${cleanLabel(thread)}`, ...lines],
      protect(status, '', output),
    )
    return EXIT.ok
  },
}

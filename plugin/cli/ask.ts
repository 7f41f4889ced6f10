import { randomBytes } from 'node:crypto'
import { callApi, type Server } from '../lib/api.ts'
import { CommandError, EXIT } from '../lib/errors.ts'
import { AS_OPTION, findServer } from '../lib/identity.ts'
import { SEND_HELP, SEND_OPTIONS, sendFrom } from '../lib/sending.ts'
import { describeMessage, describeSent, getNamespace, protect, type Sent } from '../lib/show.ts'
import { textOption, type Verb } from '../lib/verb.ts'
import { parseTimeoutMs, waitForMessage } from '../lib/wait.ts'

const TIMEOUT_SECONDS = 300
/** Settled like this, a question gets no answer any more. */
const CLOSED = new Set(['resolved', 'done', 'expired'])

export const verb: Verb = {
  help: `patchcord ask TO TEXT|- [--timeout 5m]

Sends a question and waits for the answer in its thread: exit 2 when none came in time (it still may: patchcord inbox).

${SEND_HELP}
  --timeout TIME         how long to wait: seconds, or 90s, 5m, 2h; ${TIMEOUT_SECONDS} s unless given`,
  options: { ...AS_OPTION, ...SEND_OPTIONS, timeout: { type: 'string' } },
  arity: [1, 2],
  async run(invocation) {
    const { options, output } = invocation
    const timeoutMs = parseTimeoutMs(textOption(options, 'timeout'), TIMEOUT_SECONDS)
    const server = await findServer(invocation)
    // A thread of its own, so that the answer cannot be mistaken for another message.
    const defaults = { kind: 'question', thread: `ask-${randomBytes(6).toString('hex')}` }
    const sent = await sendFrom(server, invocation, defaults)
    if (!output.isJson) output.note(describeSent(sent).join('\n'))
    const filter = { thread: sent.thread ?? undefined, from: onlyRecipient(sent) }
    const answer = await waitForMessage(server, filter, Date.now() + timeoutMs, () => isAwaited(server, sent))
    if (answer === null) throw timedOut(sent)
    const namespace = await getNamespace(server)
    output.print(describeMessage(answer, namespace, output.frame), { sent, answer: protect(answer, namespace, output) })
    return EXIT.ok
  },
}

function onlyRecipient({ recipients }: Sent): string | undefined {
  return recipients.length === 1 ? recipients[0]?.agent : undefined
}

/** Whether somebody may still answer. Throws once every recipient has closed the question without one. */
async function isAwaited(server: Server, { message_id: id }: Sent): Promise<boolean> {
  const status = await callApi<{ recipients: { agent: string; state: string }[] }>(
    server,
    'GET',
    `/api/messages/${id}/status`,
  )
  const isClosed = status.recipients.length > 0 && status.recipients.every(({ state }) => CLOSED.has(state))
  if (!isClosed) return true
  const states = status.recipients.map(({ agent, state }) => `${agent}: ${state}`).join(', ')
  throw new CommandError('unanswered', `The question was closed without an answer (${states}).`, {
    hint: `patchcord status ${id} shows each step.`,
  })
}

function timedOut({ message_id: id }: Sent): CommandError {
  return new CommandError('timed_out', 'No answer came in time.', {
    hint: `It may still come: patchcord inbox shows it, patchcord status ${id} how far the question got.`,
    exit: EXIT.timedOut,
    details: { message_id: id },
  })
}

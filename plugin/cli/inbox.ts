import { callApi } from '../lib/api.ts'
import { EXIT } from '../lib/errors.ts'
import { cleanLabel } from '../lib/frame.ts'
import { AS_OPTION, findServer } from '../lib/identity.ts'
import { parseMessageId } from '../lib/message-id.ts'
import type { Output } from '../lib/output.ts'
import { describeMessage, describeRest, describeTraits, type Message, PAUSED, protect } from '../lib/show.ts'
import { textOption, type Verb } from '../lib/verb.ts'

type Line = Omit<Message, 'content'> & { preview: string }

interface Inbox {
  agent: string
  namespace: string
  paused_at?: string
  counts: { new: number; open: number; deferred: number }
  new: Message[]
  new_left: number
  again: Message[]
  notices: Message[]
  notices_left: number
  open: Line[]
  open_left: number
  deferred: Line[]
  deferred_left: number
  settled: { message_id: string; state: string | null }[]
  you: { reach: string }
  agents: { agent: string; reach: string; state: string | null }[]
  offline_left_out: number
  agents_left_out: number
}

export const verb: Verb = {
  help: `patchcord inbox [--done ID,ID] [--all]

Shows new messages in full (they become open), open and deferred ones in a line each, and the agents here.

  --done IDS  what is dealt with: it leaves the inbox
  --all       offline agents too`,
  options: { ...AS_OPTION, done: { type: 'string' }, all: { type: 'boolean' } },
  arity: [0, 0],
  async run(invocation) {
    const { options, output } = invocation
    const done = textOption(options, 'done')
      ?.split(',')
      .map((id) => parseMessageId(id.trim()))
    const body = { ...(done === undefined ? {} : { done }), ...(options.all === true ? { all_agents: true } : {}) }
    const inbox = await callApi<Inbox>(await findServer(invocation), 'POST', '/api/inbox/fetch', { body })
    output.print(describeInbox(inbox, output), protect(inbox, inbox.namespace, output))
    return EXIT.ok
  },
}

function describeInbox(inbox: Inbox, { frame }: Output): string[] {
  const { counts, namespace } = inbox
  const you = inbox.you.reach === 'wakeable' ? 'wakeable' : 'not wakeable: no listener of yours runs'
  const settled = inbox.settled.map(
    ({ message_id: id, state }) =>
      `${cleanLabel(id)} ${state === null ? 'is not a message of yours' : `is ${cleanLabel(state)}`}`,
  )
  return [
    `${cleanLabel(inbox.agent)}@${cleanLabel(namespace)} | ${cleanLabel(counts.new)} new, ${cleanLabel(counts.open)} open, ${cleanLabel(counts.deferred)} deferred | you: ${you}`,
    ...(inbox.paused_at ? [PAUSED] : []),
    ...[...inbox.new, ...inbox.again].flatMap((message) => describeMessage(message, namespace, frame)),
    ...(inbox.new_left > 0 ? [`${cleanLabel(inbox.new_left)} more are new: patchcord inbox shows them`] : []),
    ...inbox.notices.flatMap((notice) => describeNotice(notice, inbox, frame)),
    ...(inbox.notices_left > 0
      ? [`${cleanLabel(inbox.notices_left)} more were resolved: patchcord inbox shows them`]
      : []),
    ...describeLines('open', inbox.open, inbox.open_left, inbox, frame),
    ...describeLines('deferred', inbox.deferred, inbox.deferred_left, inbox, frame),
    ...settled,
    ...describeAgents(inbox),
  ]
}

function describeNotice(notice: Message, { namespace }: Inbox, frame: Output['frame']): string[] {
  const what = notice.thread ? `thread ${notice.thread}` : (notice.reply_to ?? 'a message')
  const text = notice.content
    ? [frame.wrap({ from: `${notice.from}@${namespace}`, id: notice.message_id }, notice.content)]
    : []
  return [`${cleanLabel(notice.from)} resolved ${cleanLabel(what)}`, ...text, ...describeRest(notice)]
}

function describeLines(
  name: string,
  lines: Line[],
  left: number,
  { namespace }: Inbox,
  frame: Output['frame'],
): string[] {
  if (lines.length === 0 && left === 0) return []
  const shown = lines.map((line) => {
    const { message_id: id, from, preview } = line
    return `  ${cleanLabel(from)} [${cleanLabel(id)}] ${describeTraits(line)}: ${frame.wrapLine({ from: `${from}@${namespace}`, id }, preview)}`
  })
  const rest = 'later ones: shown here once older ones are settled, and by patchcord recall, newest first'
  return [`${name}:`, ...shown, ...(left > 0 ? [`  ${cleanLabel(left)} more, ${rest}`] : [])]
}

function describeAgents({ agents, offline_left_out: offlineLeft, agents_left_out: left }: Inbox): string[] {
  const here = agents.map(
    ({ agent, reach, state }) => `${cleanLabel(agent)} ${cleanLabel(reach)}${state === 'busy' ? ' (busy)' : ''}`,
  )
  const all = [
    ...here,
    ...(left > 0 ? [`${cleanLabel(left)} more`] : []),
    ...(offlineLeft > 0 ? [`${cleanLabel(offlineLeft)} offline`] : []),
  ]
  return all.length > 0 ? [`agents: ${all.join(', ')}`] : []
}

import type { z } from 'zod'
import { fetchInbox } from '../../server/domain/inbox.ts'
import { replyToMessage, type SendMessage, sendMessage } from '../../server/domain/messages.ts'
import type { SeededAgent } from './seed.ts'

/** An agent sends; the id of its message. */
export async function say(from: SeededAgent, input: z.output<typeof SendMessage>): Promise<string> {
  return (await from((scope) => sendMessage(scope, input))).message_id
}

/** An agent fetches what is new. */
export async function read(agent: SeededAgent): Promise<void> {
  await agent((scope) => fetchInbox(scope, {}))
}

/** An agent that has fetched a message answers it; the id of the answer. */
export async function answer(agent: SeededAgent, id: string, content: string): Promise<string> {
  const { sent } = await agent((scope) => replyToMessage(scope, { message_id: id, content }))
  return sent?.message_id ?? ''
}

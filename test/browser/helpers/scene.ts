import { fetchInbox } from '../../../server/domain/inbox.ts'
import { createInvite } from '../../../server/domain/members.ts'
import { replyToMessage, sendMessage } from '../../../server/domain/messages.ts'
import { renewLease, reportPresence } from '../../../server/domain/presence.ts'
import { createToken } from '../../../server/domain/tokens.ts'
import type { TestDatabase } from '../../helpers/database.ts'
import { joinAs, type SeededPerson, signInOperator } from '../../helpers/people.ts'
import { seed } from '../../helpers/seed.ts'

export interface Scene {
  owner: SeededPerson
  /** Of an answered message, one that waits, and the thread of both. */
  answeredId: string
  waitingId: string
  threadId: string
}

/** A namespace as it looks after a while: agents in every state, messages in every state, people, tokens, an invite. */
export async function createScene(database: TestDatabase): Promise<Scene> {
  const owner = await signInOperator(database)
  const limits = { sendBurst: 1_000 }
  const agents = await seed(database, 'acme', ['backend', 'frontend', 'infrastructure-and-release', 'docs'], { limits })
  const { backend, frontend, docs } = agents
  await database.admin`select patchcord.adopt_namespaces(${owner.personId})`
  await joinAs(database, owner, 'acme', 'admin', 'Anne-Marie O’Neill')
  await joinAs(database, owner, 'acme', 'member', 'Børge & sønn <it>')
  await createInvite(owner.scope, { namespace: 'acme', role: 'member' })
  for (const label of ['lap-3', 'CI <main> & nightly', 'an old machine in the corner of the office']) {
    await createToken(owner.scope, { namespace: 'acme', agent: 'backend', label, expiresInSeconds: 30 * 86_400 })
  }
  await backend((scope) => renewLease(scope, { session: 's', client: 'Claude Code', machine: 'lap-3', announced: [] }))
  await frontend((scope) => reportPresence(scope, { state: 'busy', client: 'Codex', machine: 'desk-1' }))
  const asked = await frontend((scope) =>
    sendMessage(scope, {
      to: 'backend',
      content: 'Which port does the API listen on? <script>alert(1)</script>',
      thread: 'deploy-friday',
      kind: 'question',
    }),
  )
  await backend((scope) => fetchInbox(scope, {}))
  await backend((scope) =>
    replyToMessage(scope, { message_id: asked.message_id, content: 'On 8787, behind the proxy.' }),
  )
  const waiting = await frontend((scope) =>
    sendMessage(scope, { to: 'docs', content: 'Please describe the new flag. '.repeat(40), urgency: 'urgent' }),
  )
  await docs((scope) => sendMessage(scope, { to: '*', content: 'I rewrote the installation page.', kind: 'report' }))
  const [thread] = await database.admin`select id from patchcord.threads`
  return { owner, answeredId: asked.message_id, waitingId: waiting.message_id, threadId: thread?.id as string }
}

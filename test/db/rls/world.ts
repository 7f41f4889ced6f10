import type { Sql, TransactionSql } from '../../../server/db/connect.ts'
import type { MemberRole } from '../../../server/db/scope.ts'
import { fetchInbox } from '../../../server/domain/inbox.ts'
import { createInvite } from '../../../server/domain/members.ts'
import { sendMessage } from '../../../server/domain/messages.ts'
import { createOwnLoginLink } from '../../../server/domain/people.ts'
import { renewLease, reportPresence } from '../../../server/domain/presence.ts'
import type { TestDatabase } from '../../helpers/database.ts'
import { joinAs, type SeededPerson, signInOperator } from '../../helpers/people.ts'
import { type SeededAgent, seed } from '../../helpers/seed.ts'

/** Who tries, in the order of the columns of `expectations.ts`. */
export const ACTORS = [
  'recipient',
  'sender',
  'colleague',
  'foreigner',
  'claimless',
  'ticket',
  'expired',
  'colleagueTicket',
  'anonymous',
  'api',
  'member',
  'admin',
  'owner',
  'stranger',
  'person',
  'nobody',
] as const
export type Actor = (typeof ACTORS)[number]

/** A role and the claims that an entry function, or Realtime for a ticket, sets with it. */
export interface Session {
  role: string
  claims: Record<string, unknown> | null
}

/** One row in every table: bob (`recipient`) has a message of alice (`sender`) in a thread; carol is the colleague. */
export interface World {
  alice: SeededAgent
  bob: SeededAgent
  carol: SeededAgent
  eve: SeededAgent
  messageId: string
  threadId: string
  /** A body of bob that has no row yet: what an insert of the row or of its delivery hangs on. */
  draftId: string
  /** A member of bob's namespace, who has a session and an open login link. */
  mia: SeededPerson
  olga: SeededPerson
  stranger: SeededPerson
  /** An open invite of olga. */
  inviteId: string
  sessions: Record<Actor, Session>
}

const TICKET_SECONDS = 600

export async function createWorld(database: TestDatabase): Promise<World> {
  const { alice, bob, carol } = await seed(database, 'acme', ['alice', 'bob', 'carol'])
  const { eve } = await seed(database, 'evil', ['eve'])
  for (const agent of [bob, eve]) {
    await agent((scope) => reportPresence(scope, { state: 'busy' }))
    await agent((scope) => renewLease(scope, { session: 's', client: 'c', machine: 'm', announced: [] }))
  }
  const sent = await alice((scope) => sendMessage(scope, { to: 'bob', content: 'secret', thread: 'deploy' }))
  await bob((scope) => fetchInbox(scope, {}))
  const draft = await bob((scope) => sendMessage(scope, { to: 'alice', content: 'draft', idempotency_key: 'key' }))
  await database.admin`delete from patchcord.agent_messages where id = ${draft.message_id}`
  await database.admin`
    insert into patchcord.former_names (name, namespace_uuid, agent_uuid) values ('bobby', ${bob.namespaceId}, ${bob.agentId})`
  const [thread] = await database.admin`select id from patchcord.threads`
  const operator = await signInOperator(database)
  const mia = await joinAs(database, operator, 'acme', 'member', 'mia')
  const ada = await joinAs(database, operator, 'acme', 'admin', 'ada')
  const olga = await joinAs(database, operator, 'acme', 'owner', 'olga')
  const stranger = await joinAs(database, operator, 'evil', 'owner', 'stranger')
  await createOwnLoginLink(mia.scope)
  const { id: inviteId } = await createInvite(olga.scope, { namespace: 'acme', role: 'member' })
  await database.admin`select patchcord.index_words(100)`
  return {
    alice,
    bob,
    carol,
    eve,
    messageId: sent.message_id,
    threadId: thread?.id as string,
    draftId: draft.message_id,
    mia,
    olga,
    stranger,
    inviteId,
    sessions: {
      recipient: asAgentRole(bob),
      sender: asAgentRole(alice),
      colleague: asAgentRole(carol),
      foreigner: asAgentRole(eve),
      claimless: { role: 'patchcord_agent', claims: null },
      ticket: asTicket(bob, TICKET_SECONDS),
      expired: asTicket(bob, -1),
      colleagueTicket: asTicket(carol, TICKET_SECONDS),
      anonymous: { role: 'anon', claims: null },
      api: { role: 'patchcord_api', claims: null },
      member: asMemberRole(mia, bob.namespaceId, 'member'),
      admin: asMemberRole(ada, bob.namespaceId, 'admin'),
      owner: asMemberRole(olga, bob.namespaceId, 'owner'),
      stranger: asMemberRole(stranger, eve.namespaceId, 'owner'),
      person: asMemberRole(mia, null, null),
      nobody: { role: 'patchcord_person', claims: null },
    },
  }
}

/** What `patchcord.assume` sets. */
export function asAgentRole(agent: SeededAgent): Session {
  return { role: 'patchcord_agent', claims: claimsOf(agent) }
}

/** What `patchcord.assume_person` sets; without a namespace, for what a person does outside of one. */
function asMemberRole(person: SeededPerson, namespaceId: string | null, role: MemberRole | null): Session {
  const { personId, sessionId, name } = person
  const place = namespaceId === null ? {} : { ns: namespaceId, member_role: role }
  return { role: 'patchcord_person', claims: { person: personId, session: sessionId, person_name: name, ...place } }
}

/** What Realtime sets for the ticket of an agent that ends in `seconds`. */
export function asTicket(agent: SeededAgent, seconds: number): Session {
  const exp = Math.floor(Date.now() / 1000) + seconds
  return { role: 'patchcord_ticket', claims: { ...claimsOf(agent), role: 'patchcord_ticket', sub: agent.agentId, exp } }
}

function claimsOf(agent: SeededAgent) {
  const { namespaceId: ns, agentId, tokenId: token, namespace, agent: name } = agent
  return { ns, agent: agentId, token, ns_name: namespace, agent_name: name }
}

class Undo extends Error {}

/** Runs `work` as that session in a transaction that is rolled back. */
export async function tryAs<T>(
  superuser: Sql,
  session: Session,
  work: (sql: TransactionSql) => Promise<T>,
): Promise<T> {
  let answer: T | undefined
  await superuser
    .begin(async (sql) => {
      await sql`select set_config('request.jwt.claims', ${session.claims ? JSON.stringify(session.claims) : ''}, true)`
      await sql`select set_config('role', ${session.role}, true)`
      answer = await work(sql)
      throw new Undo()
    })
    .catch((error: unknown) => {
      if (!(error instanceof Undo)) throw error
    })
  return answer as T
}

/** `1` when one row was reached, `0` for none, `-` for "permission denied" by grant or policy. */
export async function probe(superuser: Sql, session: Session, statement: string): Promise<string> {
  try {
    return String((await tryAs(superuser, session, (sql) => sql.unsafe(statement))).count)
  } catch (error) {
    if ((error as { code?: string }).code === '42501') return '-'
    throw error
  }
}

import type { Sql } from '../../server/db/connect.ts'
import type { MemberRole, PersonScope } from '../../server/db/scope.ts'
import { hashCode } from '../../server/domain/codes.ts'
import { createInvite, joinByInvite } from '../../server/domain/members.ts'
import { createLoginLink, getMe, signIn } from '../../server/domain/people.ts'

/** A person of a test, signed in. */
export interface SeededPerson {
  personId: string
  sessionId: string
  name: string
  /** The secret of the session, as the cookie holds it. */
  session: string
  scope: PersonScope
}

/** The operator's person, signed in by a link of the command line: owner of every namespace that has no other. */
export async function signInOperator(database: { admin: Sql; api: Sql }): Promise<SeededPerson> {
  const { code } = await createLoginLink(database.admin)
  return await toPerson(database.api, (await signIn(database.api, { code, client: 'Firefox on Linux' })).session)
}

/** A new person who has come by an invite of `owner`. */
export async function joinAs(
  database: { api: Sql },
  owner: SeededPerson,
  namespace: string,
  role: MemberRole,
  name: string = role,
): Promise<SeededPerson> {
  const { code } = await createInvite(owner.scope, { namespace, role })
  const { session } = await joinByInvite(database.api, { code, name, client: 'Chrome on macOS' })
  return await toPerson(database.api, session)
}

async function toPerson(sql: Sql, session: string): Promise<SeededPerson> {
  const scope = { sql, sessionHash: hashCode(session) }
  const { personId, sessionId, name } = await getMe(scope)
  return { personId, sessionId, name, session, scope }
}

/** Everything that each attempt was told, once: one line means that none of the refusals can be told from another. */
export async function listRefusals(attempts: Promise<unknown>[]): Promise<string[]> {
  const told = await Promise.all(
    attempts.map((attempt) =>
      attempt.then(
        () => 'let through',
        (error: { code?: string; message: string; hint?: string }) => [error.code, error.message, error.hint].join(' '),
      ),
    ),
  )
  return [...new Set(told)]
}

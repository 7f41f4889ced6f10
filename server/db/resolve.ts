import type { Sql } from './connect.ts'
import { connectionLost, translateDatabaseError } from './errors.ts'
import { createLanes } from './lanes.ts'
import { type Identified, type Identity, reach, resolveIdentity, toIdentity } from './scope.ts'

const TOKENS_MAX = 100
/** One core resolves these sooner together than two cores do half of them each. */
const SECOND_LANE_TOKENS = 8

/** Throws token_rejected, token_revoked, agent_gone or unavailable. */
export type ResolveToken = (tokenHash: string) => Promise<Identity>

interface Waiting {
  tokenHash: string
  resolve(identity: Identity): void
  reject(error: unknown): void
}

/** Who tokens are, as the database says at that moment. Every request asks it; what is asked at once goes together. */
export function createResolver(sql: Sql): ResolveToken {
  const waiting: Waiting[] = []
  const start = createLanes({
    countWaiting: () => waiting.length,
    anotherAt: SECOND_LANE_TOKENS,
    run: () => resolveAll(sql, waiting.splice(0, TOKENS_MAX)),
  })
  return (tokenHash) =>
    new Promise((resolve, reject) => {
      waiting.push({ tokenHash, resolve, reject })
      start()
    })
}

/** Never rejects. */
async function resolveAll(sql: Sql, asked: Waiting[]): Promise<void> {
  const [first] = asked
  if (first && asked.length === 1) return await resolveIdentity(sql, first.tokenHash).then(first.resolve, first.reject)
  try {
    const hashes = asked.map(({ tokenHash }) => tokenHash)
    const [row] = await reach(() => sql`select patchcord.resolve_tokens(${hashes}::text[]) as answers`)
    const answers = row?.answers as Identified[] | undefined
    if (answers?.length !== asked.length) throw translateDatabaseError(connectionLost())
    for (const [index, each] of asked.entries()) settle(each, answers[index] as Identified)
  } catch (error) {
    for (const each of asked) each.reject(error)
  }
}

function settle({ resolve, reject }: Waiting, answer: Identified): void {
  try {
    resolve(toIdentity(answer))
  } catch (error) {
    reject(error)
  }
}

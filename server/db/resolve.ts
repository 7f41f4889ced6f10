import { availableParallelism } from 'node:os'
import type { Sql } from './connect.ts'
import { type Identified, type Identity, reach, resolveIdentity, toIdentity } from './scope.ts'

const TOKENS_MAX = 100

/** Throws token_rejected, token_revoked, agent_gone or unavailable. */
export type ResolveToken = (tokenHash: string) => Promise<Identity>

interface Waiting {
  tokenHash: string
  resolve(identity: Identity): void
  reject(error: unknown): void
}

/**
 * Who tokens are, as the database says at that moment. Every request asks it: what is asked while as many statements as there are
 * cores are under way goes together in the next one.
 */
export function createResolver(sql: Sql, lanes = availableParallelism()): ResolveToken {
  const waiting: Waiting[] = []
  let running = 0
  let isStarting = false

  function start(): void {
    if (isStarting || running === lanes || waiting.length === 0) return
    isStarting = true
    setImmediate(() => {
      isStarting = false
      while (running < lanes && waiting.length > 0) void runNext()
    })
  }

  async function runNext(): Promise<void> {
    const share = Math.min(TOKENS_MAX, Math.ceil(waiting.length / (lanes - running)))
    running++
    await resolveAll(sql, waiting.splice(0, share))
    running--
    start()
  }

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
    const answers = row?.answers as Identified[]
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

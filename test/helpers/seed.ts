import type { Limits } from '../../server/config.ts'
import { loadConfig } from '../../server/config.ts'
import type { Sql } from '../../server/db/connect.ts'
import type { Scope } from '../../server/db/scope.ts'
import { createAgent } from '../../server/domain/agents.ts'
import { createNamespace } from '../../server/domain/namespaces.ts'
import { createSendBatch } from '../../server/domain/send-batch.ts'
import { hashToken, issueToken } from '../../server/domain/tokens.ts'
import { createBus, type Wake, type WakeBus } from '../../server/wakes/bus.ts'
import { createWaiters } from '../../server/wakes/waiters.ts'

/** An agent of a test: its token, and `run`, which works in its scope. */
export interface SeededAgent {
  <T>(work: (scope: Scope) => Promise<T>): Promise<T>
  agent: string
  namespace: string
  agentId: string
  namespaceId: string
  tokenId: string
  token: string
  tokenHash: string
  scope: Scope
  /** What this agent's scope has published. */
  wakes: Wake[]
}

export interface SeedOptions {
  limits?: Partial<Limits>
  bus?: WakeBus
}

export const DEFAULT_LIMITS: Limits = loadConfig({}).limits

/** A namespace with agents, each with a token: `const { alice, bob } = await seed(database, 'acme', ['alice', 'bob'])`. */
export async function seed<Name extends string>(
  database: { admin: Sql; api: Sql },
  namespace: string,
  names: readonly Name[],
  options: SeedOptions = {},
): Promise<Record<Name, SeededAgent>> {
  const limits = { ...DEFAULT_LIMITS, ...options.limits }
  const { id: namespaceId } = await createNamespace(database.admin, { name: namespace })
  // As in the server: what tests send at once goes together.
  const sends = createSendBatch(database.api, limits)
  const agents: [Name, SeededAgent][] = []
  for (const agent of names) {
    const { id: agentId } = await createAgent(database.admin, { namespace, name: agent })
    const { token, id: tokenId } = await issueToken(database.admin, { namespace, agent })
    const wakes: Wake[] = []
    const bus = options.bus ?? createBus(createWaiters(limits))
    const recording: WakeBus = {
      ...bus,
      publish(published) {
        wakes.push(...published)
        bus.publish(published)
      },
    }
    const scope: Scope = { sql: database.api, tokenHash: hashToken(token), limits, bus: recording, sends }
    const run = <T>(work: (scope: Scope) => Promise<T>) => work(scope)
    const facts = { agent, namespace, agentId, namespaceId, tokenId, token, tokenHash: scope.tokenHash, scope, wakes }
    agents.push([agent, Object.assign(run, facts) as SeededAgent])
  }
  return Object.fromEntries(agents) as Record<Name, SeededAgent>
}

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { sendMessage } from '../../server/domain/messages.ts'
import { createRealtimeSource } from '../../server/domain/realtime.ts'
import { createBus } from '../../server/wakes/bus.ts'
import { createWaiters } from '../../server/wakes/waiters.ts'
import type { TestDatabase } from '../helpers/database.ts'
import { DEFAULT_LIMITS, type SeededAgent, type SeedOptions, seed } from '../helpers/seed.ts'
import { type Client, type Endpoint, type EndpointOptions, inSeconds, startEndpoint } from './endpoint-helper.ts'

export const TOPIC = 'realtime:m'
export const INSERT = { event: 'INSERT', schema: 'patchcord', table: 'agent_messages' }
const QUIET = { topic: 'phoenix', event: 'heartbeat', payload: {}, ref: 'quiet' }
/** Several polls of the endpoint. */
export const QUIET_MS = 250

export const claimsOf = ({ namespaceId, agentId, tokenId }: SeededAgent) => ({
  ns: namespaceId,
  agent: agentId,
  token: tokenId,
})

/** An endpoint on the database, with agents of a namespace of their own whose wakes reach it unless `isDeaf`. */
export async function withWorld(
  database: TestDatabase,
  work: (world: Record<'alice' | 'bob' | 'carol', SeededAgent> & { endpoint: Endpoint }) => Promise<void>,
  {
    isDeaf,
    limits,
    ...options
  }: Omit<EndpointOptions, 'limits'> & { isDeaf?: boolean; limits?: SeedOptions['limits'] } = {},
): Promise<void> {
  const endpoint = await startEndpoint({ source: createRealtimeSource(database.api), ...options })
  try {
    const bus = createBus(createWaiters(DEFAULT_LIMITS))
    if (!isDeaf) bus.addSink(endpoint.hub)
    const names = ['alice', 'bob', 'carol'] as const
    const more = limits ? { limits } : {}
    await work({ ...(await seed(database, `changes-${randomUUID().slice(0, 8)}`, names, { bus, ...more })), endpoint })
  } finally {
    await endpoint.stop()
  }
  assert.deepEqual(endpoint.errors, [])
}

export async function subscribe(
  endpoint: Endpoint,
  agent: SeededAgent,
  bindings: object[] = [INSERT],
  claims: object = {},
): Promise<{ client: Client; said: string }> {
  const client = await endpoint.open()
  const jwt = await endpoint.sign({
    role: 'patchcord_ticket',
    exp: inSeconds(60),
    ...claimsOf(agent),
    ...claims,
  })
  const payload = { config: { private: false, postgres_changes: bindings }, access_token: jwt }
  client.send({ topic: TOPIC, event: 'phx_join', payload, ref: '1', join_ref: '1' })
  assert.equal(JSON.parse(await client.next()).payload.status, 'ok')
  return { client, said: JSON.parse(await client.next()).payload.message }
}

/** Ids of all rows that came until nothing more does. */
export async function drain(client: Client): Promise<string[]> {
  await sleep(QUIET_MS)
  client.send(QUIET)
  const ids: string[] = []
  for (let frame = await client.next(); !frame.includes('"ref":"quiet"'); frame = await client.next()) {
    const { payload, event } = JSON.parse(frame)
    if (event === 'postgres_changes') ids.push(payload.data.record.id)
  }
  return ids
}

export const send = (from: SeededAgent, to: SeededAgent) =>
  from((scope) => sendMessage(scope, { to: to.agent, content: 'hi' }))

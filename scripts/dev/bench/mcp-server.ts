import Fastify from 'fastify'
import { type ConnectionTarget, connect, type Sql } from '../../../server/db/connect.ts'
import { hashToken } from '../../../server/domain/tokens.ts'
import { startTestApp } from '../../../test/helpers/app.ts'

/** One of the servers that mcp.ts compares, in a process of its own: says its address to its parent, ends with it. */

export interface ServerOrder {
  kind: 'patchcord' | 'bare'
  target: ConnectionTarget
}

/** As main.ts has it. */
const POOL_MAX = 10

async function start({ kind, target }: ServerOrder): Promise<string> {
  const sql = connect(target, { max: POOL_MAX, applicationName: `bench-${kind}` })
  if (kind === 'bare') return await startBare(sql)
  return (await startTestApp({ api: sql }, { logLevel: 'warn' })).url
}

/**
 * What anybody would write: the bearer's hash and the query, its answer as JSON. `/once` leaves it to the query to look the token
 * up, which it does anyway; `/twice` asks for the identity before, in a statement of its own, as our server does.
 */
async function startBare(sql: Sql): Promise<string> {
  const app = Fastify()
  const hashOf = (authorization = '') => hashToken(authorization.slice('Bearer '.length))
  const fetchInbox = async (hash: string) => {
    const [row] = await sql`select patchcord.fetch_inbox(${hash}, ${[]}::uuid[]) as answer`
    return row?.answer
  }
  app.post('/once', (request) => fetchInbox(hashOf(request.headers.authorization)))
  app.post('/twice', async (request, reply) => {
    const hash = hashOf(request.headers.authorization)
    const [row] = await sql`select patchcord.resolve_token(${hash}) as answer`
    if (row?.answer.outcome !== 'ok') return reply.code(401).send()
    return await fetchInbox(hash)
  })
  return await app.listen({ host: '127.0.0.1', port: 0 })
}

process.once('disconnect', () => process.exit())
process.send?.(await start(JSON.parse(process.argv[2] ?? '') as ServerOrder))

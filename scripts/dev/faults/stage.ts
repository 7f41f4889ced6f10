import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { findFreePort, OPEN_LIMITS } from '../../../test/helpers/loss.ts'
import { createTemporaryFolder } from '../../../test/helpers/processes.ts'
import { seed as seedAgents } from '../../../test/helpers/seed.ts'
import { createRandom } from '../soak-actors.ts'
import { Clients } from './clients.ts'
import { RunListener } from './listeners.ts'
import { Model } from './model.ts'
import { RunPostgres } from './postgres.ts'
import { Clock } from './programs.ts'
import { Network } from './proxy.ts'
import { RunServer } from './servers.ts'

/** Everything that a run is made of: one Postgres, two servers, and agents, each behind a network of its own. */

const SERVERS = ['server-a', 'server-b']
const NAMESPACE = 'faults'
/** What connections that keep silent hold must not be refused to the next one. */
const LIMITS = JSON.stringify({
  ...JSON.parse(OPEN_LIMITS),
  turnsMax: 1_000_000,
  turnsUnattendedMax: 1_000_000,
  newPerRecipientMax: 100_000,
  waitersPerAgentMax: 1_000,
  connectionsPerTokenMax: 1_000,
})
/** Every other listener's tickets end before it fetches new ones. */
const REFRESH_SHARES = [0.7, 3]

export interface StageAgent {
  name: string
  /** Nobody opens its inbox before everything is at rest. */
  isQuiet: boolean
  credentials: { token: string; tokenId: string }
  network: Network
  clients: Clients
  listener: RunListener
}

export interface Stage {
  namespace: string
  folder: string
  postgres: RunPostgres
  servers: RunServer[]
  agents: StageAgent[]
  model: Model
  /** What must not happen, in sentences. */
  problems: string[]
}

export interface StageOptions {
  seed: number
  agents: number
  keep(step: () => Promise<unknown>): void
}

/** `keep` is given what undoes each step, to be done in reverse order. */
export async function setStage({ seed, agents: count, keep }: StageOptions): Promise<Stage> {
  const temporary = await createTemporaryFolder()
  keep(temporary.remove)
  const folder = temporary.path
  const problems: string[] = []
  const postgres = await RunPostgres.start(folder, createRandom(seed, 'network database'))
  keep(() => postgres.stop())
  const names = Array.from({ length: count }, (_, index) => `agent${index}`)
  const quiet = names.filter((_, index) => index % 2 === 0)
  const model = new Model(names, quiet)
  const servers = await startServers(folder, postgres.url, problems, keep)
  const seeded = await postgres.administer((admin) => seedAgents({ admin, api: admin }, NAMESPACE, names))
  const agents: StageAgent[] = []
  for (const [index, name] of names.entries()) {
    const network = new Network(
      () => servers.map(({ port }) => ({ host: '127.0.0.1', port })),
      createRandom(seed, `network ${name}`),
    )
    const url = `http://127.0.0.1:${await network.open()}`
    keep(() => network.close())
    const { token, tokenId } = seeded[name] as { token: string; tokenId: string }
    const credentials = { token, tokenId }
    const clients = new Clients(name, url, credentials, problems)
    keep(() => clients.close())
    const refreshShare = REFRESH_SHARES[Math.floor(index / 2) % 2] as number
    const place = { name, url, home: join(folder, name), clock: new Clock(folder, name), refreshShare }
    const events = {
      onLife: () => model.startLife(name),
      onLine: (lines: number, at: number) => model.announce(name, lines, at),
      onEnd: () => model.endLife(name),
    }
    const listener = new RunListener(place, events, problems)
    agents.push({ name, isQuiet: quiet.includes(name), credentials, network, clients, listener })
    await listener.start(token)
    keep(() => listener.stop('SIGTERM'))
  }
  return { namespace: NAMESPACE, folder, postgres, servers, agents, model, problems }
}

async function startServers(folder: string, url: string, problems: string[], keep: StageOptions['keep']) {
  const secret = randomBytes(32).toString('base64url')
  const env = { DATABASE_URL: url, SUPABASE_JWT_SECRET: secret, PATCHCORD_LIMITS: LIMITS, LOG_LEVEL: 'warn' }
  const servers: RunServer[] = []
  for (const name of SERVERS) {
    const place = { name, port: await findFreePort(), folder, env, clock: new Clock(folder, name) }
    const server = new RunServer(place, problems)
    await server.start()
    keep(() => server.end())
    servers.push(server)
  }
  return servers
}

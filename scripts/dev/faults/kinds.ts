import { setTimeout as sleep } from 'node:timers/promises'
import { issueToken, revokeToken } from '../../../server/domain/tokens.ts'
import type { Random } from '../soak-actors.ts'
import { whyNoFullDisk } from './postgres.ts'
import type { Network } from './proxy.ts'
import type { RunServer } from './servers.ts'
import type { Stage, StageAgent } from './stage.ts'
import { draw, drawOne } from './traffic.ts'

/** Every kind of fault. Each happens, lasts for a while and is over when its promise resolves. */

/** Ranges of ms, unless named otherwise. */
const GONE_MS = [0, 600] as const
const SLOW_MS = [1_500, 5_000] as const
const SLOW_PIECE_MS = [20, 900] as const
const SPOIL_MS = 5_000
const SPOIL_COUNT = [1, 4] as const
const STALL_MS = [1_500, 5_000] as const
const STOP_LISTENER_MS = [500, 5_000] as const
const STOP_SERVER_MS = [300, 1_800] as const
const CLOCK_MS = [1_000, 5_000] as const
const CLOCK_OFF_MS = [5_000, 3_600_000] as const
const FULL_MS = [300, 1_500] as const
const HALF_OPEN_MS = 2_000
/** So many of the faults of the network are between the servers and their database. */
const DATABASE_SHARE = 0.25
const TICKET_SECONDS = 10
const TICKET_WAIT_MS = 4_000
const POLL_MS = 50
/** A refused listener asks twice, 30 s apart at most, through whatever else is broken. */
const REJECTED_MS_MAX = 120_000

/** What one fault needs for itself; two faults that share nothing overlap. */
export type Lock =
  | 'postgres'
  | `server ${string}`
  | `clock ${string}`
  | `listener ${string}`
  | `network ${string}`
  | `token ${string}`

export interface Fault {
  locks: Lock[]
  /** false: there was nothing to break, so it did not happen. */
  run(): Promise<boolean>
  /** The rest of it, which needs other things: it counts when all of it has happened. */
  next?: Fault | null
}

export interface Kind {
  name: string
  /** Why it cannot be run here. */
  whyNot?: () => string | null
  draw(stage: Stage, random: Random): Fault
}

function ofListener(
  name: string,
  locks: (agent: string) => Lock[],
  act: (agent: StageAgent, random: Random, stage: Stage) => Promise<boolean>,
): Kind {
  return {
    name,
    draw(stage, random) {
      const agent = drawOne(random, stage.agents)
      return { locks: locks(agent.name), run: () => act(agent, random, stage) }
    },
  }
}

const LISTENER = (name: string): Lock[] => [`listener ${name}`]

const killServer: Kind = {
  name: 'server killed',
  draw({ servers }, random) {
    const server = drawOne(random, servers)
    const goneMs = draw(random, GONE_MS)
    return {
      locks: [`server ${server.name}`],
      async run() {
        await server.kill()
        await sleep(goneMs)
        await server.start()
        return true
      },
    }
  },
}

const stopServer: Kind = {
  name: 'server stopped',
  draw({ servers }, random) {
    const server = drawOne(random, servers)
    const ms = draw(random, STOP_SERVER_MS)
    return {
      locks: [`server ${server.name}`],
      async run() {
        server.pause()
        await sleep(ms)
        server.resume()
        return true
      },
    }
  },
}

function restart(server: RunServer, next: Fault | null): Fault {
  return {
    locks: [`server ${server.name}`],
    async run() {
      await server.end()
      await server.start()
      return true
    },
    next,
  }
}

/** One after the other, as an update does it: each drains, and nobody's work is cut off. */
const rollingRestart: Kind = {
  name: 'rolling restart',
  draw({ servers }) {
    const [first, second] = servers as [RunServer, RunServer]
    return restart(first, restart(second, null))
  },
}

const serverClock: Kind = {
  name: 'clock of a server',
  draw({ servers }, random) {
    const server = drawOne(random, servers)
    const offMs = drawOff(random)
    const ms = draw(random, CLOCK_MS)
    return {
      locks: [`clock ${server.name}`],
      async run() {
        server.clock.set(offMs)
        await sleep(ms)
        server.clock.set(0)
        return true
      },
    }
  },
}

/** Seconds to an hour, ahead or behind. */
function drawOff(random: Random): number {
  const size = CLOCK_OFF_MS[0] * (CLOCK_OFF_MS[1] / CLOCK_OFF_MS[0]) ** random()
  return Math.round(random() < 0.5 ? size : -size)
}

const killPostgres: Kind = {
  name: 'Postgres killed',
  draw: ({ postgres }) => ({
    locks: ['postgres'],
    async run() {
      await postgres.kill()
      return true
    },
  }),
}

const fillDisk: Kind = {
  name: 'disk full',
  whyNot: whyNoFullDisk,
  draw({ postgres }, random) {
    const ms = draw(random, FULL_MS)
    return {
      locks: ['postgres'],
      async run() {
        await postgres.fillDisk(ms)
        return true
      },
    }
  },
}

const killListener = ofListener('listener killed', LISTENER, async ({ listener, credentials }, random) => {
  const goneMs = draw(random, GONE_MS)
  await listener.stop('SIGKILL')
  await sleep(goneMs)
  await listener.start(credentials.token)
  return true
})

const stopListener = ofListener('listener stopped', LISTENER, async ({ listener }, random) => {
  const ms = draw(random, STOP_LISTENER_MS)
  listener.pause()
  await sleep(ms)
  listener.resume()
  return true
})

const stallStdout = ofListener('stdout stalled', LISTENER, async ({ listener }, random) => {
  const ms = draw(random, STALL_MS)
  listener.stall()
  await sleep(ms)
  listener.unstall()
  return true
})

const listenerClock = ofListener(
  'clock of a listener',
  (name) => [`clock ${name}`],
  async ({ listener }, random) => {
    const [offMs, ms] = [drawOff(random), draw(random, CLOCK_MS)]
    listener.clock.set(offMs)
    await sleep(ms)
    listener.clock.set(0)
    return true
  },
)

/** Between an agent and the servers, or between the servers and their database. */
function ofNetwork(name: string, act: (network: Network, random: Random) => Promise<boolean>): Kind {
  return {
    name,
    draw({ agents, postgres }, random) {
      const agent = drawOne(random, agents)
      const isDatabase = random() < DATABASE_SHARE
      return {
        locks: [`network ${isDatabase ? 'database' : agent.name}`],
        run: () => act(isDatabase ? postgres.network : agent.network, random),
      }
    },
  }
}

const halfOpen = ofNetwork('half-open sockets', async (network) => {
  const count = network.silence()
  if (count > 0) await sleep(HALF_OPEN_MS)
  return count > 0
})

const delays = ofNetwork('delays', async (network, random) => {
  const ms = draw(random, SLOW_MS)
  network.delay(() => draw(random, SLOW_PIECE_MS))
  await sleep(ms)
  network.delay(() => 0)
  return true
})

const cutAnswers = ofNetwork('answers cut off', async (network, random) => {
  return (await network.spoil('cut', draw(random, SPOIL_COUNT), SPOIL_MS)) > 0
})

const loseAnswers = ofNetwork('answers lost', async (network, random) => {
  const fault = random() < 0.5 ? 'lose' : 'lose in silence'
  return (await network.spoil(fault, draw(random, SPOIL_COUNT), SPOIL_MS)) > 0
})

const TOKEN = (name: string): Lock[] => [`token ${name}`, `listener ${name}`]

/** The operator replaces the token of a living listener: it must say so and end, and its successor must find everything. */
const revoke = ofListener('token revoked', TOKEN, async (agent, _random, { postgres, namespace, problems }) => {
  const { listener, credentials } = agent
  const old = credentials.tokenId
  const { token, id } = await postgres.administer((sql) => issueToken(sql, { namespace, agent: agent.name }))
  Object.assign(credentials, { token, tokenId: id })
  await postgres.administer((sql) => revokeToken(sql, old))
  if (!(await listener.endsRejected(REJECTED_MS_MAX))) {
    problems.push(
      `${agent.name}'s listener did not end as it should within ${REJECTED_MS_MAX / 1000} s of the revocation of its token:\n${listener.log}`,
    )
  }
  await listener.start(credentials.token)
  return true
})

/**
 * A ticket ends no later than its token. So the token is given an end, the connections are cut, and when the listener has come
 * back with a short ticket the token lives on: the ticket ends on a connection that works.
 */
const expireTicket = ofListener('ticket expired', TOKEN, async (agent, _random, { postgres }) => {
  const { listener, network, credentials } = agent
  const setEnd = (seconds: number | null) =>
    postgres.administer(
      (sql) => sql`
        update patchcord.tokens set expires_at = clock_timestamp() + make_interval(secs => ${seconds}::float8)
        where id = ${credentials.tokenId}`,
    )
  listener.mayBeRejected = true
  const before = listener.countConnected()
  await setEnd(TICKET_SECONDS)
  const endsAt = performance.now() + TICKET_SECONDS * 1000
  network.cutAll()
  const waitUntil = performance.now() + TICKET_WAIT_MS
  while (listener.countConnected() === before && performance.now() < waitUntil) await sleep(POLL_MS)
  await setEnd(null)
  const hasShortTicket = listener.countConnected() > before && listener.isRunning
  if (hasShortTicket) await sleep(Math.max(0, endsAt - performance.now()))
  if (!listener.isRunning) await listener.start(credentials.token)
  listener.mayBeRejected = false
  return hasShortTicket
})

export const KINDS: Kind[] = [
  killServer,
  killPostgres,
  killListener,
  halfOpen,
  delays,
  cutAnswers,
  loseAnswers,
  stallStdout,
  expireTicket,
  revoke,
  listenerClock,
  serverClock,
  stopListener,
  stopServer,
  rollingRestart,
  fillDisk,
]

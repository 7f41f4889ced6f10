import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { recordTrust, toTrustId } from '../../../scripts/lib/identity.cjs'
import { callRest, createAgents } from '../../helpers/loss.ts'
import { createTemporaryFolder, type RunningServer, runAdmin, startServer } from '../../helpers/processes.ts'
import { assertIsolated } from './isolated.ts'

const WAIT_MS = 120_000
const LOOK_MS = 100
/** Below those from which the system takes one for each connection: nothing else may have it while the server is away. */
const PORTS = { first: 20_000, count: 10_000 }
const NAMESPACE = 'acme'

export interface WorldMessage {
  message_id: string
  from: string
  content: string
}

/** Our real server with its agents, and folders that stand for one user's machine. Every scenario file has one of its own. */
export class World {
  /** Everything of it is below this. */
  readonly folder: string
  /** XDG_RUNTIME_DIR of the clients. */
  readonly runtime: string
  readonly url: string
  #server: RunningServer
  #tokens: Map<string, string>
  #remove: () => Promise<void>

  private constructor(facts: {
    folder: string
    runtime: string
    server: RunningServer
    tokens: Map<string, string>
    remove: () => Promise<void>
  }) {
    this.folder = facts.folder
    this.runtime = facts.runtime
    this.url = facts.server.url
    this.#server = facts.server
    this.#tokens = facts.tokens
    this.#remove = facts.remove
  }

  static async start(agents: string[]): Promise<World> {
    assertIsolated()
    const { path: folder, remove } = await createTemporaryFolder()
    const runtime = join(folder, 'run')
    await mkdir(runtime, { mode: 0o700 })
    let server: RunningServer | null = null
    try {
      server = await startServer({ dataDir: join(folder, 'data'), port: await findPort() })
      const tokens = await createAgents(join(folder, 'data'), NAMESPACE, agents)
      return new World({ folder, runtime, server, tokens, remove })
    } catch (error) {
      await server?.stop()
      await remove()
      throw error
    }
  }

  async close(): Promise<void> {
    try {
      await this.#server.stop()
    } finally {
      await this.#remove()
    }
  }

  token(agent: string): string {
    const token = this.#tokens.get(agent)
    assert.ok(token, `${agent} is an agent of this world`)
    return token
  }

  /** Ends the server and starts it on the same port; `between` runs while it is away. */
  async restartServer(between: () => Promise<void> = async () => {}): Promise<void> {
    await this.#server.stop()
    await between()
    const port = Number(new URL(this.url).port)
    this.#server = await startServer({ dataDir: join(this.folder, 'data'), port })
  }

  /** Revokes every token of an agent, as the operator does. */
  async revoke(agent: string): Promise<void> {
    const dataDir = join(this.folder, 'data')
    const list = (await runAdmin(dataDir, 'list-tokens', NAMESPACE)) as unknown as { id: string; agent: string }[]
    for (const token of list.filter((one) => one.agent === agent)) await runAdmin(dataDir, 'revoke-token', token.id)
  }

  /** A home folder that trusts every agent of this world, as `patchcord connect` records it. */
  async createHome({ isTrusting = true } = {}): Promise<string> {
    const home = await mkdtemp(join(this.folder, 'home-'))
    const tokens = isTrusting ? [...this.#tokens.values()] : []
    for (const token of tokens) {
      recordTrust(join(home, '.config/patchcord/trusted.json'), toTrustId({ base: this.url, token }))
    }
    return home
  }

  /** A project folder; with an agent's `.mcp.json` in it, unless null. */
  async createProject(agent: string | null): Promise<string> {
    const project = await mkdtemp(join(this.folder, 'project-'))
    if (agent !== null) await this.connectProject(project, agent)
    return project
  }

  /** Writes `.mcp.json` as `patchcord connect` does. */
  async connectProject(project: string, agent: string, url = this.url): Promise<void> {
    const headers = { Authorization: `Bearer ${this.token(agent)}` }
    const servers = { patchcord: { type: 'http', url: `${url}/mcp/bearer`, headers } }
    await writeFile(join(project, '.mcp.json'), `${JSON.stringify({ mcpServers: servers }, null, 2)}\n`, {
      mode: 0o600,
    })
  }

  /** Sends a message; its id, once the server has answered. */
  async send(from: string, to: string, content: string, more: Record<string, unknown> = {}): Promise<string> {
    const answer = await callRest(this.url, this.token(from), 'POST', '/api/messages', { to, content, ...more })
    assert.ok(answer, 'the server answers')
    return String(answer.message_id)
  }

  /** Fetches what is new to an agent. */
  async fetchInbox(agent: string): Promise<WorldMessage[]> {
    const answer = await callRest(this.url, this.token(agent), 'POST', '/api/inbox/fetch', {})
    assert.ok(answer, 'the server answers')
    return answer.new as WorldMessage[]
  }

  /** Waits until an agent has a new message whose text fits. */
  async waitForMessage(agent: string, wanted: RegExp): Promise<WorldMessage> {
    return await this.#poll(`a message to ${agent} like ${wanted}`, async () =>
      (await this.fetchInbox(agent)).find(({ content }) => wanted.test(content)),
    )
  }

  /** How many messages are new to an agent; fetches none. */
  async countNew(agent: string): Promise<number> {
    const response = await fetch(new URL('/api/inbox?count_only=1', this.url), {
      headers: { authorization: `Bearer ${this.token(agent)}` },
    })
    return ((await response.json()) as { pending_count: number }).pending_count
  }

  /** Waits until another agent sees this one as wakeable (or no longer), which is when its listener has joined. */
  async waitForWakeable(agent: string, wanted = true): Promise<void> {
    const onlooker = [...this.#tokens.keys()].find((name) => name !== agent)
    assert.ok(onlooker, 'there is another agent')
    await this.#poll(`${agent} wakeable=${wanted}`, async () => {
      const reach = await this.#findReach(onlooker, agent)
      return (reach === 'wakeable') === wanted ? true : undefined
    })
  }

  async #findReach(onlooker: string, agent: string): Promise<string | undefined> {
    const response = await fetch(new URL('/api/agents', this.url), {
      headers: { authorization: `Bearer ${this.token(onlooker)}` },
    })
    const { agents } = (await response.json()) as { agents: { agent: string; reach: string }[] }
    return agents.find((one) => one.agent === agent)?.reach
  }

  async #poll<T>(what: string, look: () => Promise<T | undefined>): Promise<T> {
    const until = performance.now() + WAIT_MS
    for (;;) {
      const found = await look()
      if (found !== undefined) return found
      if (performance.now() > until) throw new Error(`${what} did not come within ${WAIT_MS} ms`)
      await sleep(LOOK_MS)
    }
  }

  /** Removes a folder of this world before its end. */
  async remove(path: string): Promise<void> {
    await rm(path, { recursive: true, force: true, maxRetries: 3 })
  }
}

/** A port that is free, and stays so. */
async function findPort(): Promise<number> {
  for (;;) {
    const port = PORTS.first + Math.floor(Math.random() * PORTS.count)
    const probe = createServer()
    const isFree = await new Promise<boolean>((resolve) => {
      probe.once('error', () => resolve(false))
      probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)))
    })
    if (isFree) return port
  }
}

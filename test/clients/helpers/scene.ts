import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import {
  type ClaudeOptions,
  type ClaudeSession,
  installPlugin,
  type PrintRun,
  startClaude,
  startPrint,
  writeProjectSettings,
} from './claude.ts'
import { createClientEnvironment } from './install.ts'
import { callTool, MessagesModel, type ModelReply, type ModelRequest, type ModelScript } from './model.ts'
import { buildCommand, copyPlugin, type PluginCopy } from './plugin-copy.ts'
import { World } from './world.ts'

const COMMAND_MS_MAX = 180_000
const SEARCHES_MAX = 60
const SEARCH_MS = 500

/** What `patchcord connect --allow` offers to write: without these an event's turn stops at a question that nobody answers. */
export const ALLOW_RULES = ['mcp__patchcord']

/** What a wake must look like to the model: an event, which the client itself calls no word of the user. */
export const EVENT = 'Monitor event: "patchcord messages"'

export interface StartOptions {
  script?: ModelScript
  /** Instead of a script: a model that reads this agent's inbox when it hears of mail, and says so. */
  reader?: string
  allow?: string[]
  /** Leaves .claude/settings.local.json as `patchcord connect` has written it. */
  isConnected?: boolean
  /** Servers of `.mcp.json` that were approved before; the others are asked for at the start, and approved. */
  servers?: string[]
  args?: string[]
  env?: Record<string, string>
}

export interface Running {
  session: ClaudeSession
  model: MessagesModel
}

/** One machine with our server, and Claude Code with the plugin installed from a folder marketplace. */
export class Scene {
  readonly world: World
  readonly home: string
  /** What the plugin is installed from. */
  readonly copy: PluginCopy
  /** What is to be closed, last first. */
  #cleanup: (() => Promise<void>)[] = []

  #command: Promise<string> | null = null

  private constructor(world: World, home: string, copy: PluginCopy) {
    this.world = world
    this.home = home
    this.copy = copy
  }

  static async open(agents: string[], { isTrusting = true } = {}): Promise<Scene> {
    const world = await World.start(agents)
    try {
      const home = await world.createHome({ isTrusting })
      const copy = await copyPlugin(join(world.folder, 'market'))
      await installPlugin(home, copy)
      return new Scene(world, home, copy)
    } catch (error) {
      await world.close()
      throw error
    }
  }

  /** An interactive session; closed by closeSessions at the latest. */
  async start(project: string, options: StartOptions = {}): Promise<Running> {
    const { model, ...rest } = await this.#prepare(project, options)
    const session = await startClaude({ ...rest, model })
    this.#cleanup.push(() => session.close())
    return { session, model }
  }

  /** `claude -p`. */
  async print(
    project: string,
    prompt: string,
    options: StartOptions = {},
  ): Promise<{ run: PrintRun; model: MessagesModel }> {
    const { model, ...rest } = await this.#prepare(project, options)
    const run = await startPrint(prompt, { ...rest, model })
    this.#cleanup.push(async () => {
      run.kill()
      await run.ended
    })
    return { run, model }
  }

  async #prepare(
    project: string,
    {
      script,
      reader,
      isConnected = false,
      allow = ALLOW_RULES,
      servers = ['patchcord'],
      args = [],
      env = {},
    }: StartOptions,
  ): Promise<ClaudeOptions> {
    const model = await new MessagesModel(script ?? (reader === undefined ? undefined : this.#read(reader))).listen()
    this.#cleanup.push(() => model.close())
    if (!isConnected) await writeProjectSettings(project, { allow, servers })
    return { home: this.home, project, runtime: this.world.runtime, model, args, env }
  }

  /** `patchcord connect`, as a user does it; what it says. */
  async connect(project: string, agent: string, options: string[] = []): Promise<string> {
    const args = ['connect', '--server', this.world.url, '--token-stdin', ...options]
    return await this.runPatchcord(project, args, this.world.token(agent))
  }

  /** The command itself, from another clone than the plugin is read from: where that lies, only the client's own files say. */
  async runPatchcord(project: string, args: string[], input = ''): Promise<string> {
    this.#command ??= copyPlugin(join(this.world.folder, 'clone')).then(buildCommand)
    const env = createClientEnvironment(this.home, { XDG_RUNTIME_DIR: this.world.runtime })
    const options = { cwd: project, env, timeout: COMMAND_MS_MAX }
    const running = promisify(execFile)(process.execPath, [await this.#command, ...args], options)
    running.child.stdin?.end(input)
    return (await running).stdout
  }

  /** Reads by the same call that our tool makes; a scenario of its own does it with the tool. */
  #read(agent: string): ModelScript {
    let count = 0
    return async ({ news }) => {
      if (/PATCHCORD: \d/.test(news)) await this.world.fetchInbox(agent)
      return { text: `noted ${++count}` }
    }
  }

  /** After each test. Every step is taken, whatever becomes of those before it. */
  async closeSessions(): Promise<void> {
    const errors: unknown[] = []
    for (const step of this.#cleanup.splice(0).reverse()) await step().catch((error) => errors.push(error))
    if (errors.length > 0) throw new AggregateError(errors, `closing failed: ${errors.join('; ')}`)
  }

  async close(): Promise<void> {
    try {
      await this.closeSessions()
    } finally {
      await this.world.close()
    }
  }
}

/** Whether a request brings this event, or any of ours. */
export function isEvent({ news }: ModelRequest, line: string | RegExp = 'PATCHCORD: '): boolean {
  return news.includes(EVENT) && (typeof line === 'string' ? news.includes(line) : line.test(news))
}

/** Our tools are deferred: a model finds them through ToolSearch before it can call them. */
export function searchTools(...names: string[]): ModelReply {
  return callTool('ToolSearch', { query: `select:${names.map(nameTool).join(',')}` })
}

/**
 * Replies in turn, once these tools of ours are found. An event may come before the client has connected to their server: then they
 * are looked for again, as a model would.
 */
export function withTools(names: string[], replies: (ModelReply | ModelScript)[]): ModelScript {
  const left = [...replies]
  let searches = 0
  return (request) => {
    const text = JSON.stringify(request.body)
    const isFound = names.every((name) => text.includes(`"tool_name":"${nameTool(name)}"`))
    if (!isFound && searches++ < SEARCHES_MAX)
      return { ...searchTools(...names), delayMs: searches > 1 ? SEARCH_MS : 0 }
    const next = left.shift() ?? { text: 'nothing more' }
    return typeof next === 'function' ? next(request) : next
  }
}

/** The name of our tool in Claude Code. */
export function nameTool(name: string): string {
  return `mcp__patchcord__${name}`
}

/** The id of the first message in a result of `inbox`, which Claude Code shows its model as JSON. */
export function readMessageId({ news }: ModelRequest): string {
  return /<message-[0-9a-f]+ [^>]*?\bid=\\?"([0-9a-f-]+)/.exec(news)?.[1] ?? 'no message in the answer'
}

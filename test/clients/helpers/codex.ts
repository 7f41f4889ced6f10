import { execFile } from 'node:child_process'
import { mkdir, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { createClientEnvironment, findClient } from './install.ts'
import { assertIsolated } from './isolated.ts'
import { type ModelReply, type ModelRequest, type ModelScript, ResponsesModel } from './model.ts'
import { copyPlugin, type PluginCopy } from './plugin-copy.ts'
import { Terminal } from './terminal.ts'
import { waitUntil } from './wait.ts'
import { World } from './world.ts'

/** Codex itself, interactive and in `exec`. */

const COMMAND_MS_MAX = 240_000
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024
/** The rate of scripts/lib/codex-waker.mjs. */
export const WAKES_PER_THREAD = 10
const PROMPT_MS_MAX = 120_000
const PROMPT = 'Ask Codex to do anything'
const REVIEW = 'Hooks need review'
/** The prompt, and no dialog over it. */
const PROMPT_ALONE = /^(?![\s\S]*Hooks need review)[\s\S]*Ask Codex to do anything/
/** Without the shared daemon, which copies itself (424 MB) into every new CODEX_HOME. */
export const NO_DAEMON = '--no-daemon'
/** For runs that are not about the question whether hooks may run. */
export const TRUST_HOOKS = '--dangerously-bypass-hook-trust'

export interface CodexOptions {
  home: string
  project: string
  /** XDG_RUNTIME_DIR. */
  runtime: string
  args?: string[]
  env?: Record<string, string>
}

function createEnvironment({ home, runtime, env = {} }: Pick<CodexOptions, 'home' | 'runtime' | 'env'>) {
  return createClientEnvironment(home, { CODEX_HOME: join(home, '.codex'), XDG_RUNTIME_DIR: runtime, ...env })
}

/** `~/.codex/config.toml` of somebody who uses another model provider and trusts these folders. */
export async function writeCodexConfig(home: string, modelUrl: string, projects: string[], more = ''): Promise<void> {
  const trust = projects.map((project) => `[projects.${JSON.stringify(project)}]\ntrust_level = "trusted"\n`)
  const provider = [
    'model_provider = "scripted"',
    '[model_providers.scripted]',
    'name = "scripted"',
    `base_url = ${JSON.stringify(`${modelUrl}/v1`)}`,
    'wire_api = "responses"',
    'request_max_retries = 0',
    'stream_max_retries = 0',
    '',
  ]
  await mkdir(join(home, '.codex'), { recursive: true })
  await writeFile(join(home, '.codex/config.toml'), `${provider.join('\n')}${trust.join('')}${more}`)
}

/** The project's own `.codex/config.toml`, which Codex reads in trusted folders: who the agent is lives in the project. */
export async function writeProjectServer(project: string, url: string, token: string): Promise<void> {
  const file = join(project, '.codex/config.toml')
  await mkdir(dirname(file), { recursive: true })
  const table = [
    '[mcp_servers.patchcord]',
    `url = "${url}/mcp/bearer"`,
    `http_headers = { Authorization = "Bearer ${token}" }`,
  ]
  await writeFile(file, `${table.join('\n')}\n`, { mode: 0o600 })
}

/** `codex ARGUMENTS` that ends by itself; what it printed. */
export async function runCodex(options: CodexOptions): Promise<{ stdout: string; stderr: string }> {
  assertIsolated()
  const running = promisify(execFile)(findClient('codex'), options.args ?? [], {
    env: createEnvironment(options),
    cwd: options.project,
    timeout: COMMAND_MS_MAX,
    killSignal: 'SIGKILL',
    maxBuffer: OUTPUT_BYTES_MAX,
  })
  // With an open stdin `exec` waits for more of the prompt.
  running.child.stdin?.end()
  return await running
}

/** Installs the plugin from a folder, as a user does. */
export async function installCodexPlugin(options: CodexOptions, { folder }: PluginCopy): Promise<void> {
  await runCodex({ ...options, args: ['plugin', 'marketplace', 'add', folder] })
  await runCodex({ ...options, args: ['plugin', 'add', 'patchcord@patchcord'] })
}

/** An interactive session at its prompt; `reviews` answers the question that comes up for new hooks. */
export async function startCodex(options: CodexOptions & { reviews?: 'trust' | 'skip' }): Promise<CodexSession> {
  const terminal = await Terminal.open({
    folder: options.runtime,
    command: [findClient('codex'), ...(options.args ?? [])],
    env: createEnvironment(options),
    cwd: options.project,
  })
  try {
    // The prompt is there for a moment before the question comes.
    if (options.reviews !== undefined) await answerReview(terminal, options.reviews)
    await terminal.waitFor(PROMPT)
  } catch (error) {
    await terminal.close()
    throw error
  }
  return new CodexSession(terminal)
}

/** 1. Review hooks, 2. Trust all and continue, 3. Continue without trusting. */
async function answerReview(terminal: Terminal, answer: 'trust' | 'skip'): Promise<void> {
  await terminal.waitFor(REVIEW)
  await terminal.press('Down', answer === 'trust' ? /› 2\. Trust all/ : /› 3\. Continue without/)
  await terminal.press('Enter', PROMPT_ALONE)
}

export class CodexSession {
  readonly terminal: Terminal

  constructor(terminal: Terminal) {
    this.terminal = terminal
  }

  /** `/quit`, and waits until the window is gone. */
  async quit(): Promise<void> {
    await this.terminal.send('/quit')
    await this.terminal.waitForEnd()
    await this.terminal.close()
  }

  async close(): Promise<void> {
    await this.terminal.close()
  }
}

/** Whether Codex asks for the title of a thread, which is no turn. */
export function isTitle({ body }: ModelRequest): boolean {
  const text = body.text as { format?: { schema?: { properties?: object } } } | undefined
  return text?.format?.schema?.properties !== undefined && 'title' in text.format.schema.properties
}

/** Replies in turn, to requests of the conversation only; afterwards a text that counts up. */
export function codexSteps(...replies: ModelReply[]): ModelScript {
  const left = [...replies]
  let count = 0
  return (request) => {
    if (isTitle(request)) return { text: '{"title":"scripted"}' }
    return left.shift() ?? { text: `noted ${++count}` }
  }
}

/** One call of one of our tools. */
export function callOurs(name: string, input: Record<string, unknown> = {}): ModelReply {
  return { tools: [{ name, namespace: 'mcp__patchcord', input }] }
}

/** A world in which Codex with our plugin stands for the agent `backend`, and `alice` is somebody else. */
export class CodexScene {
  readonly world: World
  readonly model: ResponsesModel
  readonly home: string
  readonly copy: PluginCopy
  #sessions: CodexSession[] = []

  private constructor(world: World, model: ResponsesModel, home: string, copy: PluginCopy) {
    this.world = world
    this.model = model
    this.home = home
    this.copy = copy
  }

  static async open(): Promise<CodexScene> {
    const world = await World.start(['backend', 'alice'])
    try {
      const model = await new ResponsesModel(codexSteps()).listen()
      const copy = await copyPlugin(join(world.folder, 'market'))
      return new CodexScene(world, model, await world.createHome(), copy)
    } catch (error) {
      await world.close()
      throw error
    }
  }

  /** A project of `backend`, trusted, with the tools and the listener's `.mcp.json`; the plugin installed. */
  async createProject({ hasPlugin = true } = {}): Promise<string> {
    const project = await this.world.createProject('backend')
    await writeCodexConfig(this.home, this.model.url, [project])
    await writeProjectServer(project, this.world.url, this.world.token('backend'))
    if (hasPlugin) await installCodexPlugin(this.options(project), this.copy)
    return project
  }

  options(project: string, args: string[] = []): CodexOptions {
    return { home: this.home, project, runtime: this.world.runtime, args }
  }

  async start(project: string, args = [NO_DAEMON, TRUST_HOOKS], reviews?: 'trust' | 'skip'): Promise<CodexSession> {
    const session = await startCodex({ ...this.options(project, args), ...(reviews && { reviews }) })
    this.#sessions.push(session)
    return session
  }

  /** A prompt and its whole turn: from then on the thread is kept on disk and can be woken. */
  async startThread(session: CodexSession, prompt = 'hello'): Promise<void> {
    const from = this.model.requests.length
    const isPrompt = (one: ModelRequest) => !isTitle(one) && one.news.includes(prompt)
    await session.terminal.send(prompt)
    try {
      await this.model.waitForRequest(isPrompt, { from, what: 'the prompt', timeoutMs: PROMPT_MS_MAX })
    } catch (error) {
      throw new Error(`${error}\n${await session.terminal.screen()}`)
    }
    await session.terminal.waitFor('Worked for')
  }

  async readConfig(): Promise<string> {
    return await readFile(join(this.home, '.codex/config.toml'), 'utf8')
  }

  async closeSessions(): Promise<void> {
    for (const session of this.#sessions.splice(0)) await session.close()
  }

  async close(): Promise<void> {
    try {
      await this.closeSessions()
    } finally {
      await this.model.close()
      await this.world.close()
    }
  }
}

/** A model that looks into the inbox whenever it is woken, as the line invites it to. */
export function readWhenWoken(request: ModelRequest): ModelReply {
  if (isTitle(request)) return { text: '{"title":"scripted"}' }
  return isWake(request) ? callOurs('inbox') : { text: 'done' }
}

/** Whether a request begins the turn of a wake. */
export function isWake({ news }: ModelRequest): boolean {
  return /^PATCHCORD: \d+ /m.test(news)
}

/**
 * From the answer to a send until the woken model is asked, in ms, for one wake of an idle thread whose model is `readWhenWoken`.
 * The thread is idle again afterwards. A thread takes ten wakes at once, and then one every six minutes.
 */
export async function wakeCodexOnce({ world, model }: CodexScene): Promise<number> {
  const from = model.requests.length
  const since = Date.now()
  await world.send('alice', 'backend', 'How long does a wake take?')
  const sentAt = performance.now()
  const woken = await model.waitForRequest(isWake, { from, what: 'a wake' })
  await model.waitForRequest(({ index }) => index > woken.index, { what: 'the inbox' })
  await waitForIdleThread(world, since)
  return woken.at - sentAt
}

/** Waits until a turn that began after this moment (by Date.now) has ended for the hooks, which alone decide who is woken. */
async function waitForIdleThread(world: World, since: number): Promise<void> {
  const folder = join(world.runtime, 'patchcord')
  const read = async () => {
    const names = (await readdir(folder)).filter((name) => /^codex_[\w-]+\.json$/.test(name))
    return await Promise.all(names.map((name) => readFile(join(folder, name), 'utf8')))
  }
  await waitUntil(
    async () => {
      const threads = (await read()).map((text) => JSON.parse(text) as { state: string; turnAt: number })
      return threads.some(({ state, turnAt }) => state === 'idle' && turnAt >= since)
    },
    async () => `the turn of the wake has not ended: ${await read()}`,
  )
}

/**
 * Wakes of new threads, ten each, as if hours lay between them: what the agent has left of its wakes is forgotten. `args` are Codex's: none with its daemon, whose hooks a person has then to review.
 */
export async function measureCodexWakes(
  scene: CodexScene,
  count: number,
  args = [NO_DAEMON, TRUST_HOOKS],
): Promise<number[]> {
  const project = await scene.createProject()
  const times: number[] = []
  let reviews: 'trust' | undefined = args.includes(TRUST_HOOKS) ? undefined : 'trust'
  while (times.length < count) {
    const session = await scene.start(project, args, reviews)
    reviews = undefined
    scene.model.script = readWhenWoken
    await scene.startThread(session)
    await scene.world.waitForWakeable('backend')
    for (let wakes = 0; wakes < WAKES_PER_THREAD && times.length < count; wakes++)
      times.push(await wakeCodexOnce(scene))
    if (times.length < count) {
      await session.quit()
      await forgetWakes(scene.world)
    }
  }
  return times
}

async function forgetWakes(world: World): Promise<void> {
  const folder = join(world.runtime, 'patchcord')
  const budgets = (await readdir(folder)).filter((name) => /^wakes_\w+\.json$/.test(name))
  await Promise.all(budgets.map((name) => rm(join(folder, name))))
}

/** Ends the daemon that an interactive Codex has left behind, and removes its sockets, which lie outside of CODEX_HOME. */
export async function stopCodexDaemon(home: string): Promise<void> {
  for (const name of ['app-server-daemon', 'app-server-control']) {
    const folder = join(home, '.codex', name)
    for (const entry of await readdir(folder).catch(() => [])) {
      if (entry.endsWith('.pid')) await killRecorded(join(folder, entry))
      if (entry.endsWith('.sock')) await removeSocket(join(folder, entry))
    }
  }
}

async function killRecorded(file: string): Promise<void> {
  const { pid } = JSON.parse(await readFile(file, 'utf8')) as { pid: number }
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended already.
  }
}

async function removeSocket(link: string): Promise<void> {
  const socket = await readlink(link).catch(() => null)
  if (socket !== null) for (const file of [socket, `${socket}.lock`]) await rm(file, { force: true })
}

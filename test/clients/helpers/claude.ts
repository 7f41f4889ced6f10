import { execFile, spawn } from 'node:child_process'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { createClientEnvironment, findClient } from './install.ts'
import { assertIsolated } from './isolated.ts'
import type { MessagesModel } from './model.ts'
import type { PluginCopy } from './plugin-copy.ts'
import { Terminal } from './terminal.ts'

/** Claude Code itself, interactive and in print mode. */

/** No real key: the client wants one before it asks the scripted model anything. Its last 20 characters are approved below. */
const API_KEY = 'sk-ant-dummy-000000-local-only'
const QUIET = [
  'DISABLE_TELEMETRY',
  'DISABLE_AUTOUPDATER',
  'DISABLE_ERROR_REPORTING',
  'CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC',
]
const COMMAND_MS_MAX = 180_000
const PRINT_MS_MAX = 280_000
const IDLE_MS_MAX = 120_000
const DIALOGS_MS_MAX = 120_000
/** The line below the prompt. */
const READY = /manual mode on/
const READY_OR_ASKING = /manual mode on|Enter to confirm/
const LOOK_MS = 150
const QUIET_LOOKS = 6
/** After an answer, until the turn shows that it goes on, if it does. */
const QUIET_MS = 1_500
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024

export interface ClaudeOptions {
  /** HOME, made by World.createHome. */
  home: string
  project: string
  /** XDG_RUNTIME_DIR. */
  runtime: string
  model: MessagesModel
  args?: string[]
  env?: Record<string, string>
}

/** The rules that `patchcord connect --allow` offers, and the answer to whether the project's `.mcp.json` may be used. */
export interface ProjectSettings {
  allow?: string[]
  /** Servers of `.mcp.json` that the user has approved. */
  servers?: string[]
}

function createEnvironment({ home, runtime, model, env = {} }: ClaudeOptions): Record<string, string> {
  const quiet = Object.fromEntries(QUIET.map((name) => [name, '1']))
  const api = { ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: API_KEY }
  return createClientEnvironment(home, { XDG_RUNTIME_DIR: runtime, ...quiet, ...api, ...env })
}

/** What a user answers once: theme, key, and that the folder is trusted. */
async function answerQuestions(home: string, project: string): Promise<void> {
  const file = join(home, '.claude.json')
  const state = JSON.parse(await readFile(file, 'utf8').catch(() => '{}'))
  const trust = { hasTrustDialogAccepted: true, hasCompletedProjectOnboarding: true }
  const projects = { ...state.projects, [project]: { ...state.projects?.[project], ...trust } }
  const approval = { approved: [API_KEY.slice(-20)], rejected: [] }
  const answers = { hasCompletedOnboarding: true, theme: 'dark', customApiKeyResponses: approval, projects }
  await writeFile(file, JSON.stringify({ ...state, ...answers }))
}

/** Writes `.claude/settings.local.json` of a project. */
export async function writeProjectSettings(project: string, { allow = [], servers }: ProjectSettings): Promise<void> {
  await mkdir(join(project, '.claude'), { recursive: true })
  const settings = { permissions: { allow }, ...(servers ? { enabledMcpjsonServers: servers } : {}) }
  await writeFile(join(project, '.claude/settings.local.json'), JSON.stringify(settings, null, 2))
}

/** `claude ARGUMENTS` that ends by itself and asks no model; its stdout. */
export async function runClaudeCommand(home: string, args: string[]): Promise<string> {
  assertIsolated()
  const options = { env: createClientEnvironment(home), cwd: home, timeout: COMMAND_MS_MAX }
  const { stdout } = await promisify(execFile)(findClient('claude'), args, options)
  return stdout
}

/** Installs the plugin from a folder, as a user does. */
export async function installPlugin(home: string, { folder, plugin, marketplace }: PluginCopy): Promise<void> {
  await runClaudeCommand(home, ['plugin', 'marketplace', 'add', folder])
  await runClaudeCommand(home, ['plugin', 'install', `${plugin}@${marketplace}`])
}

/** Takes it away again. */
export async function removePlugin(home: string, { plugin, marketplace }: PluginCopy): Promise<void> {
  await runClaudeCommand(home, ['plugin', 'uninstall', `${plugin}@${marketplace}`])
  await runClaudeCommand(home, ['plugin', 'marketplace', 'remove', marketplace])
}

/** An interactive session. Resolves when its prompt is there. */
export async function startClaude(options: ClaudeOptions): Promise<ClaudeSession> {
  await answerQuestions(options.home, options.project)
  const terminal = await Terminal.open({
    folder: options.runtime,
    command: [findClient('claude'), '--permission-mode', 'manual', ...(options.args ?? [])],
    env: createEnvironment(options),
    cwd: options.project,
  })
  try {
    await answerDialogs(terminal)
  } catch (error) {
    await terminal.close()
    throw error
  }
  return new ClaudeSession(terminal, options.model)
}

/** What may be asked at the start, and the answer with the way to it. */
const DIALOGS: { question: string; answer: string; key: string }[] = [
  // A session that runs meanwhile may have written .claude.json again without the answer that is there for a start.
  { question: 'Is this a project you created or one you trust?', answer: 'Yes, I trust this folder', key: 'Down' },
  { question: 'New MCP server found in this project', answer: 'Use this MCP server', key: 'Up' },
]

async function answerDialogs(terminal: Terminal): Promise<void> {
  const until = performance.now() + DIALOGS_MS_MAX
  for (;;) {
    const screen = await terminal.waitFor(READY_OR_ASKING)
    if (READY.test(screen)) return
    if (performance.now() > until) throw new Error(`no answer to this after ${DIALOGS_MS_MAX} ms:\n${screen}`)
    const dialog = DIALOGS.find(({ question }) => screen.includes(question))
    if (!dialog) {
      // It is being drawn.
      await sleep(LOOK_MS)
      continue
    }
    const isChosen = screen.split('\n').some((line) => line.trim() === `❯ ${dialog.answer}`)
    // Not faster than its effect: an Enter too many would answer the next question.
    await terminal.keyWithEffect(isChosen ? 'Enter' : dialog.key)
  }
}

export class ClaudeSession {
  readonly terminal: Terminal
  #model: MessagesModel

  constructor(terminal: Terminal, model: MessagesModel) {
    this.terminal = terminal
    this.#model = model
  }

  /** Waits until no turn runs: nothing is asked of the model, and the hint how to interrupt one is gone for a while. */
  async waitForIdle(timeoutMs = IDLE_MS_MAX): Promise<void> {
    const until = performance.now() + timeoutMs
    for (let quiet = 0; quiet < QUIET_LOOKS; await sleep(LOOK_MS)) {
      const screen = await this.terminal.screen()
      const isBusy = this.#model.quietMs < QUIET_MS || screen.includes('esc to interrupt')
      quiet = isBusy ? 0 : quiet + 1
      if (performance.now() > until) throw new Error(`a turn still runs after ${timeoutMs} ms:\n${screen}`)
    }
  }

  /** `/exit`, and waits until the process is gone. */
  async exit(): Promise<void> {
    await this.terminal.send('/exit')
    await this.terminal.waitForEnd()
    await this.terminal.close()
  }

  async close(): Promise<void> {
    await this.terminal.close()
  }
}

export interface PrintRun {
  /** Lines of stream-json so far. */
  lines: Record<string, unknown>[]
  ended: Promise<{ code: number | null; stderr: string }>
  kill(): void
}

/** `claude -p PROMPT`, which goes on while a Monitor runs. */
export async function startPrint(prompt: string, options: ClaudeOptions): Promise<PrintRun> {
  assertIsolated()
  await mkdir(options.home, { recursive: true })
  const format = ['--output-format', 'stream-json', '--verbose']
  const child = spawn(findClient('claude'), ['-p', prompt, ...format, ...(options.args ?? [])], {
    cwd: options.project,
    env: createEnvironment(options),
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: PRINT_MS_MAX,
    killSignal: 'SIGKILL',
  })
  const lines: Record<string, unknown>[] = []
  let rest = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    const parts = (rest + text).split('\n')
    rest = (parts.pop() ?? '').slice(-OUTPUT_BYTES_MAX)
    for (const part of parts.filter(Boolean)) lines.push(JSON.parse(part))
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-OUTPUT_BYTES_MAX)
  })
  const ended = new Promise<{ code: number | null; stderr: string }>((resolve) => {
    child.once('close', (code) => resolve({ code, stderr }))
  })
  return { lines, ended, kill: () => child.kill('SIGTERM') }
}

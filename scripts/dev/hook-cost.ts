import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { runProgram } from '../../test/scripts/hook-process.ts'
import { TOKEN } from '../../test/scripts/listener-process.ts'
import { toTrustId } from '../lib/identity.cjs'

/**
 * `npm run bench:hook -- [--rounds 25]`: what a hook and the status line add to the start of Node itself (`node -e 0`), with a
 * server that answers in 5 ms and with one that never answers. Rounds are interleaved: whatever else the machine does meets
 * all of them alike.
 */

const HOOK = fileURLToPath(new URL('../hook.cjs', import.meta.url))
const STATUSLINE = fileURLToPath(new URL('../statusline.cjs', import.meta.url))
const SERVERS = fileURLToPath(new URL('./hook-cost-servers.ts', import.meta.url))
export const ANSWERED_MS_MAX = 40
export const SILENT_MS_MAX = 300

export interface Cost {
  name: string
  /** Median over `node -e 0`, in ms. */
  extraMs: number
  medianMs: number
  limitMs: number
}

interface Case {
  name: string
  args: string[]
  project: 'answering' | 'empty' | 'silent'
  event: Record<string, unknown> | null
  limitMs: number
  /** The program has something to say. */
  isSaid: boolean
}

const PROJECTS: Record<Case['project'], string> = {
  answering: 'one new message',
  empty: 'nothing new',
  silent: 'silent server',
}
const EVENTS = ['PostToolUse', 'Stop', 'UserPromptSubmit', 'SessionStart', 'SessionEnd']

type Origins = Record<Case['project'], string>

/** Every event with both servers, and the status line. */
export async function measureHookCosts(rounds: number): Promise<Cost[]> {
  const root = await mkdtemp(join(tmpdir(), 'patchcord-hook-cost-'))
  const servers = spawn(process.execPath, ['--import', 'tsx', SERVERS], { stdio: ['pipe', 'pipe', 'inherit'] })
  const closed = once(servers, 'close')
  try {
    await prepare(root, await readOrigins(servers))
    return await measure(root, rounds)
  } finally {
    servers.stdin.end()
    await closed
    await rm(root, { recursive: true, force: true })
  }
}

async function readOrigins({ stdout }: ChildProcess): Promise<Origins> {
  for await (const line of createInterface({ input: stdout as Readable })) return JSON.parse(line) as Origins
  throw new Error('the servers of the benchmark have ended')
}

async function prepare(root: string, origins: Origins): Promise<void> {
  await mkdir(join(root, '.config/patchcord'), { recursive: true })
  const trusted = Object.values(origins).map((base) => toTrustId({ base, token: TOKEN }))
  await writeFile(join(root, '.config/patchcord/trusted.json'), JSON.stringify({ trusted }), { mode: 0o600 })
  for (const [name, origin] of Object.entries(origins)) {
    await mkdir(join(root, name))
    const entry = { type: 'http', url: `${origin}/mcp`, headers: { Authorization: `Bearer ${TOKEN}` } }
    await writeFile(join(root, name, '.mcp.json'), JSON.stringify({ mcpServers: { patchcord: entry } }))
  }
}

function listCases(): Case[] {
  const cases: Case[] = []
  for (const [project, about] of Object.entries(PROJECTS) as [Case['project'], string][]) {
    const limitMs = project === 'silent' ? SILENT_MS_MAX : ANSWERED_MS_MAX
    for (const event of EVENTS) {
      const input = { hook_event_name: event, prompt: 'hello', source: 'startup' }
      const isSaid =
        project !== 'silent' && (event === 'SessionStart' || (project === 'answering' && event !== 'SessionEnd'))
      cases.push({ name: `${event}, ${about}`, args: [HOOK], project, event: input, limitMs, isSaid })
    }
  }
  const line = { name: 'status line', args: [STATUSLINE], limitMs: ANSWERED_MS_MAX, event: {}, isSaid: true }
  return [...cases, { ...line, project: 'answering' }]
}

async function measure(root: string, rounds: number): Promise<Cost[]> {
  const bare: Case = {
    name: 'node -e 0',
    args: ['-e', '0'],
    project: 'answering',
    event: null,
    limitMs: 0,
    isSaid: false,
  }
  const cases = [bare, ...listCases()]
  const times = cases.map((): number[] => [])
  const env = { HOME: root, XDG_RUNTIME_DIR: root, PATH: process.env.PATH ?? '' }
  for (let round = 0; round < rounds; round++) {
    for (const [place] of cases.entries()) {
      // Each round begins one further on: what comes before a case is part of what it costs.
      const index = (place + round) % cases.length
      const { name, args, project, event, isSaid } = cases[index] as Case
      // A session of its own each time: the message is always news, and no failure of before is remembered.
      const input = event === null ? '' : { ...event, session_id: `round-${round}-${index}` }
      const { ms, code, stdout } = await runProgram(args, input, { cwd: join(root, project), env })
      if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}`)
      if (isSaid && stdout === '')
        throw new Error(`${name} said nothing, which no server that is well can be the reason of`)
      times[index]?.push(ms)
    }
  }
  const medians = times.map(findMedian)
  return cases.map(({ name, limitMs }, index) => {
    const medianMs = medians[index] ?? Number.NaN
    return { name, limitMs, medianMs, extraMs: medianMs - (medians[0] ?? Number.NaN) }
  })
}

function findMedian(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = (sorted.length - 1) / 2
  return ((sorted[Math.floor(middle)] ?? Number.NaN) + (sorted[Math.ceil(middle)] ?? Number.NaN)) / 2
}

export function describeCost({ name, extraMs, medianMs, limitMs }: Cost): string {
  const limit = limitMs === 0 ? '' : `  +${extraMs.toFixed(1)} (limit ${limitMs})`
  return `${name.padEnd(36)} ${medianMs.toFixed(1).padStart(7)} ms${limit}`
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { rounds: { type: 'string', default: '25' } } })
  const costs = await measureHookCosts(Number(values.rounds))
  console.log(`Node ${process.version}, ${process.platform} ${process.arch}, medians of ${values.rounds} rounds`)
  for (const cost of costs) console.log(describeCost(cost))
  if (costs.some(({ extraMs, limitMs }) => limitMs > 0 && extraMs > limitMs)) process.exitCode = 1
}

if (fileURLToPath(import.meta.url) === process.argv[1]) await main()

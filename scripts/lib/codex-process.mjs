/**
 * The Codex process behind a hook. Without Codex's shared daemon that is the window itself. With it, which is the default of an
 * interactive Codex, hooks are run by the daemon, which outlives every window, keeps its threads, and has the environment of the
 * shell that started it first.
 */
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs'
import { basename } from 'node:path'
import { readStartTime } from './processes.cjs'

const PARENTS_MAX = 8
/** Runs that end with their turn: there is nothing to wake. */
const ONE_TURN = new Set(['exec', 'e', 'review'])
const PS_MS = 2_000

/**
 * @typedef {{ pid: number, parent: number, program: string, args: string[] }} ProcessFacts
 *
 * @typedef {object} CodexProcess
 * @property {number} pid
 * @property {string | null} startTime
 * @property {string} program what to start for `codex queue`: the very binary that runs, else the one on PATH
 * @property {boolean} isDaemon threads live on in it when their window is closed
 */

/**
 * The nearest parent that is Codex.
 * @param {number} [from] where to begin
 * @param {(pid: number) => ProcessFacts | null} [read]
 * @returns {(CodexProcess & { isOneTurn: boolean }) | null}
 */
export function findCodex(from = process.ppid, read = readFacts) {
  let facts = read(from)
  for (let steps = 0; facts !== null && facts.pid > 1 && steps < PARENTS_MAX; steps++) {
    if (isCodex(facts)) {
      const { pid, program, args } = facts
      const isOneTurn = args.slice(1, 8).some((arg) => ONE_TURN.has(arg))
      const path = program.startsWith('/') ? program : 'codex'
      return { pid, startTime: readStartTime(pid), program: path, isDaemon: isDaemon(args), isOneTurn }
    }
    facts = read(facts.parent)
  }
  return null
}

/** Whether a window (any interactive Codex) is open, in this folder if `folder` is given. @param {string} [folder] */
export function hasWindow(folder, list = listProcesses) {
  const windows = list().filter((facts) => isCodex(facts) && !facts.args.includes('app-server'))
  return windows.some(({ pid }) => folder === undefined || readFolder(pid) === folder)
}

/** @param {ProcessFacts} facts */
function isCodex({ program }) {
  return /^codex(?:\.exe)?$/.test(basename(program))
}

/** `app-server` on a socket serves every window; the one of an editor speaks over stdio and ends with the editor. @param {string[]} args */
function isDaemon(args) {
  return args.includes('app-server') && args.some((arg) => arg.startsWith('unix://'))
}

/** @param {number} pid @returns {ProcessFacts | null} */
function readFacts(pid) {
  return process.platform === 'linux' ? readLinuxFacts(pid) : (listWithPs(['-p', String(pid)])[0] ?? null)
}

/** @returns {ProcessFacts[]} this user's processes */
function listProcesses() {
  if (process.platform !== 'linux') return listWithPs(['-u', String(process.getuid?.() ?? 0)])
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && isMine(`/proc/${name}`))
    .flatMap((name) => readLinuxFacts(Number(name)) ?? [])
}

/** @param {string} path */
function isMine(path) {
  try {
    return statSync(path).uid === process.getuid?.()
  } catch {
    // It has ended meanwhile.
    return false
  }
}

/** proc(5). @param {number} pid @returns {ProcessFacts | null} */
function readLinuxFacts(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const parent = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
    const args = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1)
    return { pid, parent, program: readProgram(pid), args }
  } catch {
    return null
  }
}

/** @param {number} pid */
function readProgram(pid) {
  const path = readlinkSync(`/proc/${pid}/exe`)
  // An upgrade has replaced the file; what is on PATH now speaks to the same threads.
  return path.endsWith(' (deleted)') ? basename(path.slice(0, -' (deleted)'.length)) : path
}

/** @param {number} pid @returns {string | null} */
function readFolder(pid) {
  try {
    return readlinkSync(`/proc/${pid}/cwd`)
  } catch {
    return null
  }
}

/** @param {string[]} selection @returns {ProcessFacts[]} */
function listWithPs(selection) {
  try {
    const output = execFileSync('ps', ['-o', 'pid=,ppid=,command=', ...selection], {
      encoding: 'utf8',
      timeout: PS_MS,
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    return output.split('\n').flatMap((line) => {
      const [, pid, parent, command = ''] = /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(line) ?? []
      const args = command.split(' ')
      return pid === undefined ? [] : [{ pid: Number(pid), parent: Number(parent), program: args[0] ?? '', args }]
    })
  } catch {
    // No ps here (Windows): nothing is known.
    return []
  }
}

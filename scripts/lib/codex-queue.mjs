/** `codex queue`: makes a text the next turn of a thread. */
import { spawn } from 'node:child_process'
import { toOneLine } from './basics.cjs'

const QUEUE_MS_MAX = 30_000
const ERROR_CHARACTERS_MAX = 2_000

/**
 * Resolves when Codex has taken the text. A thread that nobody has open takes it, too, and begins the turn when it is opened
 * again, so the caller makes sure that the thread lives.
 * @param {{ program: string, thread: string, text: string }} input the thread's id has passed isThreadId
 * @returns {Promise<void>}
 * @throws {Error} the last words of Codex
 */
export function queueTurn({ program, thread, text }) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, ['queue', '--thread', thread, '--message', text], {
      stdio: ['ignore', 'ignore', 'pipe'],
      timeout: QUEUE_MS_MAX,
      killSignal: 'SIGKILL',
      windowsHide: true,
    })
    let errors = ''
    child.stderr.setEncoding('utf8').on('data', (part) => {
      errors = (errors + part).slice(-ERROR_CHARACTERS_MAX)
    })
    child.on('error', reject)
    child.on('close', (code) => {
      if (code === 0) resolve()
      else reject(new Error(`exit ${code}: ${toOneLine(errors.trim().split('\n').at(-1) ?? '', 200)}`))
    })
  })
}

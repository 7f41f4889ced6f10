import { execFileSync } from 'node:child_process'
import { closeSync, constants, openSync, readSync, rmSync, writeSync } from 'node:fs'

/**
 * A program's stdout as a named pipe, read by hand: a stream of Node reads ahead even when it is paused, and a pipe that is
 * read is never full.
 */

const POLL_MS = 20
const READ_BYTES = 256 * 1024
const FILL_BYTES = [4_096, 1]

export class LinePipe {
  /** For the program, which then is its only writer. */
  readonly writing: number
  readonly #path: string
  readonly #reading: number
  readonly #onLine: (text: string, at: number) => void
  readonly #buffer = Buffer.alloc(READ_BYTES)
  readonly #timer: NodeJS.Timeout
  #rest = ''
  /** Since when nobody reads, as Date.now(). */
  #stalledAt: number | null = null

  /** `onLine` is told when the pipe took the line, as Date.now(), as well as that can be known. */
  constructor(path: string, onLine: (text: string, at: number) => void) {
    rmSync(path, { force: true })
    execFileSync('mkfifo', [path])
    this.#path = path
    this.#onLine = onLine
    this.#reading = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
    this.writing = openSync(path, constants.O_WRONLY)
    this.#timer = setInterval(() => {
      if (this.#stalledAt === null) this.#drain(null)
    }, POLL_MS)
  }

  /** From now on nobody reads, and there is no room for a byte. */
  stall(): void {
    this.#drain(null)
    const pipe = openSync(this.#path, constants.O_WRONLY | constants.O_NONBLOCK)
    for (const bytes of FILL_BYTES) {
      while (ifReady(() => writeSync(pipe, '\n'.repeat(bytes))) !== null);
    }
    closeSync(pipe)
    this.#stalledAt = Date.now()
  }

  unstall(): void {
    const stalledAt = this.#stalledAt
    this.#stalledAt = null
    if (stalledAt !== null) this.#drain(stalledAt)
  }

  /** Its writer has ended: what it has written is read to the end. */
  close(): void {
    this.unstall()
    this.#drain(null)
    clearInterval(this.#timer)
    closeSync(this.#reading)
  }

  /** `stalledAt`: what stands before the last of the empty lines that filled the pipe was written by then. */
  #drain(stalledAt: number | null): void {
    let text = this.#rest
    for (;;) {
      const length = ifReady(() => readSync(this.#reading, this.#buffer))
      if (length === null || length === 0) break
      text += this.#buffer.toString('utf8', 0, length)
    }
    const lines = text.split('\n')
    this.#rest = lines.pop() ?? ''
    const filled = stalledAt === null ? -1 : lines.lastIndexOf('')
    const now = Date.now()
    for (const [index, line] of lines.entries()) {
      if (line !== '') this.#onLine(line, index < filled && stalledAt !== null ? stalledAt : now)
    }
  }
}

/** null: the pipe is full, or has nothing. */
function ifReady(act: () => number): number | null {
  try {
    return act()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EAGAIN') return null
    throw error
  }
}
